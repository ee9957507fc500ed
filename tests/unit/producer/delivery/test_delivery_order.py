"""Tests of the order of callbacks and waiting tasks, and of which threads may add them."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokclient.background import SLICE_S
from aiokclient.clock import SystemClock
from aiokclient.errors import KafkaError, WrongLoopError, WrongThreadError
from aiokclient.producer.delivery.deliveries import gather
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch, WakeQueue, settled


class Hooks:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.calling: dict[DeliveryBatch, None] = {}
        self.wakes = WakeQueue(self.loop)
        self.demanded: list[DeliveryBatch] = []

    def skip_linger(self, batch: DeliveryBatch) -> None:
        self.demanded.append(batch)

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
        pass


def batch_of(count: int, hooks: Hooks | None = None) -> DeliveryBatch:
    batch = DeliveryBatch("t", 0, hooks or Hooks())
    batch.count = count
    return batch


def run_eagerly(main: Coroutine[Any, Any, Any]) -> Any:
    async def eager() -> Any:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await main

    # uvloop does not support the eager task factory on every Python version.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(eager())


RUNNERS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {"asyncio": asyncio.run}
if sys.version_info >= (3, 12):
    RUNNERS["eager"] = run_eagerly
if sys.platform != "win32":
    import uvloop

    RUNNERS["uvloop"] = uvloop.run


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return RUNNERS[request.param]


class Order:
    """A record of the order in which callbacks and waiting tasks ran."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []

    def call(self, awaited: Any, name: Any) -> None:
        """Add a callback that records its name."""
        awaited.add_done_callback(lambda _: self.seen.append(name))

    async def wait(self, awaited: Any, name: Any) -> None:
        """Start a task that awaits the object, and let it run until it waits."""

        async def wait() -> None:
            try:
                await awaited
            except KafkaError:
                pass
            self.seen.append(name)

        self.tasks.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(0)

    async def fill(self, awaited: Any) -> None:
        """Add callbacks and waiting tasks alternately."""
        for number in range(12):
            if number % 3 == 1:
                await self.wait(awaited, number)
            else:
                self.call(awaited, number)

    async def ended(self) -> list[Any]:
        await asyncio.gather(*self.tasks)
        await asyncio.sleep(0)
        return self.seen


def test_callback_that_is_added_after_an_await_runs_in_the_next_iteration(run: Any) -> None:
    """The same holds for an asyncio.Future."""

    async def main() -> None:
        batch = batch_of(2)
        future = asyncio.get_running_loop().create_future()
        for awaited in (Delivery(batch, 0, 5), Delivery(batch, 1, 5), future):
            order = Order()

            async def await_and_call(awaited: Any = awaited, order: Order = order) -> None:
                await awaited
                order.call(awaited, "added")
                await asyncio.sleep(0)
                order.seen.append("next iteration")

            task = asyncio.ensure_future(await_and_call())
            await asyncio.sleep(0)
            batch.succeed(0) if awaited is not future else future.set_result(None)
            await task
            assert order.seen == ["added", "next iteration"]

    run(main())


def test_callbacks_and_waiters_run_in_the_order_of_their_adding(run: Any) -> None:
    async def main() -> None:
        for end in ("succeed", "fail", "future"):
            order = Order()
            batch = batch_of(1)
            future = asyncio.get_running_loop().create_future()
            await order.fill(future if end == "future" else Delivery(batch, 0, 5))
            if end == "future":
                future.set_result(None)
            elif end == "succeed":
                batch.succeed(7)
            else:
                batch.fail(KafkaError("no"))
            assert order.seen == []
            assert await order.ended() == list(range(12)), end

    run(main())


def test_a_callback_that_is_added_when_it_is_done_runs_after_earlier_ones(run: Any) -> None:
    async def main() -> None:
        order = Order()
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 5)
        order.call(delivery, "first")
        await order.wait(delivery, "second")
        batch.succeed(7)
        order.call(delivery, "third")
        assert order.seen == []
        await order.wait(delivery, "fourth")
        assert await order.ended() == ["first", "second", "third", "fourth"]

    run(main())


def test_an_await_of_a_done_delivery_returns_after_the_callbacks_added_before(run: Any) -> None:
    async def main() -> None:
        seen: list[Any] = []
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 5)
        batch.succeed(7)
        assert (await delivery).offset == 7
        for wait in (
            lambda: delivery,
            lambda: settled(batch),
            lambda: gather([delivery], SystemClock(), return_exceptions=False),
        ):
            delivery.add_done_callback(seen.append)
            await wait()
            assert seen == [delivery], wait
            seen.clear()

    run(main())


