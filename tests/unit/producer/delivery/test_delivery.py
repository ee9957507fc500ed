"""Tests of deliveries with a shared outcome: waiting, forwarding, and retrieved failures."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from aiokclient.clock import SystemClock
from aiokclient.errors import DeliveryTimeoutError, KafkaError, WrongLoopError
from aiokclient.producer.delivery.deliveries import Deliveries, Run, gather
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch, WakeQueue
from aiokclient.types import RecordMetadata, TimestampType


class Hooks:
    """The functions of a producer that a batch calls."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.calling: dict[DeliveryBatch, None] = {}
        self.wakes = WakeQueue(self.loop)
        self.demanded: list[DeliveryBatch] = []
        self.seen = 0

    def skip_linger(self, batch: DeliveryBatch) -> None:
        self.demanded.append(batch)

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
        self.seen += count


def batch_of(count: int, hooks: Hooks | None = None, partition: int | None = 3) -> DeliveryBatch:
    batch = DeliveryBatch("t", partition, hooks or Hooks())
    batch.count = count
    return batch


async def all_of(deliveries: Any, **options: Any) -> Sequence[Any]:
    options.setdefault("return_exceptions", False)
    return await gather(deliveries, SystemClock(), **options)


async def test_a_pending_delivery_shows_no_outcome() -> None:
    delivery = Delivery(batch_of(2), 1, 111)
    assert (delivery.topic, delivery.partition, delivery.done()) == ("t", 3, False)
    for read in (
        lambda: delivery.offset,
        lambda: delivery.timestamp,
        delivery.result,
        delivery.exception,
    ):
        with pytest.raises(asyncio.InvalidStateError):
            read()
    assert "pending" in repr(delivery)


async def test_a_written_one_is_the_records_metadata() -> None:
    batch = batch_of(2)
    delivery = Delivery(batch, 1, 111)
    batch.succeed(40)
    assert await delivery == delivery.result() == RecordMetadata("t", 3, 41, 111)
    assert (delivery.offset, delivery.timestamp, delivery.exception()) == (41, 111, None)
    assert await delivery == RecordMetadata("t", 3, 41, 111), (
        "a delivery can be awaited any number of times"
    )


@pytest.mark.parametrize(("base", "appended", "then"), [(-1, -1, (-1, 111)), (7, 222, (8, 222))])
async def test_a_delivery_has_the_offset_and_time_of_the_broker(
    base: int, appended: int, then: tuple[int, int]
) -> None:
    batch = batch_of(2)
    delivery = Delivery(batch, 1, 111)
    batch.succeed(base, appended)
    assert (delivery.offset, delivery.timestamp) == then
    assert (await delivery)[2:] == then


@pytest.mark.parametrize(
    ("response", "kind", "start"),
    [
        ((7,), TimestampType.CREATE_TIME, -1),
        ((7, -1, 0), TimestampType.CREATE_TIME, 0),
        ((7, -1, 1 << 40), TimestampType.CREATE_TIME, 1 << 40),
        ((7, 222), TimestampType.LOG_APPEND_TIME, -1),
        ((7, 222, 5), TimestampType.LOG_APPEND_TIME, 5),
    ],
)
async def test_metadata_tell_the_timestamp_type_and_the_start_of_the_log(
    response: tuple[int, ...], kind: TimestampType, start: int
) -> None:
    batch = batch_of(2)
    batch.succeed(*response)
    deliveries = [Delivery(batch, 0, 111), Delivery(batch, 1, 111)]
    gathered = await gather(deliveries, SystemClock(), return_exceptions=True)
    for made in [*[delivery.result() for delivery in deliveries], *gathered]:
        assert (made.timestamp_type, made.log_start_offset) == (kind, start)
        assert len(made) == 4
        for copied in (copy.copy(made), pickle.loads(pickle.dumps(made))):
            assert copied == made
            assert (copied.timestamp_type, copied.log_start_offset) == (kind, start)


