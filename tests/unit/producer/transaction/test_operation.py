"""An operation that its caller waits for, and that a cancellation of the caller does not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokclient.errors import ClosedError, KafkaError
from aiokclient.producer.transaction.operation import Operation
from aiokclient.testing.simulation.loop import VirtualLoop


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def works() -> None:
    await asyncio.sleep(1)


def fails(error: BaseException) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        await asyncio.sleep(1)
        raise error

    return work


def test_result_returns_when_the_work_has_ended() -> None:
    async def main() -> None:
        operation = Operation()
        assert not operation.over
        operation.require_running()
        running = asyncio.ensure_future(operation.run(works))
        for _ in range(2):
            await operation.result(5)
        assert operation.over
        assert not operation.abandoned
        assert not operation._waiters
        assert asyncio.get_running_loop().time() == 1
        await running

    in_virtual_time(main)


def test_result_raises_an_error_of_the_work_and_the_task_does_not() -> None:
    async def main() -> None:
        operation, error = Operation(), KafkaError("no")
        running = asyncio.ensure_future(operation.run(fails(error)))
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await operation.result(5)
            assert caught.value is error
        await running
        with pytest.raises(KafkaError):
            operation.require_running()

    in_virtual_time(main)


def test_result_and_task_raise_a_bug_of_the_work() -> None:
    async def main() -> None:
        operation, bug = Operation(), ZeroDivisionError()
        running = asyncio.ensure_future(operation.run(fails(bug)))
        with pytest.raises(ZeroDivisionError):
            await operation.result(5)
        with pytest.raises(ZeroDivisionError):
            await running

    in_virtual_time(main)


def test_result_raises_when_the_task_is_cancelled_because_the_producer_closes() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(ClosedError, match="The producer was closed"):
            await operation.result(5)
        with pytest.raises(asyncio.CancelledError):
            await running

    in_virtual_time(main)


def test_work_of_an_operation_that_is_over_does_not_run() -> None:
    async def main() -> None:
        operation = Operation()
        operation.cancel(KafkaError("changed"))
        await operation.run(fails(ZeroDivisionError()))
        assert asyncio.get_running_loop().time() == 0
        with pytest.raises(KafkaError, match="changed"):
            operation.require_running()

    in_virtual_time(main)


def test_cancel_stops_the_work_where_it_is_and_gives_its_error_to_the_caller() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        await asyncio.sleep(0.5)
        operation.cancel(KafkaError("changed"))
        with pytest.raises(KafkaError, match="changed"):
            await operation.result(5)
        await running
        assert asyncio.get_running_loop().time() == 0.5

    in_virtual_time(main)


def test_only_the_first_end_counts() -> None:
    async def main() -> None:
        operation = Operation()
        operation.end(None)
        operation.end(KafkaError("late"))
        await operation.result(5)
        operation.require_running()
        operation = Operation()
        operation.end(KafkaError("first"))
        operation.end(None)
        with pytest.raises(KafkaError, match="first"):
            await operation.result(5)

    in_virtual_time(main)


def test_an_error_that_nobody_reads_is_not_logged() -> None:
    messages: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: messages.append(what))
        Operation().end(KafkaError("no"))
        await asyncio.sleep(1)

    in_virtual_time(main)
    assert messages == []


def test_wait_returns_whether_the_operation_has_ended_in_time() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        assert not await operation.wait(0.5)
        assert asyncio.get_running_loop().time() == 0.5
        assert await operation.wait(5)
        assert await operation.wait(5)
        assert asyncio.get_running_loop().time() == 1
        await running

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("shielded_s", "abandoned", "at_s"), [(0.25, True, 0.75), (2.0, False, 1.0)]
)
def test_a_cancelled_caller_waits_for_a_limited_time(
    shielded_s: float, abandoned: bool, at_s: float
) -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        caller = asyncio.ensure_future(operation.result(shielded_s))
        other = asyncio.ensure_future(operation.result(shielded_s))
        await asyncio.sleep(0.5)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert asyncio.get_running_loop().time() == at_s
        assert operation.abandoned is abandoned
        await other
        await running
        assert not operation._waiters
        assert asyncio.get_running_loop().time() == 1

    in_virtual_time(main)
