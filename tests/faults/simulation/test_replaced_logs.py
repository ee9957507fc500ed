"""Iterations to the end, and other uses of end offsets, while the logs of partitions change.

A partition gets a new log if the cluster is replaced, or if its topic is deleted and created again.
A log may also lose records. The end offset of the former log is not valid in the new one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ApplicationRecoverableError
from aiokclient.protocol import ApiKey

T = TopicPartition("t", 0)
OLD, READ = 40, 5
"""The number of records in the former log, and how many of them are read before it is replaced."""

Records = Callable[[Consumer[Any, Any]], AsyncIterator[Any]]


async def one_by_one(consumer: Consumer[Any, Any]) -> AsyncIterator[Any]:
    async for record in consumer.until_end():
        yield record


async def in_lists(consumer: Consumer[Any, Any]) -> AsyncIterator[Any]:
    async for records in consumer.batches(READ, until_end=True):
        for record in records:
            yield record


WAYS: dict[str, Records] = {"async for": one_by_one, "batches": in_lists}
KINDS: dict[str, dict[str, Any]] = {
    "by assignment": {},
    "classic": {"group_id": "g"},
    "KIP-848": {"group_id": "g", "group_protocol": "consumer"},
}
Change = Callable[[World, int], None]


def other_cluster(world: World, records: int) -> None:
    world.cluster.wipe({"t": 1})
    world.cluster.produce("t", [b"new"] * records)


def other_topic(world: World, records: int) -> None:
    world.cluster.delete_topic("t")
    world.cluster.create_topic("t", 1)
    world.cluster.produce("t", [b"new"] * records)


CHANGES: dict[str, Change] = {"another cluster": other_cluster, "another topic": other_topic}

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


async def open_consumer(world: World, options: dict[str, Any]) -> Consumer[Any, Any]:
    """Return a started consumer that reads all records of the topic."""
    for _ in range(OLD):
        world.cluster.produce("t", [b"old"])
    consumer = world.consumer(*(["t"] if options else []), **options, metadata_max_age_ms=1_000)
    await consumer.start()
    if not options:
        consumer.assign([T])
    return consumer


async def notice(consumer: Consumer[Any, Any]) -> None:
    """Let the consumer request metadata twice, because the first response may be outdated."""
    for _ in range(2):
        await consumer._cluster.updater.refresh(["t"], timeout=30, at_once=True)


@pytest.mark.fault(24)
@pytest.mark.parametrize("records", [3, 3 * OLD])
@every_way
@every_kind
@every_change
def test_iteration_ends_at_the_end_of_the_present_log(
    change: Change, options: dict[str, Any], way: Records, records: int
) -> None:
    async def scenario(world: World) -> None:
        consumer = await open_consumer(world, options)
        found: list[Any] = []
        async with asyncio.timeout(120):
            async for record in way(consumer):
                found.append(record)
                if len(found) == READ:
                    change(world, records)
                    await notice(consumer)
        # A recreated topic is read from its first record. In another cluster, `auto_offset_reset`
        # applies.
        assert [bytes(each.value) for each in found] == [b"old"] * READ + [b"new"] * records
        assert [each.offset for each in found[READ:]] == list(range(records))
        # The next iteration begins where this one has ended.
        world.cluster.produce("t", [b"last"])
        async with asyncio.timeout(120):
            assert [bytes(each.value) async for each in way(consumer)] == [b"last"]
        await consumer.close()

    simulate(scenario, brokers=3, replication=3)


@every_way
@every_change
def test_iteration_at_its_end_continues_when_the_log_is_replaced_before_the_next_request(
    change: Change, way: Records
) -> None:
    async def scenario(world: World) -> None:
        consumer = await open_consumer(world, {})
        found: list[Any] = []
        async with asyncio.timeout(120):
            async for record in way(consumer):
                found.append(record)
                if len(found) == OLD:
                    change(world, 3)
                    await notice(consumer)
        assert [bytes(each.value) for each in found] == [b"old"] * OLD + [b"new"] * 3
        await consumer.close()

    simulate(scenario, brokers=3, replication=3)


@every_way
def test_iteration_uses_no_end_offset_that_was_looked_up_in_another_cluster(way: Records) -> None:
    """The cluster changes while the end offsets are being looked up."""

    async def scenario(world: World) -> None:
        consumer = await open_consumer(world, {})
        await consumer.position(T)
        with world.cluster.delay(ApiKey.LIST_OFFSETS, 1.0, when="after", times=1):

            async def read() -> list[bytes]:
                return [bytes(each.value) async for each in way(consumer)]

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.5)
            other_cluster(world, 3)
            async with asyncio.timeout(120):
                assert await reading == [b"new"] * 3
        await consumer.close()

    simulate(scenario, brokers=3, replication=3)


@every_way
def test_iteration_ends_when_its_log_has_lost_records(way: Records) -> None:
    """After an unclean election, the log ends below the position of the iteration."""

    async def scenario(world: World) -> None:
        consumer = await open_consumer(world, {})
        found: list[Any] = []
        async with asyncio.timeout(120):
            async for record in way(consumer):
                found.append(record)
                if len(found) == 2 * READ:
                    world.cluster.truncate("t", to=READ)
                    await notice(consumer)
        assert [each.offset for each in found] == list(range(2 * READ))
        assert await consumer.position(T) == READ
        await consumer.close()

    simulate(scenario, brokers=3, replication=3)


def test_end_offsets_of_one_call_are_those_of_one_cluster() -> None:
    """The response of one leader is lost with its cluster, after another leader has responded."""

    async def scenario(world: World) -> None:
        leaders = {partition: world.cluster.leader("t", partition) for partition in range(3)}
        assert len(set(leaders.values())) == 3
        for partition in range(3):
            world.cluster.produce("t", [b"old"] * OLD, partition)
        tps = [TopicPartition("t", partition) for partition in range(3)]
        async with world.consumer() as consumer:
            consumer.assign(tps)
            for tp in tps:
                await consumer.position(tp)
            with world.cluster.drop(ApiKey.LIST_OFFSETS, broker=leaders[2]):
                asking = asyncio.create_task(consumer.end_offsets(tps, timeout=60))
                await asyncio.sleep(5)
                assert not asking.done()
            world.cluster.wipe({"t": 3})
            assert await asking == dict.fromkeys(tps, 0)

    simulate(scenario, brokers=3, topics={"t": 3}, replication=3)


@every_change
def test_highwater_of_the_former_log_is_forgotten(change: Change) -> None:
    async def scenario(world: World) -> None:
        consumer = await open_consumer(world, {})
        async with asyncio.timeout(120):
            async for _ in consumer.until_end():
                pass
            assert consumer.highwater(T) == OLD
            change(world, 3)
            with world.cluster.delay(ApiKey.FETCH, 5.0):
                await notice(consumer)
                assert consumer.highwater(T) is None
            assert await consumer.lag() == {T: 3}
        await consumer.close()

    simulate(scenario, brokers=3, replication=3)


class BodyError(Exception):
    """An error of the application in a transaction."""


@pytest.mark.fault(24)
@pytest.mark.parametrize("subscribed", [False, True])
@every_change
def test_aborted_transaction_returns_its_consumer_to_no_offset_of_the_former_log(
    change: Change, subscribed: bool
) -> None:
    """The consumer was at an offset when the transaction began, and nothing is committed."""

    async def scenario(world: World) -> None:
        async def interrupted(transaction: Any, producer: Any, consumer: Any) -> None:
            async with transaction:
                transaction.add(consumer)
                assert await consumer.get(timeout=30) is not None
                change(world, OLD)
                await notice(consumer)
                await producer._cluster.updater.refresh(timeout=30, at_once=True)
                raise BodyError

        group = {"group_id": "g", "enable_auto_commit": False}
        for _ in range(OLD):
            world.cluster.produce("t", [b"old"])
        consumer = world.consumer(*(["t"] if subscribed else []), **group)
        async with consumer, world.producer(transactional_id="tx") as producer:
            if not subscribed:
                consumer.assign([T])
            for _ in range(READ):
                assert await consumer.get(timeout=30) is not None
            consumer.mark_processed()
            await asyncio.sleep(1)  # By now, the consumer has a valid position.
            with pytest.raises((BodyError, ApplicationRecoverableError)):
                await interrupted(producer.transaction(), producer, consumer)
            found = [await consumer.get(timeout=30) for _ in range(OLD)]
            assert [(each.offset, each.value) for each in found if each] == [
                (offset, b"new") for offset in range(OLD)
            ]

    simulate(scenario, brokers=3, replication=3)
