"""Positions in topics or partitions that metadata responses omit for a while."""

import asyncio
import re
from typing import Any
from uuid import UUID

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def omit_topic(request: Any, response: Any) -> Any:
    response.topics = [topic for topic in response.topics if topic.name != "t"]
    return response


def omit_partition(request: Any, response: Any) -> Any:
    for topic in response.topics:
        topic.partitions = [p for p in topic.partitions if p.partition_index == 0]
    return response


async def metadata_read(world: World, times: int) -> None:
    since = world.now
    await world.cluster.until(lambda: len(world.requests(ApiKey.METADATA, since)) >= times)
    await asyncio.sleep(1)


def reading(world: World, *topics: Any, **more: Any) -> Consumer[Any, Any]:
    return world.consumer(*topics, metadata_max_age_ms=2_000, **more)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1S"])
@pytest.mark.parametrize("topics", [("t",), (re.compile("t.*"),)], ids=["named", "pattern"])
@pytest.mark.parametrize("omit", [omit_topic, omit_partition])
def test_positions_survive_when_one_response_omits_a_topic(
    topics: Any, reset: str, omit: Any
) -> None:
    async def scenario(world: World) -> None:
        async with reading(world, *topics, auto_offset_reset=reset) as consumer:
            for number, partition in enumerate((0, 1, 1)):
                world.cluster.produce("t", [b"%d" % number], partition=partition)
            seen: list[bytes] = []
            while len(seen) < 3:
                seen += [record.value for record in await consumer.poll(timeout=10)]
            consumer.pause([T1])
            with world.cluster.alter(ApiKey.METADATA, omit):
                await metadata_read(world, 2)
                world.cluster.produce("t", [b"3"], partition=0)
                world.cluster.produce("t", [b"4"], partition=1)
            await metadata_read(world, 2)
            assert consumer.assignment() == {T0, T1}
            consumer.resume([T1])
            while len(seen) < 5:
                seen += [record.value for record in await consumer.poll(timeout=10)]
            assert await consumer.poll(timeout=1) == []
        assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("topics", [("t",), (re.compile("t.*"),)], ids=["named", "pattern"])
def test_a_topic_that_returns_with_another_id_is_read_from_its_first_record(topics: Any) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"old"] * 3)
        async with reading(world, *topics, auto_offset_reset="latest") as consumer:
            with world.cluster.alter(ApiKey.METADATA, omit_topic):
                await metadata_read(world, 2)
                world.cluster.delete_topic("t")
                world.cluster.create_topic("t", 2)
                world.cluster.produce("t", [b"new"] * 4)
            found = [record.value for record in await consumer.poll(timeout=30)]
            assert found == [b"new"] * 4

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("topics", [("t",), (re.compile("t.*"),)], ids=["named", "pattern"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_positions_survive_when_one_response_has_the_id_of_a_deleted_topic(
    topics: Any, reset: str
) -> None:
    """Positions survive even if the metadata's own check does not detect the old response."""
    other = UUID(int=77)

    def rename(request: Any, response: Any) -> Any:
        for topic in response.topics:
            if topic.name == "t":
                topic.topic_id = other
        return response

    async def scenario(world: World) -> None:
        async with reading(world, *topics, auto_offset_reset=reset) as consumer:
            world.cluster.produce("t", [b"0", b"1", b"2"])
            seen: list[bytes] = []
            while len(seen) < 3:
                seen += [record.value for record in await consumer.poll(timeout=10)]
            with world.cluster.alter(ApiKey.METADATA, rename):
                await metadata_read(world, 3)
                world.cluster.produce("t", [b"3"])
            await metadata_read(world, 2)
            while len(seen) < 4:
                found = await consumer.poll(timeout=20)
                assert found
                seen += [record.value for record in found]
            assert seen == [b"0", b"1", b"2", b"3"]
            assert await consumer.poll(timeout=1) == []

    simulate(scenario)


def test_positions_are_forgotten_when_the_topic_is_unsubscribed() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1"])
        async with reading(world, "t") as consumer:
            assert len(await consumer.poll(timeout=10)) == 2
            consumer.subscribe(["other"])
            await metadata_read(world, 2)
            consumer.subscribe(["t"])
            assert len(await consumer.poll(timeout=10)) == 2

    simulate(scenario, topics={"t": 1, "other": 1})


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_by_duration_misses_nothing_that_arrives_between_its_lookups(isolation_level: str) -> None:
    """`by_duration` reads a record that arrives between its two lookups."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"old"] * 3)
        await asyncio.sleep(100)
        written = 0

        def write(request: Any, response: Any) -> Any:
            nonlocal written
            world.cluster.produce("t", [b"%d" % written])
            written += 1
            return response

        options = {"auto_offset_reset": "by_duration:PT10S", "isolation_level": isolation_level}
        with world.cluster.alter(ApiKey.LIST_OFFSETS, write):
            async with world.consumer("t", **options) as consumer:
                seen = [record.value for record in await consumer.poll(timeout=10)]
                assert written
                assert b"old" not in seen
                assert seen == [b"%d" % n for n in range(written - len(seen), written)]
                # The first response may be that of the lookup of the end offset.
                assert len(seen) >= written - 1

    simulate(scenario)