def test_metadata_that_a_program_creates_know_nothing_else() -> None:
    class Own(RecordMetadata):
        __slots__ = ()

    for kind in (RecordMetadata, Own):
        made = [kind("t", 0, at, 1) for at in range(20)]
        assert {each.timestamp_type for each in made} == {TimestampType.CREATE_TIME}
        assert {each.log_start_offset for each in made} == {-1}
        assert {type(each) for each in made} == {kind}


async def test_an_await_demands_the_batch_once() -> None:
    hooks = Hooks()
    batch = batch_of(2, hooks)
    tasks = [asyncio.ensure_future(Delivery(batch, i, 0)) for i in (0, 1, 1)]
    await asyncio.sleep(0)
    assert hooks.demanded == [batch]
    batch.succeed(5)
    assert [m.offset for m in await asyncio.gather(*tasks)] == [5, 6, 6]


async def test_cancelling_a_waiter_leaves_the_delivery_and_no_trace() -> None:
    batch = batch_of(1)
    delivery = Delivery(batch, 0, 0)
    for wait in (
        asyncio.wait_for(delivery, 0.001),
        asyncio.wait_for(asyncio.gather(delivery, delivery), 0.001),
        asyncio.wait_for(batch.wait_for_change(), 0.001),
    ):
        with pytest.raises(TimeoutError):
            await wait
    assert not batch._waiters
    assert not delivery.done()
    batch.succeed(9)
    assert (await asyncio.wait_for(delivery, 1)).offset == 9


async def test_shield_and_as_completed_accept_deliveries() -> None:
    batch = batch_of(2)
    one, two = Delivery(batch, 0, 0), Delivery(batch, 1, 0)
    shielded = asyncio.shield(one)
    asyncio.get_running_loop().call_soon(batch.succeed, 3)
    assert sorted([(await each).offset for each in asyncio.as_completed([one, two])]) == [3, 4]
    assert (await shielded).offset == 3


async def test_another_loop_cannot_wait() -> None:
    batch = batch_of(1)

    def elsewhere() -> None:
        async def wait() -> None:
            await Delivery(batch, 0, 0)

        with pytest.raises(WrongLoopError, match="send_threadsafe"):
            asyncio.run(wait())

    await asyncio.to_thread(elsewhere)


async def test_callbacks_are_called_by_the_loop() -> None:
    batch = batch_of(1)
    delivery = Delivery(batch, 0, 0)
    seen: list[Delivery] = []
    delivery.add_done_callback(seen.append)
    batch.succeed(1)
    assert seen == []
    await asyncio.sleep(0)
    delivery.add_done_callback(seen.append)
    await asyncio.sleep(0)
    assert seen == [delivery, delivery]


async def test_a_failure_is_retrieved_by_being_told() -> None:
    hooks = Hooks()
    batch = batch_of(6, hooks)
    each = [Delivery(batch, i, 0) for i in range(6)]
    error = DeliveryTimeoutError("late")
    batch.fail(error)
    assert batch.unretrieved == 6
    assert (each[0].offset, each[0].done()) == (-1, True)
    assert batch.unretrieved == 6, "reading an attribute does not retrieve the failure"
    with pytest.raises(DeliveryTimeoutError):
        await each[0]
    with pytest.raises(DeliveryTimeoutError):
        each[1].result()
    assert each[2].exception() is error
    assert each[2].exception() is error
    assert (batch.unretrieved, hooks.seen) == (3, 3)
    results = await all_of(each[2:5], return_exceptions=True)
    assert results == [error] * 3
    with pytest.raises(DeliveryTimeoutError):
        await all_of(each)
    assert (batch.unretrieved, hooks.seen) == (0, 6)


async def test_raising_again_and_again_grows_no_traceback() -> None:
    batch = batch_of(1)
    batch.fail(KafkaError("no"))
    lengths = set()
    for _ in range(3):
        try:
            await Delivery(batch, 0, 0)
        except KafkaError as error:
            trace, length = error.__traceback__, 0
            while trace is not None:
                trace, length = trace.tb_next, length + 1
            lengths.add(length)
    assert len(lengths) == 1