def test_a_task_that_one_batch_wakes_sees_the_callbacks_of_the_next(run: Any) -> None:
    async def main() -> None:
        order = Order()
        hooks = Hooks()
        batches = [batch_of(1, hooks) for _ in range(3)]
        deliveries = [Delivery(batch, 0, 5) for batch in batches]
        for number, delivery in enumerate(deliveries):
            order.call(delivery, number)

        async def one_by_one() -> None:
            for delivery in deliveries:
                await delivery
            order.seen.append("awaited")

        order.tasks.append(asyncio.ensure_future(one_by_one()))
        await asyncio.sleep(0)
        for batch in batches:
            batch.succeed(7)
        assert len(hooks.calling) == 3
        assert await order.ended() == [0, 1, 2, "awaited"]
        assert not hooks.calling

    run(main())


def test_order_is_kept_when_records_move_or_leave_the_overflow_queue(run: Any) -> None:
    async def main() -> None:
        order = Order()
        hooks = Hooks()
        first, second = batch_of(2, hooks), batch_of(2, hooks)
        await order.fill(Delivery(first, 1, 5))
        first.notify_change()  # The same happens when a record leaves the overflow queue.
        await asyncio.sleep(0)
        first.forward_records(2, second, 0)
        first.on_emptied()
        await asyncio.sleep(0)
        assert order.seen == []
        assert second in hooks.demanded
        second.succeed(7)
        assert await order.ended() == list(range(12))
        assert not hooks.calling

    run(main())


def test_records_that_move_to_a_batch_that_is_done_wake_in_order(run: Any) -> None:
    async def main() -> None:
        order = Order()
        hooks = Hooks()
        first, second = batch_of(2, hooks), batch_of(2, hooks)
        await order.fill(Delivery(first, 1, 5))
        second.fail(KafkaError("no"))
        first.forward_records(2, second, 0)
        first.on_emptied()
        assert await order.ended() == list(range(12))

    run(main())


def test_callbacks_that_take_long_keep_their_order(run: Any) -> None:
    """The event loop runs between the callbacks.

    An await that starts between two callbacks still ends after all of them.
    """

    async def main() -> None:
        order = Order()
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 5)

        def slow(_: Delivery) -> None:
            time.sleep(SLICE_S / 4)
            order.seen.append("slow")

        for _ in range(40):
            delivery.add_done_callback(slow)
        batch.succeed(7)
        await asyncio.sleep(0)
        await delivery
        assert order.seen == ["slow"] * 40

    run(main())


def test_a_callback_that_raises_stops_no_other(run: Any) -> None:
    async def main() -> None:
        reported: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        hooks = Hooks()
        batch = batch_of(1, hooks)
        delivery = Delivery(batch, 0, 5)
        order = Order()
        error = ValueError("mine")

        def fail(_: Delivery) -> None:
            raise error

        delivery.add_done_callback(fail)
        order.call(delivery, "next")
        batch.succeed(7)
        await delivery
        assert (order.seen, reported) == (["next"], [error])
        await asyncio.sleep(0)
        assert not hooks.calling

    run(main())


def test_a_callback_that_adds_itself_again_delays_no_await_forever(run: Any) -> None:
    async def main() -> None:
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 5)
        stop = False

        def again(_: Delivery) -> None:
            if not stop:
                delivery.add_done_callback(again)

        again(delivery)
        batch.succeed(7)
        for wait in (
            lambda: delivery,
            lambda: settled(batch),
            lambda: gather([delivery] * 3, SystemClock(), return_exceptions=False),
        ):
            await asyncio.wait_for(wait(), 30)
        stop = True

    run(main())


def test_callbacks_run_in_the_context_given_or_that_of_their_adding(run: Any) -> None:
    async def main() -> None:
        mine = contextvars.ContextVar("mine", default=0)
        seen: list[int] = []
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 5)
        given = contextvars.copy_context()
        given.run(mine.set, 1)
        delivery.add_done_callback(lambda _: seen.append(mine.get()), context=given)
        mine.set(2)
        delivery.add_done_callback(lambda _: seen.append(mine.get()))
        mine.set(3)
        batch.succeed(7)
        await delivery
        assert seen == [1, 2]

    run(main())


