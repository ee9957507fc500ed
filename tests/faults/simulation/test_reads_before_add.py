"""`tx.add(consumer)` after a read in the transaction, for every way of reading.

In virtual time, all calls of a test that do not wait happen at the same moment. So these tests show
that the order of reads and transactions does not depend on the clock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from group_world import fill, member
from world import World, simulate

from aiokclient import Consumer, Producer, TopicPartition, transform
from aiokclient.errors import IllegalStateError
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
OWN = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
TOPICS = {"t": 1, "out": 1}
RECORDS = 20

Reads = Callable[[Consumer[Any, Any]], Coroutine[Any, Any, Any]]

READS: dict[str, Reads] = {
    "poll": lambda consumer: consumer.poll(max_records=2),
    "empty poll": lambda consumer: consumer.poll(timeout=0),
    "get": lambda consumer: consumer.get(),
    "async for": lambda consumer: anext(aiter(consumer)),
    "until_end": lambda consumer: anext(consumer.until_end()),
    "batches": lambda consumer: anext(consumer.batches(max_records=2)),
    "batches until_end": lambda consumer: anext(consumer.batches(max_records=2, until_end=True)),
    "arrow_batches": lambda consumer: anext(consumer.arrow_batches(max_bytes=20)),
    "tracked": lambda consumer: anext(consumer.tracked()),
}
ITERATIONS: dict[str, Callable[[Consumer[Any, Any]], AsyncIterator[Any]]] = {
    "async for": aiter,
    "until_end": lambda consumer: consumer.until_end(),
    "batches": lambda consumer: consumer.batches(max_records=2),
    "tracked": lambda consumer: consumer.tracked(),
}


@asynccontextmanager
async def clients(world: World) -> AsyncIterator[tuple[Consumer[Any, Any], Producer[Any, Any]]]:
    fill(world, RECORDS)
    async with (
        member(world, **OWN) as consumer,
        world.producer(transactional_id="tx") as producer,
    ):
        yield consumer, producer


async def rest(consumer: Consumer[Any, Any]) -> list[int]:
    """Return the offsets of all records from the position on."""
    found: list[int] = []
    while records := await consumer.poll(timeout=1):
        found += [record.offset for record in records]
    return found


@pytest.mark.parametrize("way", READS)
def test_add_after_a_read_in_the_transaction_raises(way: str) -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            async with producer.transaction() as tx:
                await READS[way](consumer)
                with pytest.raises(IllegalStateError, match="before the first read"):
                    tx.add(consumer)
            assert world.cluster.committed("g") == {}

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("way", READS)
def test_records_read_directly_before_the_begin_belong_to_the_transaction(way: str) -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            await READS[way](consumer)
            delivered = consumer.consumed()
            async with producer.transaction() as tx:
                tx.add(consumer)
            assert world.cluster.committed("g").get(T0) == delivered.get(T0)

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("way", READS)
def test_an_abort_takes_back_what_was_read_after_add(way: str) -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):

            async def fail() -> None:
                async with producer.transaction() as tx:
                    tx.add(consumer)
                    await READS[way](consumer)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert await rest(consumer) == list(range(RECORDS))

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("way", ITERATIONS)
def test_add_after_an_earlier_iteration_went_on_in_the_transaction_raises(way: str) -> None:
    """An iteration takes records for some milliseconds without a call of the reader."""

    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            iteration = ITERATIONS[way](consumer)
            await anext(iteration)
            async with producer.transaction() as tx:
                await anext(iteration)
                with pytest.raises(IllegalStateError, match="before the first read"):
                    tx.add(consumer)

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("way", ITERATIONS)
def test_an_earlier_iteration_that_did_not_go_on_can_be_added(way: str) -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            iteration = ITERATIONS[way](consumer)
            for _ in range(3):
                await anext(iteration)
            async with producer.transaction() as tx:
                tx.add(consumer)
            for _ in range(2):
                async with producer.transaction() as tx:
                    tx.add(consumer)
                    await anext(iteration)

    simulate(scenario, topics=TOPICS)


def test_a_request_that_ends_after_the_begin_counts_as_a_read() -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            await rest(consumer)
            waiting = asyncio.create_task(consumer.get(timeout=60))
            await asyncio.sleep(1)
            async with producer.transaction() as tx:
                tx.add(consumer)  # It still waits.
            async with producer.transaction() as tx:
                world.cluster.produce("t", [b"more"], 0)
                await waiting
                with pytest.raises(IllegalStateError, match="before the first read"):
                    tx.add(consumer)

    simulate(scenario, topics=TOPICS)


def test_reads_of_another_consumer_or_in_another_transaction_do_not_count() -> None:
    async def scenario(world: World) -> None:
        async with (
            clients(world) as (consumer, producer),
            world.consumer("t", auto_offset_reset="earliest") as other,
            world.producer(transactional_id="other") as second,
        ):
            async with producer.transaction() as tx:
                await other.poll()
                tx.add(consumer)
                await consumer.poll(max_records=2)
            async with second.transaction() as later:
                later.add(consumer)
            async with second.transaction() as later:
                await consumer.poll(max_records=2)
                with pytest.raises(IllegalStateError, match="before the first read"):
                    later.add(consumer)

    simulate(scenario, topics=TOPICS)


def test_a_begin_that_waits_ends_before_the_reads_count() -> None:
    """A read while the begin waits for the previous abort is one before the transaction."""

    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            await producer.begin_transaction()
            await producer.send("out", b"v")
            with world.cluster.delay(ApiKey.END_TXN, 20):
                await producer.abort_transaction(timeout=1)  # It continues in the background.
            beginning = asyncio.create_task(producer.begin_transaction())
            await asyncio.sleep(1)
            assert not beginning.done()
            assert len(await consumer.poll(max_records=2)) == 2
            await beginning
            assert producer.last_transaction is not None
            producer.last_transaction.add(consumer)
            await producer.commit_transaction()
            assert world.cluster.committed("g")[T0].offset == 2

    simulate(scenario, topics=TOPICS)


def test_transform_still_adds_its_consumer() -> None:
    async def scenario(world: World) -> None:
        async with clients(world) as (consumer, producer):
            seen: list[int] = []
            async with transform(consumer, producer, max_records=6) as stream:
                async for batch in stream:
                    for record in batch:
                        batch.send("out", record.value)
                        seen.append(record.offset)
                    if len(seen) >= RECORDS:
                        consumer.stop()
            assert seen == list(range(RECORDS))
            assert world.cluster.committed("g")[T0].offset == RECORDS

    simulate(scenario, topics=TOPICS)
