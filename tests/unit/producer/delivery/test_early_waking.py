"""Tests that tasks continue at the end of the read that has brought the outcome of their batch."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from asyncio import tasks
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokclient._native import in_use
from aiokclient.background import SLICE_S
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch, NoProducer

pytestmark = pytest.mark.skipif(not in_use(), reason="futures of asyncio wake the tasks")

RUNNERS: dict[str, Callable[..., Any]] = {"asyncio": asyncio.run}
if sys.platform != "win32":
    import uvloop

    RUNNERS["uvloop"] = uvloop.run


def batch_of(count: int, hooks: NoProducer) -> tuple[DeliveryBatch, list[Delivery]]:
    batch = DeliveryBatch("t", 0, hooks)
    batch.count = count
    return batch, [Delivery(batch, index, 5) for index in range(count)]


async def read(hooks: NoProducer, *batches: DeliveryBatch, then: Callable[[], Any]) -> None:
    """Complete batches as a transport's callback does, and call `then` in the same callback."""
    over = asyncio.Event()

    def buffer_updated() -> None:
        hooks.wakes.collect()
        for batch in batches:
            batch.succeed(0)
        try:
            hooks.wakes.resume_collected()
            then()
        finally:
            over.set()

    hooks.loop.call_soon(buffer_updated)
    await over.wait()


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def python_tasks(loop: Any, coro: Any, **options: Any) -> Any:
    return tasks._PyTask(coro, loop=loop, **options)  # type: ignore[attr-defined]


def eager_tasks(loop: Any, coro: Any, **options: Any) -> Any:
    # Not `asyncio.eager_task_factory`, which raises TypeError with uvloop in Python 3.13.0.
    return asyncio.Task(coro, loop=loop, **{**options, "eager_start": True})


FACTORIES: dict[str, Any] = {"C": None, "Python": python_tasks}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = eager_tasks


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return RUNNERS[request.param]


@pytest.fixture(params=FACTORIES)
def run_tasks(request: pytest.FixtureRequest, run: Any) -> Callable[[Any], Any]:
    """Return a function that runs a coroutine in debug mode, with one kind of tasks."""

    async def with_factory(main: Coroutine[Any, Any, Any]) -> Any:
        asyncio.get_running_loop().set_task_factory(FACTORIES[request.param])
        return await asyncio.get_running_loop().create_task(main)

    return lambda main: run(with_factory(main), debug=True)


def test_tasks_continue_within_the_read_as_themselves_and_in_their_contexts(run_tasks: Any) -> None:
    mine = contextvars.ContextVar[int]("mine")

    async def main() -> None:
        hooks = NoProducer()
        batch, deliveries = batch_of(10, hooks)
        order: list[int] = []

        async def wait(number: int) -> None:
            mine.set(number)
            offset = (await deliveries[number]).offset
            assert asyncio.current_task() is waiting[number]
            assert mine.get() == offset
            order.append(offset)
            started = asyncio.ensure_future(asyncio.sleep(0, "value"))
            assert asyncio.current_task() is waiting[number]
            assert await started == "value"
            assert asyncio.current_task() is waiting[number]

        mine.set(-1)
        waiting: list[Any] = [asyncio.ensure_future(wait(number)) for number in range(10)]
        await turns()

        def look() -> None:
            assert order == list(range(10))
            assert asyncio.current_task() is None
            assert mine.get() == -1

        await read(hooks, batch, then=look)
        await asyncio.gather(*waiting)

    run_tasks(main())


def test_nothing_continues_within_a_task(run_tasks: Any) -> None:
    async def main() -> None:
        hooks = NoProducer()
        batch, (delivery,) = batch_of(1, hooks)
        waiting = asyncio.ensure_future(_offset(delivery))
        await turns()
        hooks.wakes.collect()
        batch.succeed(0)
        hooks.wakes.resume_collected()
        assert not waiting.done()
        assert await waiting == 0

    run_tasks(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_a_task_raises_ends_as_in_a_callback_of_the_loop(
    run: Any, error: type[BaseException]
) -> None:
    seen: list[str] = []

    async def wait(delivery: Delivery) -> None:
        await delivery
        raise error

    async def note(delivery: Delivery) -> None:
        await delivery
        seen.append("another task")

    async def main() -> None:
        hooks = NoProducer()
        batch, deliveries = batch_of(2, hooks)
        waiting = asyncio.ensure_future(wait(deliveries[0]))
        other = asyncio.ensure_future(note(deliveries[1]))
        await turns()
        await read(hooks, batch, then=lambda: seen.append("the read has ended"))
        await asyncio.wait([waiting, other])
        assert isinstance(waiting.exception(), error)
        seen.append("the loop went on")

    if error is ValueError:
        run(main())
        assert seen == ["another task", "the read has ended", "the loop went on"]
    else:
        with pytest.raises(error):
            run(main())
        assert seen[0] == "the read has ended"
        assert "the loop went on" not in seen


def test_a_woken_task_can_cancel_the_others(run_tasks: Any) -> None:
    async def main() -> None:
        hooks = NoProducer()
        first, others = batch_of(2, hooks)
        second, more = batch_of(1, hooks)

        async def cancel() -> None:
            await others[0]
            for task in waiting[1:]:
                assert task.cancel()

        deliveries = [others[1], more[0]]
        waiting: list[Any] = [asyncio.ensure_future(cancel())]
        await turns()
        waiting += [asyncio.ensure_future(_offset(delivery)) for delivery in deliveries]
        await turns()
        await read(hooks, first, second, then=lambda: None)
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == [False, True, True]

    run_tasks(main())


def test_tasks_continue_for_a_slice_of_time_and_the_rest_follows_in_order(run: Any) -> None:
    async def main() -> None:
        hooks = NoProducer()
        batches = [batch_of(50, hooks) for _ in range(6)]
        order: list[int] = []

        async def wait(number: int, delivery: Delivery) -> None:
            await delivery
            order.append(number)
            until = time.monotonic() + SLICE_S / 8
            while time.monotonic() < until:
                pass

        deliveries = [delivery for _, made in batches for delivery in made]
        waiting = [asyncio.ensure_future(wait(*pair)) for pair in enumerate(deliveries)]
        await turns()
        done = [batch for batch, _ in batches]
        counts: list[int] = []
        await read(hooks, *done[:3], then=lambda: counts.append(len(order)))
        await read(hooks, *done[3:], then=lambda: None)
        await asyncio.gather(*waiting)
        assert counts[0] <= 16
        for first in range(0, 300, 50):
            of_batch = range(first, first + 50)
            assert [number for number in order if number in of_batch] == list(of_batch)

    run(main())


async def _offset(delivery: Delivery) -> int:
    return (await delivery).offset
