"""Every lookup of committed offsets asks for stable offsets, and is repeated until it gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Consumer, TopicPartition
from aiokclient.consumer.membership.rewind.requests import note_in
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


def test_a_group_whose_offsets_transactions_commit_is_rewound_once() -> None:
    """A commit in a transaction keeps the metadata about the rewind, as other commits do."""

    async def scenario(world: World) -> None:
        fill(world)
        seen: list[int] = []
        async with (
            member(world, "t") as consumer,
            world.producer(transactional_id="t-1") as producer,
        ):

            async def run() -> None:
                async for records in consumer.batches(max_records=2, max_wait=0.0):
                    async with producer.transaction() as transaction:
                        transaction.add(consumer)
                        for record in records:
                            transaction.send("out", record.value)
                    seen.extend(record.offset for record in records)

            working = asyncio.create_task(run())
            await world.cluster.until(lambda: len(seen) >= 10)
            assert await consumer.rewind_group({TP: 7}) == {TP: 7}
            await world.cluster.until(lambda: len(seen) >= 13)
            world.cluster.rebalance("g")
            await asyncio.sleep(30)
            assert seen == [*range(10), 7, 8, 9]
            stored = world.cluster.committed("g")[TP]
            assert stored.offset == 10
            assert note_in(stored.metadata)
            assert await consumer.rewind_group({TP: 99}) == {TP: 10}
            consumer.stop()
            await working

    simulate(scenario, topics={"t": 1, "out": 1})