def test_remove_done_callback_removes_what_a_delivery_has_and_says_how_often(run: Any) -> None:
    async def main() -> None:
        seen: list[str] = []
        batch = batch_of(2)
        one, other = Delivery(batch, 0, 5), Delivery(batch, 1, 5)

        def first(_: Delivery) -> None:
            seen.append("first")

        def second(_: Delivery) -> None:
            seen.append("second")

        assert one.remove_done_callback(first) == 0
        for callback in (first, second, first):
            one.add_done_callback(callback)
        other.add_done_callback(first)
        assert Delivery(batch, 0, 5).remove_done_callback(first) == 2
        assert one.remove_done_callback(first) == 0
        batch.succeed(7)
        assert one.remove_done_callback(second) == 0
        await one
        assert seen == ["second", "first"]

    run(main())


def test_remove_done_callback_follows_a_record_that_moved(run: Any) -> None:
    async def main() -> None:
        seen: list[Any] = []
        hooks = Hooks()
        first, second = batch_of(2, hooks), batch_of(2, hooks)
        one, other = Delivery(first, 0, 5), Delivery(first, 1, 5)
        one.add_done_callback(seen.append)
        other.add_done_callback(seen.append)
        first.forward_records(2, second, 0)
        first.on_emptied()
        assert one.remove_done_callback(seen.append) == 1
        second.succeed(7)
        await one
        assert seen == [other]

    run(main())


@pytest.mark.parametrize(
    "return_when",
    [asyncio.ALL_COMPLETED, asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION],
)
def test_asyncio_wait_works_on_deliveries(run: Any, return_when: str) -> None:
    async def main() -> None:
        hooks = Hooks()
        batches = [batch_of(2, hooks) for _ in range(2)]
        one, other = (Delivery(batch, 0, 5) for batch in batches)
        done, pending = await asyncio.wait([one, other], timeout=0, return_when=return_when)
        assert (done, pending) == (set(), {one, other})
        assert not batches[0]._waiters
        assert batches[0].drop_callback(0, print) == 0
        loop = asyncio.get_running_loop()
        loop.call_soon(batches[0].fail, KafkaError("no"))
        if return_when == asyncio.ALL_COMPLETED:
            loop.call_soon(batches[1].succeed, 7)
        done, pending = await asyncio.wait([one, other], return_when=return_when)
        assert one in done
        assert (other in done) is (return_when == asyncio.ALL_COMPLETED)
        assert not one.cancelled()
        if return_when != asyncio.ALL_COMPLETED:
            batches[1].succeed(7)
        await other
        await asyncio.sleep(0)
        assert not hooks.calling

    run(main())


def test_another_loop_or_thread_is_refused_before_anything_is_demanded(run: Any) -> None:
    async def main() -> None:
        hooks = Hooks()
        batch = batch_of(1, hooks)
        delivery = Delivery(batch, 0, 5)

        async def wait() -> None:
            await delivery

        async def add() -> None:
            delivery.add_done_callback(print)

        def elsewhere() -> None:
            for use in (wait, add):
                with pytest.raises(WrongLoopError, match="send_threadsafe"):
                    asyncio.run(use())
            with pytest.raises(WrongThreadError, match="send_threadsafe"):
                delivery.add_done_callback(print)

        await asyncio.to_thread(elsewhere)
        assert hooks.demanded == []
        assert batch.drop_callback(0, print) == 0
        batch.succeed(7)
        await asyncio.to_thread(elsewhere_done, delivery)

    def elsewhere_done(delivery: Delivery) -> None:
        """Any thread can read the outcome. Only the thread of the event loop may add callbacks."""

        async def wait() -> int:
            return (await delivery).offset

        assert asyncio.run(wait()) == delivery.result().offset == 7
        with pytest.raises(WrongThreadError):
            delivery.add_done_callback(print)

    run(main())


def test_a_callback_may_be_added_between_runs_of_its_loop() -> None:
    async def make() -> DeliveryBatch:
        return batch_of(1)

    seen: list[Any] = []
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        batch = runner.run(make())
        delivery = Delivery(batch, 0, 5)

        async def add() -> None:
            delivery.add_done_callback(seen.append)

        async def succeed() -> None:
            batch.succeed(7)
            await delivery

        delivery.add_done_callback(seen.append)
        with pytest.raises(WrongLoopError):
            other.run(add())
        runner.run(succeed())
        assert seen == [delivery]
