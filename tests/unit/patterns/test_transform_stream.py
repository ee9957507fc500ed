"""`transform` in a simulation: cancellation, repeated errors, and commits without a response."""

import asyncio
import sys
from typing import Any

import pytest
from interrupt import interrupt
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, Producer, TopicPartition, transform
from aiokclient.errors import (
    AbortableError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
)
from aiokclient.patterns import TransformStream
from aiokclient.protocol import ApiKey

COUNT = 12
TOPICS = {"in": 1, "out": 1}
IN = TopicPartition("in", 0)


class Work:
    """A consumer and a producer, and a program that transforms all records."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.options = options
        world.cluster.produce("in", [b"%d" % number for number in range(COUNT)])
        self.consumer = self.new_consumer()
        self.producer: Producer[Any, Any] = world.producer(transactional_id="t", **options)

    def new_consumer(self) -> Consumer[Any, Any]:
        return self.world.consumer("in", group_id="g", enable_auto_commit=False)

    async def __aenter__(self) -> "Work":
        await self.consumer.start()
        await self.producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.consumer.close()
        await self.producer.close()

    async def run(self) -> None:
        """Transform the records until all are committed."""
        async with transform(self.consumer, self.producer, max_records=4) as stream:
            async for batch in stream:
                for record in batch:
                    batch.send("out", record.value)
                if batch.records[-1].offset == COUNT - 1:
                    self.consumer.stop()

    async def finish(self) -> None:
        """Transform the records that are not committed, if there are any."""
        stored = self.world.cluster.committed("g").get(IN)
        if stored is not None and stored.offset == COUNT:
            return
        await self.run()

    async def results(self) -> list[int]:
        async with self.world.consumer("out", isolation_level="read_committed") as consumer:
            return [int(record.value) async for record in consumer.until_end()]


async def once(world: World, how: dict[str, Any], faulty: bool) -> Any:
    async with Work(world) as work:
        if faulty:
            world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError, times=1).__enter__()
            world.cluster.fail(ApiKey.END_TXN, ProducerFencedError, times=1).__enter__()
        done = await interrupt(work.run(), **how)
        assert done.error is None
        if done.cancelled:
            # The producer is still usable, and a new consumer reads the uncommitted records.
            await work.consumer.close()
            work.consumer = work.new_consumer()
            await work.consumer.start()
            await work.finish()
        assert await work.results() == list(range(COUNT))
    return done


@pytest.mark.fault(35)
@pytest.mark.parametrize("faulty", [False, True], ids=["no errors", "errors"])
@pytest.mark.parametrize(
    ("level", "way"),
    one_in(3, [(0, "asyncio"), (0, "anyio"), (2, "asyncio"), (2, "anyio")]),
)
def test_transform_can_be_cancelled_at_every_suspension(level: int, way: str, faulty: bool) -> None:
    for n in one_in(2, range(1, 500), faulty):
        how = {"way": way, "suspension": n}
        done = simulate(
            lambda w, how=how: once(w, how, faulty),  # type: ignore[misc]
            topics=TOPICS,
            transaction_version=level,
        )
        if not done.cancelled and done.suspensions < n:
            break
    assert n > (10 if faulty else 5)
    sys.stdout.write(f"transform, {way}: {n - 1} suspensions\n")


def test_after_a_cancelled_request_the_same_stream_continues() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, 4) as stream:
            found: list[int] = []
            with world.cluster.delay(ApiKey.END_TXN, 1.0):
                while len(found) < COUNT:
                    try:
                        async with asyncio.timeout(0.3):
                            batch = await anext(stream)
                    except TimeoutError:
                        continue
                    for record in batch:
                        batch.send("out", record.value)
                        found.append(record.offset)
                work.consumer.stop()
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
            assert found == list(range(COUNT))
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


def test_while_errors_repeat_the_attempts_become_rare() -> None:
    async def scenario(world: World) -> None:
        async with Work(world, retry_backoff_ms=100, retry_backoff_max_ms=1000) as work:
            with world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError):
                running = asyncio.create_task(work.run())
                await asyncio.sleep(60)
                attempts = len(world.requests(ApiKey.PRODUCE))
                assert 30 < attempts < 100
            await running
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


def test_stop_ends_the_loop_while_errors_repeat() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            fault = world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError)
            with fault:
                running = asyncio.create_task(work.run())
                await asyncio.sleep(10)
                work.consumer.stop()
                began = world.now
                await asyncio.wait([running])
                assert world.now - began < 5
                assert running.exception() is None
            assert await work.results() == []
            assert world.cluster.committed("g") == {}

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fenced", [False, True], ids=["not fenced", "fenced"])
@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_with_an_unknown_outcome_is_neither_lost_nor_repeated(
    level: int, when: Any, fenced: bool
) -> None:
    async def scenario(world: World) -> None:
        async with Work(world, default_api_timeout_ms=5_000, request_timeout_ms=1_000) as work:
            with world.cluster.drop(ApiKey.END_TXN, when=when):
                running = asyncio.create_task(work.run())
                await asyncio.sleep(8)
                if fenced:
                    other = world.producer(transactional_id="t")
                    await other.start()
                    await other.close()
            await running
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS, transaction_version=level)


def test_leaving_by_break_aborts_the_transaction_and_reads_the_batch_again() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            async with transform(work.consumer, work.producer, max_records=4) as stream:
                async for batch in stream:
                    await batch.send("out", b"-1")
                    break
            assert await work.consumer.position(IN) == 0
            await work.run()
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


async def send_and_wait(stream: TransformStream[Any, Any]) -> None:
    async with stream:
        async for batch in stream:
            await batch.send("out", b"-1")


def test_the_error_of_a_delivery_does_not_leave_the_loop_unless_it_is_awaited() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            with world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError, times=1):
                stream = transform(work.consumer, work.producer, max_records=4)
                with pytest.raises(AbortableError):
                    await send_and_wait(stream)
            await work.run()
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


def test_records_are_delivered_again_when_their_transaction_could_not_begin() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, COUNT) as stream:
            batch = await anext(stream)
            for record in batch:
                batch.send("out", record.value)
            following = asyncio.create_task(anext(stream))
            await world.cluster.until(lambda: IN in world.cluster.committed("g"), 10)
            await asyncio.sleep(1)
            assert not following.done()
            # A transaction of another task: the one of the next batch cannot begin.
            await work.producer.begin_transaction()
            world.cluster.produce("in", [b"%d" % COUNT])
            with pytest.raises(IllegalStateError):
                await following
            await work.producer.commit_transaction()
            batch = await anext(stream)
            assert [record.offset for record in batch] == [COUNT]
            batch.send("out", b"%d" % COUNT)
            work.consumer.stop()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert await work.results() == list(range(COUNT + 1))

    simulate(scenario, topics=TOPICS)


def test_batches_have_up_to_500_records_by_default_and_max_records_otherwise() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            world.cluster.produce("in", [b"%d" % n for n in range(COUNT, 600)])
            async with transform(work.consumer, work.producer, max_wait=1.0) as stream:
                batch = await anext(stream)
                assert len(batch) == len(batch.records) == len(list(batch)) == 500
                batch = await anext(stream)
                assert [record.offset for record in batch] == list(range(500, 600))
                assert repr(batch) == "<TransformBatch of 100 records>"
        async with Work(world) as work, transform(work.consumer, work.producer, 1) as stream:
            assert [len(await anext(stream)) for _ in range(3)] == [1, 1, 1]

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize(("max_wait", "least_s", "most_s"), [(None, 0.0, 0.5), (2.0, 2.0, 2.5)])
def test_a_batch_is_delivered_at_once_or_max_wait_after_its_first_record(
    max_wait: float | None, least_s: float, most_s: float
) -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            waits = {} if max_wait is None else {"max_wait": max_wait}
            async with transform(work.consumer, work.producer, **waits) as stream:
                await world.cluster.until(lambda: bool(work.consumer.assignment()), 30)
                began = world.now
                batch = await anext(stream)
                assert least_s - 0.001 <= world.now - began <= most_s
                assert len(batch) == COUNT

    simulate(scenario, topics=TOPICS)


def test_arguments_of_a_wrong_kind_are_refused() -> None:
    async def scenario(world: World) -> None:
        work = Work(world)
        consumer, producer = work.consumer, work.producer
        wrong: Any = producer
        with pytest.raises(TypeError, match="takes a Consumer here, not Producer"):
            transform(wrong, producer)
        wrong = consumer
        with pytest.raises(TypeError, match="takes a Producer here, not Consumer"):
            transform(consumer, wrong)
        for count in (0, -1):
            with pytest.raises(IllegalStateError, match="max_records"):
                transform(consumer, producer, max_records=count)
        wrong = "1"
        with pytest.raises(TypeError, match="max_records"):
            transform(consumer, producer, max_records=wrong)
        with pytest.raises(TypeError, match="max_wait"):
            transform(consumer, producer, max_wait=wrong)
        with pytest.raises(IllegalStateError, match=r"at least 0 seconds, not -0\.5"):
            transform(consumer, producer, max_wait=-0.5)
        transform(consumer, producer, max_records=1, max_wait=0)

    simulate(scenario, topics=TOPICS)


def test_entering_needs_a_transactional_id_and_a_group_that_does_not_commit() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            async with world.producer() as producer:
                with pytest.raises(IllegalStateError, match="transactional_id"):
                    await transform(work.consumer, producer).__aenter__()
            for options in ({}, {"group_id": "g", "enable_auto_commit": True}):
                async with world.consumer("in", **options) as consumer:
                    with pytest.raises(IllegalStateError):
                        await transform(consumer, work.producer).__aenter__()

    simulate(scenario, topics=TOPICS)


def test_a_stream_must_be_entered_and_ends_when_it_is_left() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work:
            stream = transform(work.consumer, work.producer)
            with pytest.raises(IllegalStateError, match="Enter the stream first"):
                await anext(stream)
            with pytest.raises(IllegalStateError, match="Enter the stream first"):
                await anext(aiter(stream))
            async with stream:
                loop = aiter(stream)
                await anext(loop)
            for left in (loop, stream):
                with pytest.raises(IllegalStateError, match="Enter the stream first"):
                    await anext(left)
            async with stream:
                assert len(await anext(stream)) == COUNT, "the batch was not committed"

    simulate(scenario, topics=TOPICS)


def test_a_send_after_the_next_batch_was_requested_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, 4) as stream:
            batch = await anext(stream)
            batch.send("out", b"0")
            await anext(stream)
            with pytest.raises(IllegalStateError, match="send"):
                batch.send("out", b"late")

    simulate(scenario, topics=TOPICS)


def test_all_arguments_of_a_send_reach_the_record() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, 4) as stream:
            batch = await anext(stream)
            await batch.send("out", b"v", b"k", 0, 1234, [("h", b"x")])
            work.consumer.stop()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            [record] = world.cluster.records("out", 0)
            assert (record.value, record.key, record.timestamp) == (b"v", b"k", 1234)
            assert list(record.headers) == [("h", b"x")]

    simulate(scenario, topics=TOPICS)


def test_a_send_after_an_error_fails_its_delivery_and_the_batch_comes_again() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, COUNT) as stream:
            batch = await anext(stream)
            failing = world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError, times=1)
            with failing, pytest.raises(AbortableError):
                await batch.send("out", b"-1")
            delivery = batch.send("out", b"-2", partition=0)
            with pytest.raises(AbortableError):
                await delivery
            again = await anext(stream)
            assert [record.offset for record in again] == list(range(COUNT))
            for record in again:
                again.send("out", record.value)
            work.consumer.stop()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert await work.results() == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


def test_errors_that_no_abort_corrects_are_raised_once() -> None:
    async def scenario(world: World) -> None:
        async with Work(world) as work, transform(work.consumer, work.producer, COUNT) as stream:
            batch = await anext(stream)
            batch.send("out", b"-1")
            refused = TransactionalIdAuthorizationError
            failing = world.cluster.fail(ApiKey.END_TXN, refused, times=1)
            with failing, pytest.raises(refused):
                await anext(stream)
        async with Work(world) as work:
            await work.run()
            assert sorted(set(await work.results())) == list(range(COUNT))

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("error", [TransactionAbortableError, ProducerFencedError])
def test_a_success_ends_the_growth_of_the_delays(error: Any) -> None:
    async def scenario(world: World) -> None:
        work = Work(world, retry_backoff_ms=100, retry_backoff_max_ms=60_000)
        async with work, transform(work.consumer, work.producer, max_records=1) as stream:
            batch = await anext(stream)
            for _ in range(6):
                # Each error is followed by a success: the delays stay short.
                with world.cluster.fail(ApiKey.END_TXN, error, times=1):
                    batch.send("out", batch.records[0].value)
                    began = world.now
                    batch = await anext(stream)
                assert world.now - began < 1.5
                batch.send("out", batch.records[0].value)
                batch = await anext(stream)

    simulate(scenario, topics=TOPICS)