async def test_records_are_followed_when_they_move() -> None:
    hooks = Hooks()
    first, second, third = batch_of(4, hooks, None), batch_of(2, hooks), batch_of(9, hooks)
    handles = [Delivery(first, i, 0) for i in range(4)]
    called: list[int] = []
    for number, handle in enumerate(handles):
        handle.add_done_callback(lambda _, number=number: called.append(number))
    waiting = asyncio.ensure_future(handles[3])
    await asyncio.sleep(0)
    assert [handle.partition for handle in handles] == [None] * 4
    first.forward_records(1, second, 0)
    first.forward_records(1, second, 1)
    first.forward_records(2, third, 5)
    first.on_emptied()
    await asyncio.sleep(0)
    assert third in hooks.demanded, (
        "a waiting task continues to wait for the batch that now has the record"
    )
    assert [handle.partition for handle in handles] == [3] * 4
    second.succeed(10)
    await asyncio.sleep(0)
    assert called == [0, 1]
    third.fail(KafkaError("no"))
    with pytest.raises(KafkaError):
        await waiting
    assert [handle.offset for handle in handles] == [10, 11, -1, -1]
    await asyncio.sleep(0)
    assert called == [0, 1, 2, 3]
    assert third.unretrieved == 8


async def test_only_records_that_have_not_moved_fail() -> None:
    hooks = Hooks()
    first, second = batch_of(3, hooks, None), batch_of(1, hooks)
    first.forward_records(1, second, 0)
    first.fail(KafkaError("no"))
    second.succeed(5)
    assert first.unretrieved == 2
    results = await all_of([Delivery(first, i, 0) for i in range(3)], return_exceptions=True)
    assert results[0].offset == 5
    assert all(isinstance(result, KafkaError) for result in results[1:])
    assert first.unretrieved == 0


async def test_deliveries_of_send_many_are_a_sequence() -> None:
    one, two = batch_of(5), batch_of(3)
    deliveries = Deliveries([Run(one, 2, 3, 7), Run(two, 0, 3, 7)])
    one.succeed(10)
    two.succeed(20)
    offsets = [12, 13, 14, 20, 21, 22]
    assert len(deliveries) == 6
    assert [delivery.offset for delivery in deliveries] == offsets
    assert [deliveries[i].offset for i in range(-6, 0)] == offsets
    assert [delivery.offset for delivery in deliveries[1:5:2]] == [13, 20]
    with pytest.raises(IndexError):
        deliveries[6]
    assert [m.offset for m in await all_of(deliveries)] == offsets
    assert await all_of(list(deliveries)) == await all_of(deliveries)
    assert len(Deliveries()) == 0


async def test_gather_demands_all_before_it_waits_for_one() -> None:
    hooks = Hooks()
    batches = [batch_of(1, hooks) for _ in range(3)]
    task = asyncio.ensure_future(all_of([Delivery(batch, 0, 0) for batch in batches]))
    await asyncio.sleep(0)
    assert hooks.demanded == batches
    batches[1].fail(KafkaError("second"))
    batches[2].fail(KafkaError("third"))
    await asyncio.sleep(0)
    assert not task.done()
    batches[0].succeed(0)
    with pytest.raises(KafkaError, match="second"):
        await task
    assert hooks.seen == 2, "all failures were retrieved"


async def test_gather_yields_to_the_loop_and_can_be_cancelled() -> None:
    count = 300_000
    batch = batch_of(count)
    batch.succeed(0)
    turns = 0
    task = asyncio.ensure_future(all_of(Deliveries([Run(batch, 0, count, 0)])))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(task.result()) == count
    assert turns > 3
    pending = batch_of(1)
    waiting = asyncio.ensure_future(all_of([Delivery(pending, 0, 0)]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not pending._waiters
