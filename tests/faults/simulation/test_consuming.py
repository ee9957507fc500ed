"""Faults that a consumer meets, in simulated time."""

import asyncio
from typing import Any

import pytest
from ledger import pack
from thinned import one_in
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import (
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

T0 = TopicPartition("t", 0)


def fill(world: World, count: int, topic: str = "t", partition: int = 0, batch: int = 10) -> None:
    """Write acknowledged payloads to a partition, in batches."""
    for _ in range(count // batch):
        payloads = [world.ledger.payload(0, topic, partition) for _ in range(batch)]
        written = world.cluster.produce(topic, [pack(p) for p in payloads], partition=partition)
        for payload, metadata in zip(payloads, written, strict=True):
            world.ledger.acknowledge(payload, metadata.offset)


async def read(world: World, consumer: Any, count: int, limit_s: float = 60) -> list[int]:
    """Read `count` records into the ledger, and return their offsets in the order of reading."""
    offsets: list[int] = []
    async with asyncio.timeout(limit_s):
        while len(offsets) < count:
            records = await consumer.poll(timeout=1.0)
            world.ledger.consume_all(records)
            offsets += [record.offset for record in records]
    return offsets


@pytest.mark.fault(11)
def test_a_reset_at_each_byte_of_a_fetch() -> None:
    """No record is delivered twice if connections are reset in fetch responses, at any byte."""
    for byte in one_in(2, range(0, 1_000, 7)):

        async def scenario(world: World, byte: int = byte) -> None:
            fill(world, 20, batch=4)
            async with world.consumer() as consumer:
                consumer.assign([T0])
                world.network.cut_next(responses=byte)
                assert await read(world, consumer, 20) == list(range(20))
            world.ledger.check()

        simulate(scenario, seed=byte)


@pytest.mark.fault(12)
def test_responses_are_read_one_byte_at_a_time() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.consumer(fetch_max_bytes=2_000) as consumer:
            consumer.assign([T0])
            assert await read(world, consumer, 100) == list(range(100))
        world.ledger.check()

    simulate(scenario, weather=Weather(slicing=1.0))


@pytest.mark.fault(20)
@pytest.mark.parametrize("change", ["missing", "twice", "topic missing"])
def test_partitions_missing_or_repeated_in_a_fetch_response_cost_nothing(change: str) -> None:
    def tamper(request: Any, response: Any) -> Any:
        topics = response.responses
        if not topics:
            return response
        if change == "topic missing":
            topics.clear()
        elif change == "missing":
            del topics[0].partitions[0]
        else:
            topics[0].partitions.append(topics[0].partitions[0])
        return response

    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.consumer(max_partition_fetch_bytes=500) as consumer:
            consumer.assign([T0])
            with world.cluster.alter(ApiKey.FETCH, tamper, times=5):
                assert await read(world, consumer, 100) == list(range(100))
        world.ledger.check()

    simulate(scenario)


@pytest.mark.fault(21)
def test_a_truncated_log_is_reported() -> None:
    """LogTruncationError is raised if records that were read have been replaced by others."""

    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.consumer(auto_offset_reset="none", metadata_max_age_ms=1_000) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            await read(world, consumer, 100)
            world.cluster.truncate("t", to=50)
            world.cluster.produce("t", [b"another"] * 100)
            with pytest.raises(LogTruncationError) as raised:
                await read(world, consumer, 1)
            assert raised.value.topic_partition == T0
            assert raised.value.diverging_offset == 50
            consumer.seek(T0, 50)
            records = await consumer.poll(timeout=5.0)
            assert records[0].offset == 50
            assert records[0].value == b"another"

    simulate(scenario, brokers=3)


@pytest.mark.fault(22)
@pytest.mark.parametrize(("reset", "expected"), [("earliest", 40), ("latest", 100)])
def test_an_offset_out_of_range_is_reset_once(reset: str, expected: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        world.cluster.delete_records("t", before=40)
        async with world.consumer(auto_offset_reset=reset) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 10)
            async with asyncio.timeout(30):
                while await consumer.position(T0) == 10:
                    records = await consumer.poll(timeout=0.5)
                    assert [r.offset for r in records[:1]] in ([], [expected])
            assert await consumer.position(T0) >= expected
            assert len(world.requests(ApiKey.LIST_OFFSETS)) == 1

    simulate(scenario)


@pytest.mark.fault(22)
def test_an_offset_out_of_range_is_raised_without_a_reset() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        world.cluster.delete_records("t", before=40)
        async with world.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 10)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll(timeout=10.0)
            consumer.seek(T0, 40)
            assert (await consumer.poll(timeout=10.0))[0].offset == 40

    simulate(scenario)


@pytest.mark.fault(23)
def test_reading_continues_after_an_unknown_topic_id() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.consumer(max_partition_fetch_bytes=500) as consumer:
            consumer.assign([T0])
            with world.cluster.fail(ApiKey.FETCH, UnknownTopicIdError, times=3):
                assert await read(world, consumer, 100) == list(range(100))
        world.ledger.check()

    simulate(scenario)


@pytest.mark.fault(24)
def test_a_position_in_a_deleted_topic_does_not_apply_to_its_successor() -> None:
    """A position in a deleted topic does not apply to a new topic of the same name."""

    async def scenario(world: World) -> None:
        fill(world, 50)
        async with world.consumer("t", metadata_max_age_ms=1_000) as consumer:
            await read(world, consumer, 50)
            world.cluster.delete_topic("t")
            await asyncio.sleep(1)
            world.cluster.create_topic("t")
            world.cluster.produce("t", [b"new-%d" % i for i in range(100)])
            values: list[bytes] = []
            async with asyncio.timeout(60):
                while len(values) < 100:
                    values += [r.value for r in await consumer.poll(timeout=1.0)]
            assert values == [b"new-%d" % i for i in range(100)]

    simulate(scenario)


@pytest.mark.fault(25)
def test_added_partitions_are_read() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        async with world.consumer("t", metadata_max_age_ms=2_000) as consumer:
            await read(world, consumer, 20)
            world.cluster.add_partitions("t", 4)
            for partition in range(4):
                fill(world, 20, partition=partition)
            await read(world, consumer, 80)
        world.ledger.check()

    simulate(scenario, brokers=3)


@pytest.mark.fault(38)
def test_memory_is_bounded_for_a_slow_consumer_of_a_thousand_partitions() -> None:
    """Unread records take at most one fetch response per broker, however slow the reader is."""

    async def scenario(world: World) -> None:
        for partition in range(1_000):
            fill(world, 10, partition=partition)
        async with world.consumer("t", fetch_max_bytes=50_000) as consumer:
            await asyncio.sleep(5)
            unread = len(world.requests(ApiKey.FETCH))
            await asyncio.sleep(60)
            assert len(world.requests(ApiKey.FETCH)) == unread
            read_so_far = 0
            for _ in range(10):
                read_so_far += len(await read(world, consumer, 100))
                await asyncio.sleep(10)
            await read(world, consumer, 10_000 - read_so_far)
        world.ledger.check()

    simulate(scenario, brokers=3, topics={"t": 1_000})


@pytest.mark.fault(49)
def test_a_quota_slows_the_consumer_down() -> None:
    async def scenario(world: World) -> None:
        fill(world, 40)
        async with world.consumer(max_partition_fetch_bytes=500) as consumer:
            consumer.assign([T0])
            with world.cluster.throttle(ApiKey.FETCH, 2.0, times=2) as fault:
                began = world.now
                assert await read(world, consumer, 40) == list(range(40))
                assert fault.hits == 2
                assert world.now - began >= 3.9

    simulate(scenario)


@pytest.mark.fault(53)
def test_reading_continues_after_fetch_sessions_are_evicted() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer() as consumer:
            consumer.assign([TopicPartition("t", i) for i in range(3)])
            for _ in range(10):
                for partition in range(3):
                    fill(world, 10, partition=partition)
                await read(world, consumer, 30)
                world.cluster.evict_sessions()
        world.ledger.check()

    simulate(scenario, topics={"t": 3})


@pytest.mark.fault(54)
@pytest.mark.parametrize("replica", ["unknown", "lagging"])
def test_reading_continues_after_a_useless_preferred_replica(replica: str) -> None:
    """Reading continues if the preferred replica is unknown or lacks the records."""

    async def scenario(world: World) -> None:
        leader = world.cluster.leader("t")
        follower = next(b for b in world.cluster.replicas("t") if b != leader)
        elsewhere = 99 if replica == "unknown" else follower

        def redirect(request: Any, response: Any) -> Any:
            for topic in response.responses:
                for partition in topic.partitions:
                    partition.preferred_read_replica = elsewhere
                    partition.records = b""
            return response

        with (
            world.cluster.hold_replication("t", in_sync=False),
            world.cluster.alter(ApiKey.FETCH, redirect, broker=leader, times=3),
        ):
            fill(world, 40)
            began = world.now
            async with world.consumer(client_rack="here") as consumer:
                consumer.assign([T0])
                assert await read(world, consumer, 40, limit_s=400) == list(range(40))
            assert len(world.requests(ApiKey.FETCH)) < 20 + 4 * (world.now - began)
        world.ledger.check()

    simulate(scenario, brokers=3, racks=["here", "there", "nowhere"])
