"""Tests that tasks which wait for one batch are woken together.

Each task is woken as a future would wake it.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from asyncio import tasks
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokclient._native import in_use
from aiokclient.background import SLICE_S
from aiokclient.errors import KafkaError, WrongLoopError
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch, NoProducer

RUNNERS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {"asyncio": asyncio.run}
if sys.platform != "win32":
    import uvloop

    RUNNERS["uvloop"] = uvloop.run


def batch_of(count: int) -> tuple[DeliveryBatch, list[Delivery]]:
    batch = DeliveryBatch("t", 0, NoProducer())
    batch.count = count
    return batch, [Delivery(batch, index, 5) for index in range(count)]


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return RUNNERS[request.param]


@pytest.fixture(params=["C", "Python"])
def run_tasks(request: pytest.FixtureRequest, run: Any) -> Callable[[Any], Any]:
    """Return a function that runs a coroutine with one of the two implementations of tasks."""

    def make(loop: Any, coro: Any, **options: Any) -> Any:
        return tasks._PyTask(coro, loop=loop, **options)  # type: ignore[attr-defined]

    async def with_factory(main: Any) -> Any:
        if request.param == "Python":
            asyncio.get_running_loop().set_task_factory(make)
        return await asyncio.get_running_loop().create_task(main)

    return lambda main: run(with_factory(main))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_continue_in_the_order_of_their_awaits(run_tasks: Any) -> None:
    async def main() -> None:
        batch, deliveries = batch_of(100)
        order: list[int] = []

        async def wait(delivery: Delivery) -> None:
            order.append((await delivery).offset)

        waiting = [asyncio.ensure_future(wait(delivery)) for delivery in deliveries]
        await turns()
        assert not order
        batch.succeed(7)
        await asyncio.gather(*waiting)
        assert order == list(range(7, 107))
        assert not batch._waiters

    run_tasks(main())


def test_each_task_continues_in_its_own_context(run_tasks: Any) -> None:
    mine = contextvars.ContextVar[int]("mine")

    async def main() -> None:
        batch, deliveries = batch_of(10)
        mine.set(-1)

        async def wait(number: int) -> tuple[int, int]:
            mine.set(number)
            await deliveries[number]
            return number, mine.get()

        waiting = [asyncio.ensure_future(wait(number)) for number in range(10)]
        await turns()
        batch.succeed(0)
        found = await asyncio.gather(*waiting)
        assert found == [(number, number) for number in range(10)]
        assert mine.get() == -1

    run_tasks(main())


def test_cancelled_tasks_do_not_delay_the_others(run_tasks: Any) -> None:
    async def main() -> None:
        batch, deliveries = batch_of(6)
        waiting = [asyncio.ensure_future(_offset(delivery)) for delivery in deliveries]
        await turns()
        assert waiting[1].cancel("before")
        await turns()
        assert waiting[1].cancelled()
        assert len(batch._waiters) == 5
        assert waiting[2].cancel()
        batch.succeed(0)  # The cancelled task has not run yet.
        assert waiting[3].cancel("just woken")
        await turns(6)
        assert [task.cancelled() for task in waiting] == [False, True, True, True, False, False]
        assert [task.result() for task in waiting if not task.cancelled()] == [0, 4, 5]
        assert not batch._waiters

    run_tasks(main())


def test_a_message_of_a_cancellation_arrives(run_tasks: Any) -> None:
    async def main() -> None:
        batch, (delivery,) = batch_of(1)
        told: list[Any] = []

        async def wait() -> None:
            try:
                await delivery
            except asyncio.CancelledError as error:
                told.extend(error.args)
                raise

        task = asyncio.ensure_future(wait())
        await turns()
        task.cancel("so there")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["so there"]
        batch.succeed(0)
        assert (await delivery).offset == 0

    run_tasks(main())


def test_a_task_that_ends_a_cancellation_may_wait_again(run_tasks: Any) -> None:
    async def main() -> None:
        batch, (delivery,) = batch_of(1)

        async def wait() -> int:
            try:
                await delivery
            except asyncio.CancelledError:
                return (await delivery).offset
            raise AssertionError("the task should have been cancelled")

        task = asyncio.ensure_future(wait())
        await turns()
        task.cancel()
        await turns()
        assert not task.done()
        batch.succeed(4)
        assert await task == 4

    run_tasks(main())


def test_records_that_move_are_waited_for_where_they_go(run_tasks: Any) -> None:
    async def main() -> None:
        batch, deliveries = batch_of(4)
        waiting = [asyncio.ensure_future(_offset(delivery)) for delivery in deliveries]
        await turns()
        first, _ = batch_of(2)
        second, _ = batch_of(2)
        batch.forward_records(2, first, 0)
        batch.forward_records(2, second, 0)
        batch.on_emptied()
        await turns()
        assert (len(first._waiters), len(second._waiters)) == (2, 2)
        second.fail(KafkaError("no"))
        first.succeed(10)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert found[:2] == [10, 11]
        assert [str(error) for error in found[2:]] == ["no.", "no."]

    run_tasks(main())


async def _offset(delivery: Delivery) -> int:
    return (await delivery).offset


def test_an_error_in_one_task_does_not_affect_the_others(run_tasks: Any) -> None:
    async def main() -> None:
        batch, deliveries = batch_of(3)

        async def wait(number: int) -> int:
            offset = (await deliveries[number]).offset
            if number == 1:
                raise ValueError("mine")
            return offset

        waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
        await turns()
        batch.succeed(0)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [found[0], found[2]] == [0, 2]
        assert isinstance(found[1], ValueError)

    run_tasks(main())


def test_an_interrupt_in_one_task_loses_no_other_wakeup() -> None:
    async def prepare() -> tuple[DeliveryBatch, list[asyncio.Task[int]]]:
        batch, deliveries = batch_of(3)

        async def wait(number: int) -> int:
            offset = (await deliveries[number]).offset
            if number == 1:
                raise KeyboardInterrupt
            return offset

        waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
        await turns()
        return batch, waiting

    loop = asyncio.new_event_loop()
    try:
        batch, waiting = loop.run_until_complete(prepare())
        loop.call_soon(batch.succeed, 0)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert loop.run_until_complete(waiting[2]) == 2
        assert waiting[0].result() == 0
        assert isinstance(waiting[1].exception(), KeyboardInterrupt)
    finally:
        loop.close()


@pytest.mark.skipif(not in_use(), reason="in pure Python, each waiting task has a future")
def test_the_loop_is_given_way_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batch, deliveries = batch_of(200)
        order: list[str] = []

        async def wait(delivery: Delivery) -> None:
            await delivery
            order.append("woken")
            until = loop.time() + SLICE_S / 8
            while loop.time() < until:
                pass

        waiting = [asyncio.ensure_future(wait(delivery)) for delivery in deliveries]
        await turns()
        batch.succeed(0)
        loop.call_soon(order.append, "another task")
        await asyncio.gather(*waiting)
        assert order.count("woken") == 200
        assert order.index("another task") <= 16

    asyncio.run(main())


async def test_two_tasks_and_a_callback_wait_for_one() -> None:
    batch, (delivery,) = batch_of(1)
    called: list[Any] = []
    delivery.add_done_callback(called.append)
    waiting = [asyncio.ensure_future(_offset(delivery)) for _ in range(2)]
    async with asyncio.timeout(60):
        shielded = asyncio.shield(asyncio.ensure_future(_offset(delivery)))
        await turns()
        batch.succeed(3)
        assert await asyncio.gather(*waiting, shielded) == [3, 3, 3]
    await turns()
    assert called == [delivery]


async def test_a_cancelled_wait_leaves_no_waiter() -> None:
    batch, deliveries = batch_of(3)
    steps = [delivery.__await__() for delivery in deliveries]
    for step in steps:
        next(step)
    assert len(batch._waiters) == 3
    steps[0].close()
    assert len(batch._waiters) == 2
    del steps, step
    gc.collect()
    assert not batch._waiters
    batch.succeed(0)
    assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]


async def test_a_batch_that_goes_leaves_its_waiters_alone() -> None:
    batch, (delivery,) = batch_of(1)
    waiting = batch.add_waiter()
    waiter: Any = getattr(waiting, "future", waiting)
    del batch, delivery
    gc.collect()
    assert not waiter.done()
    waiter.cancel()
    assert waiter.cancelled()


async def test_an_await_that_is_driven_too_early() -> None:
    batch, (delivery,) = batch_of(1)
    steps = delivery.__await__()
    next(steps)
    with pytest.raises(RuntimeError):
        next(steps)
    assert not batch._waiters


def test_a_task_of_another_loop_is_refused() -> None:
    async def make() -> Delivery:
        return batch_of(1)[1][0]

    async def wait(delivery: Delivery) -> None:
        with pytest.raises(WrongLoopError):
            await delivery

    delivery = asyncio.run(make())
    asyncio.run(wait(delivery))
