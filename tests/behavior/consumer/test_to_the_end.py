"""`until_end` and `batches(until_end=True)` read to the end offsets of the moment of the call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from compacted import hollow
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ConcurrentReadError
from aiokclient.protocol import ApiKey

Way = Callable[[Consumer[Any, Any]], AsyncIterator[Any]]


async def flat(consumer: Consumer[Any, Any]) -> AsyncIterator[Any]:
    async for records in consumer.batches(max_records=7, until_end=True):
        for record in records:
            yield record


WAYS: dict[str, Way] = {"until_end": lambda consumer: consumer.until_end(), "batches": flat}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


async def offsets(records: AsyncIterator[Any]) -> list[int]:
    async with asyncio.timeout(30):
        return [record.offset async for record in records]


async def test_until_end_ends_when_some_partitions_are_empty(stage: Any, way: Way) -> None:
    stage.new_topic(6)
    stage.fill(25, 1)
    stage.fill(30, 4)
    async with stage.consumer() as consumer:
        assert sorted(await offsets(way(consumer))) == sorted([*range(25), *range(30)])
        assert await offsets(way(consumer)) == []


async def test_until_end_ends_when_all_partitions_are_empty(stage: Any, way: Way) -> None:
    stage.new_topic(3)
    async with stage.consumer() as consumer:
        assert await offsets(way(consumer)) == []


async def test_until_end_ends_when_nothing_is_assigned(stage: Any, way: Way) -> None:
    async with stage.consumer() as consumer:
        consumer.unsubscribe()
        assert await offsets(way(consumer)) == []


async def test_until_end_leaves_later_records_for_the_next_iteration(stage: Any, way: Way) -> None:
    stage.fill(20)
    async with stage.consumer() as consumer:
        seen: list[int] = []
        async for record in way(consumer):
            seen.append(record.offset)
            stage.fill(2)
        assert seen == list(range(20))
        assert [r.offset for r in await stage.drain(consumer, 40)] == list(range(20, 60))


async def test_until_end_can_be_repeated(stage: Any, way: Way) -> None:
    async with stage.consumer() as consumer:
        for first in range(0, 50, 10):
            stage.fill(10)
            assert await offsets(way(consumer)) == list(range(first, first + 10))


async def test_until_end_ends_on_a_compacted_log(stage: Any, way: Way) -> None:
    """Reading ends although compaction removed offsets, those of the last batch included."""
    stage.fill(5)
    stage.cluster.append(stage.topic, 0, hollow(10))
    stage.fill(5)
    stage.cluster.append(stage.topic, 0, hollow(10))
    async with stage.consumer() as consumer:
        assert await offsets(way(consumer)) == [*range(5), *range(15, 20)]
        assert await consumer.position(stage.tp()) == 30
        assert await offsets(way(consumer)) == []


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("commit", [True, False])
async def test_until_end_ends_when_a_marker_is_last(
    stage: Any, way: Way, level: str, commit: bool
) -> None:
    stage.fill(5)
    stage.fill(5, producer_id=7, transactional=True)
    stage.cluster.end_transaction(stage.topic, producer_id=7, commit=commit)
    async with stage.consumer(isolation_level=level) as consumer:
        shown = 5 if level == "read_committed" and not commit else 10
        assert await offsets(way(consumer)) == list(range(shown))
        assert await consumer.position(stage.tp()) == 11


async def test_until_end_ends_before_an_open_transaction(stage: Any, way: Way) -> None:
    stage.fill(5)
    stage.fill(5, producer_id=8, transactional=True)
    stage.fill(5)
    async with stage.consumer(isolation_level="read_committed") as consumer:
        assert await offsets(way(consumer)) == list(range(5))
    async with stage.consumer() as consumer:
        assert await offsets(way(consumer)) == list(range(15))


async def test_until_end_ends_at_positions_at_and_past_the_end(stage: Any, way: Way) -> None:
    stage.new_topic(2)
    stage.fill(10)
    stage.fill(10, 1)
    async with stage.consumer(stage.tp(0), stage.tp(1)) as consumer:
        consumer.seek(stage.tp(0), 10)
        consumer.seek(stage.tp(1), 8)
        assert await offsets(way(consumer)) == [8, 9]


async def test_until_end_ends_when_the_log_loses_its_beginning(stage: Any, way: Way) -> None:
    stage.fill(10)
    async with stage.consumer() as consumer:
        await stage.drain(consumer, 10)
        stage.cluster.delete_records(stage.topic, before=10)
        consumer.seek(stage.tp(), 3)
        assert await offsets(way(consumer)) == []


async def test_until_end_begins_again_after_a_break(stage: Any, way: Way) -> None:
    stage.fill(40)
    async with stage.consumer() as consumer:
        seen: list[int] = []
        iteration = way(consumer)
        async for record in iteration:
            seen.append(record.offset)
            if record.offset == 11:
                break
        del iteration, record
        stage.fill(10)
        left = seen[-1] if way is WAYS["until_end"] else consumer.consumed()[stage.tp()].offset - 1
        assert await offsets(way(consumer)) == list(range(left + 1, 50))


async def test_until_end_follows_a_seek_back_and_a_pause(stage: Any) -> None:
    stage.fill(10)
    async with stage.consumer() as consumer:
        seen: list[int] = []
        async for record in consumer.until_end():
            seen.append(record.offset)
            if len(seen) == 5:
                consumer.seek(stage.tp(), 0)
            if len(seen) == 12:
                consumer.pause([stage.tp()])
                asyncio.get_running_loop().call_soon(consumer.resume, [stage.tp()])
        assert seen == [*range(5), *range(10)]


async def test_until_end_does_not_wait_for_an_unassigned_partition(stage: Any) -> None:
    stage.new_topic(2)
    stage.fill(10)
    stage.fill(10, 1)
    async with stage.consumer(stage.tp(0), stage.tp(1)) as consumer:
        seen: list[int] = []
        async for record in consumer.until_end():
            if not seen:
                consumer.assign([TopicPartition(record.topic, record.partition)])
            seen.append(record.offset)
        assert seen == list(range(10))


async def test_another_reader_is_refused_while_end_offsets_are_requested(
    stage: Any, way: Way
) -> None:
    stage.fill(3)
    async with stage.consumer() as consumer:
        reading = asyncio.create_task(offsets(way(consumer)))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentReadError):
            await consumer.poll()
        assert await reading == [0, 1, 2]


@pytest.mark.parametrize("end", ["stop", "close"])
def test_stop_and_close_do_not_wait_for_end_offsets(end: str, way: Way) -> None:
    """`stop()` and `close()` do not wait for end offsets while the partition has no leader."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 3)
        async with world.consumer("t") as consumer:
            world.cluster.stop(world.cluster.leader("t"))
            reading = asyncio.create_task(offsets(way(consumer)))
            await asyncio.sleep(2)
            began = world.now
            if end == "stop":
                consumer.stop()
            else:
                await consumer.close()
            assert await reading == []
            assert world.now - began < 6

    simulate(scenario, brokers=2, replication=1)


