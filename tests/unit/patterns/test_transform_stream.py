"""`transform` in a simulation: cancellation, repeated errors, and commits without a response."""

import asyncio
import sys
from typing import Any

import pytest
from interrupt import interrupt
from world import World, simulate

from aiokclient import Consumer, Producer, TopicPartition, transform
from aiokclient.errors import (
    AbortableError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortableError,
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
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("level", [0, 2])
def test_transform_can_be_cancelled_at_every_suspension(level: int, way: str, faulty: bool) -> None:
    for n in range(1, 500):
        how = {"way": way, "suspension": n}
        done = simulate(
            lambda w, how=how: once(w, how, faulty),  # type: ignore[misc]
            topics=TOPICS,
            transaction_version=level,
        )
        if not done.cancelled and done.suspensions < n:
            break
    assert n > (10 if faulty else 5)
    sys.stdout.write(f"transform, {way}: cancelled at {n - 1} suspensions\n")


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
