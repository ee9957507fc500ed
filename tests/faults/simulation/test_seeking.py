"""Seeks to buffered and other offsets while a fetch waits at the broker."""

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SOON_S = 0.04
LONG_POLL = {"fetch_max_wait_ms": 20_000, "request_timeout_ms": 30_000}


def fetches(world: World) -> int:
    return len(world.requests(ApiKey.FETCH))


async def waits_at_the_broker(world: World, consumer: Any) -> None:
    """Read everything, so that a fetch waits at the broker for more records."""
    while await consumer.poll(timeout=1):
        pass


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("target", [0, 4, 7, 12, 19])
@pytest.mark.parametrize("way", ["poll", "iteration", "Arrow"])
def test_a_seek_to_a_buffered_offset_needs_no_request(
    way: str, target: int, compression: str
) -> None:
    async def scenario(world: World) -> None:
        for first in (0, 10):
            values = [b"%d" % number for number in range(first, first + 10)]
            world.cluster.produce("t", values, compression=compression)
        async with world.consumer("t", **LONG_POLL) as consumer:
            assert [r.offset for r in await consumer.poll(10, max_records=8)] == list(range(8))
            await world.cluster.until(lambda: fetches(world) >= 2)
            count, begun = fetches(world), world.now
            consumer.seek(T0, target)
            assert consumer.consumed()[T0].offset == target
            offsets: list[int] = []
            if way == "poll":
                offsets = [r.offset for r in await consumer.poll(timeout=10, max_records=100)]
            elif way == "iteration":
                async for record in consumer:
                    offsets.append(record.offset)
                    if record.offset == 19:
                        break
            else:
                async for table in consumer.arrow_batches():
                    offsets += table["offset"].to_pylist()
                    if offsets[-1] == 19:
                        break
            assert offsets == list(range(target, 20))
            assert world.now - begun < SOON_S
            assert fetches(world) == count
            world.cluster.produce("t", [b"20"])
            record = await consumer.get(timeout=10)
            assert record is not None
            assert record.offset == 20

    simulate(scenario)


def test_a_seek_during_an_iteration_delivers_the_record_from_the_buffer() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"%d" % number for number in range(10)])
        async with world.consumer("t", **LONG_POLL) as consumer:
            seen: list[int] = []
            async for record in consumer:
                seen.append(record.offset)
                if seen.count(3) == 1 and record.offset == 3:
                    consumer.seek(record)
                    assert consumer.consumed()[T0].offset == 3
                if record.offset == 9:
                    break
            assert seen == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]
            assert fetches(world) <= 2

    simulate(scenario)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_seek_elsewhere_does_not_wait_for_the_fetch_in_flight(partitions: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"%d" % number for number in range(10)])
        async with world.consumer("t", **LONG_POLL) as consumer:
            await waits_at_the_broker(world, consumer)
            for offset in (0, 5, 0, 9):
                begun = world.now
                consumer.seek(T0, offset)
                records = await consumer.poll(timeout=10, max_records=100)
                assert [r.offset for r in records] == list(range(offset, 10))
                assert world.now - begun < SOON_S
            consumer.seek_to_end()
            assert await consumer.position(T0) == 10
            assert await consumer.poll(timeout=0.5) == []
            for partition in range(partitions):
                begun = world.now
                world.cluster.produce("t", [b"new"], partition=partition)
                assert [r.value for r in await consumer.poll(timeout=10)] == [b"new"]
                assert world.now - begun < SOON_S

    simulate(scenario, topics={"t": partitions})


def test_after_a_seek_everything_is_read_once_and_in_order() -> None:
    """More records than the buffer holds are read while the first fetch waits at the broker."""

    async def scenario(world: World) -> None:
        for first in range(0, 400, 10):
            world.cluster.produce("t", [bytes(100) for _ in range(first, first + 10)])
        options = {**LONG_POLL, "fetch_max_bytes": 3_000, "max_partition_fetch_bytes": 3_000}
        async with world.consumer("t", **options) as consumer:
            await waits_at_the_broker(world, consumer)
            begun = world.now
            consumer.seek(T0, 0)
            offsets: list[int] = []
            while len(offsets) < 400:
                offsets += [r.offset for r in await consumer.poll(timeout=10)]
            assert offsets == list(range(400))
            assert world.now - begun < 2

    simulate(scenario)


def test_an_idle_broker_gets_no_flood_of_requests_after_a_seek() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0"])
        async with world.consumer("t", **LONG_POLL) as consumer:
            await waits_at_the_broker(world, consumer)
            count = fetches(world)
            consumer.seek(T0, 1)
            assert await consumer.poll(timeout=10) == []
            assert fetches(world) - count < 250

    simulate(scenario)


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.004, 0.01, 0.02, 0.1])
def test_a_consumer_can_be_closed_during_a_fetch_after_a_seek(delay: float) -> None:
    async def scenario(world: World) -> None:
        for _ in range(40):
            world.cluster.produce("t", [bytes(100) for _ in range(10)])
        options = {**LONG_POLL, "fetch_max_bytes": 3_000, "max_partition_fetch_bytes": 3_000}
        async with world.consumer("t", **options) as consumer:
            await waits_at_the_broker(world, consumer)
            consumer.seek(T0, 0)
            await asyncio.sleep(delay)
            begun = world.now
        assert world.now - begun < 1

    simulate(scenario)