def test_a_cancellation_while_end_offsets_are_requested_loses_no_record(way: Way) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 3)
        async with world.consumer("t") as consumer:
            leader = world.cluster.leader("t")
            world.cluster.stop(leader)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await offsets(way(consumer))
            world.cluster.start(leader)
            assert await offsets(way(consumer)) == [0, 1, 2]

    simulate(scenario, brokers=2, replication=1)


@pytest.mark.parametrize("lag_s", [0.15, 1.2])
def test_end_offset_below_the_position_is_looked_up_again(lag_s: float) -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("lagging")
        world.cluster.produce("lagging", [b"v"] * 50)
        loop = asyncio.get_running_loop()
        until = 0.0

        def change(request: Any, response: Any) -> Any:
            if loop.time() < until:
                for topic in response.topics:
                    for partition in topic.partitions:
                        partition.offset = 30
            return response

        async with world.consumer("lagging", auto_offset_reset="earliest") as consumer:
            assert await offsets(consumer.until_end()) == list(range(50))
            world.cluster.produce("lagging", [b"v"] * 5)
            until = loop.time() + lag_s
            with world.cluster.alter(ApiKey.LIST_OFFSETS, change):
                assert await offsets(consumer.until_end()) == list(range(50, 55))

    simulate(scenario)
