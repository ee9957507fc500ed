"""Every lookup of committed offsets asks for stable ones, and repeats an unstable answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Consumer, TopicPartition
from aiokclient.errors import ApiTimeoutError, UnstableOffsetCommitError
from aiokclient.protocol import ApiKey

TP = TopicPartition("t", 0)
TIMES = 5


def fill(world: World) -> None:
    world.cluster.produce("t", [b"%d" % i for i in range(10)])


def member(world: World, *topics: str, **options: Any) -> Consumer[Any, Any]:
    options = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **options}
    return world.consumer(*topics, group_id="g", **options)


async def commit(world: World, offset: int) -> None:
    async with member(world) as consumer:
        await consumer.commit({TP: offset})


def stable(world: World) -> list[bool]:
    return [request.message.require_stable for request in world.requests(ApiKey.OFFSET_FETCH)]


async def starts(world: World, **options: Any) -> None:
    async with member(world, "t", **options) as consumer:
        record = await consumer.get(timeout=60)
        assert record is not None
        assert record.offset == 4


async def asks(world: World, **options: Any) -> None:
    async with member(world, **options) as consumer:
        stored = (await consumer.committed([TP]))[TP]
        assert stored is not None
        assert stored.offset == 4


async def rewinds(world: World, **options: Any) -> None:
    async with member(world, "t", **options) as consumer:
        reading = asyncio.create_task(consumer.poll(timeout=60))
        assert await consumer.rewind_group({TP: 2}) == {TP: 2}
        await reading


async def lists(world: World) -> None:
    async with Admin(**world.options()) as admin:
        results = await admin.list_consumer_group_offsets(["g"], require_stable=True)
        assert results.raise_for_errors()["g"][TP].offset == 4


ISOLATED = [{"isolation_level": level} for level in ("read_committed", "read_uncommitted")]
LOOKUPS = [(lookup, options) for lookup in (starts, asks, rewinds) for options in ISOLATED]


@pytest.mark.parametrize(("lookup", "options"), [*LOOKUPS, (lists, {})])
def test_an_unstable_offset_is_asked_for_again(
    lookup: Callable[..., Awaitable[None]], options: dict[str, Any]
) -> None:
    """Java's consumer asks for stable offsets with any isolation level, too."""

    async def scenario(world: World) -> None:
        fill(world)
        await commit(world, 4)
        fault = world.cluster.fail(ApiKey.OFFSET_FETCH, UnstableOffsetCommitError, times=TIMES)
        await lookup(world, **options)
        assert fault.hits == TIMES
        assert len(stable(world)) > TIMES
        assert all(stable(world))

    simulate(scenario)


def test_an_unstable_offset_is_never_replaced_by_a_reset() -> None:
    """A member without a stable committed offset waits, and keeps its group and its partitions."""

    async def scenario(world: World) -> None:
        fill(world)
        await commit(world, 4)
        with world.cluster.fail(ApiKey.OFFSET_FETCH, UnstableOffsetCommitError) as fault:
            async with member(world, "t") as consumer:
                assert await consumer.poll(timeout=300) == []
                assert fault.hits > 100
                assert "UNSTABLE_OFFSET_COMMIT" in str(consumer.health().reasons)
                with pytest.raises(ApiTimeoutError) as late:
                    await consumer.committed([TP], timeout=20)
                assert isinstance(late.value.__cause__, UnstableOffsetCommitError)
                fault.remove()
                record = await consumer.get(timeout=60)
                assert record is not None
                assert record.offset == 4

    simulate(scenario)
