"""The subscriptions of a group's members: contents, changes, and initial offsets."""

import asyncio
import re
from typing import Any

import pytest
from group_world import QUICK, Diary, committed, fill, member
from owned import until
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.errors import NoOffsetError

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}
both = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
FAST = {"metadata_max_age_ms": 200}
LATEST = {"auto_offset_reset": "latest", **FAST}


def generation(world: World) -> int:
    return int(world.cluster.groups["g"].generation)


async def collect(consumer: Any, count: int) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [(r.topic, r.partition, r.offset) for r in await consumer.poll()]
    return sorted(found)


async def collect_all(consumer: Any, seen: list[Any]) -> None:
    async for record in consumer:
        seen.append((record.topic, record.partition, record.offset))


class TestSubscriptions:
    @both
    def test_a_member_can_change_and_end_its_subscription(self, strategy: str) -> None:
        async def scenario(world: World) -> None:
            for topic in ("t", "u"):
                fill(world, 3, 2, topic)
            diary = Diary()
            async with member(world, diary, partition_assignment_strategy=strategy) as consumer:
                assert len(await collect(consumer, 6)) == 6
                await consumer.poll(timeout=0)
                consumer.subscribe(["u"], diary)
                assert {t for t, _, _ in await collect(consumer, 6)} == {"u"}
                assert {tp.topic for tp in consumer.assignment()} == {"u"}
                assert committed(world) == 3
                await consumer.poll(timeout=0)
                consumer.unsubscribe()
                await diary.until(lambda: not diary.owned)
                assert committed(world, 1, "u") == 3
                await asyncio.sleep(1)
                assert not world.cluster.groups["g"].members
                assert not await consumer.poll(timeout=5)
                consumer.subscribe(["t"], diary)
                fill(world, 1, 2)
                assert await collect(consumer, 2) == [("t", 0, 3), ("t", 1, 3)]
            assert "lost" not in [what for what, _ in diary.pages]

        simulate(scenario, topics={"t": 2, "u": 2})

    def test_a_changed_subscription_delivers_no_record_of_the_old_topic(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 100)
            async with member(world) as consumer:
                assert await consumer.get()
                consumer.subscribe(["u"])
                assert await consumer.get(timeout=0) is None
                assert {tp.topic for tp in consumer.assignment()} <= {"t", "u"}
                fill(world, 1, topic="u")
                record = await consumer.get(timeout=20)
                assert record is not None
                assert record.topic == "u"

        simulate(scenario, topics={"t": 1, "u": 1})

    def test_subscribing_again_keeps_no_partition_to_be_revoked(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 20)
            first, second = Diary(), Diary()
            async with member(world, first) as one:
                await one.poll(max_records=3)
                two = member(world, second)
                joining = asyncio.create_task(two.start())
                await asyncio.sleep(2)  # The rebalance waits for the record in progress.
                one.subscribe(["t"], first)
                await asyncio.sleep(0.5)
                assert first.pages == [("assigned", [0])]
                assert await one.poll(timeout=0) == []
                await first.until(lambda: ("revoked", [0]) in first.pages)
                assert committed(world) == 3
                await joining
                await two.close()

        simulate(scenario)

    @both
    def test_a_pattern_includes_topics_created_later(self, strategy: str) -> None:
        async def scenario(world: World) -> None:
            options = {**QUICK, **LATEST, "partition_assignment_strategy": strategy}
            first, second = Diary(), Diary()
            pattern: Any = re.compile("logs-.*")
            one = world.consumer(pattern, listener=first, **options)
            two = world.consumer(pattern, listener=second, **options)
            async with one, two:
                await until(lambda: len(first.owned) + len(second.owned) == 1)
                before = generation(world)
                for i in range(50):
                    world.cluster.create_topic(f"logs-{i}", 2)
                    world.cluster.produce(f"logs-{i}", [b"early"], 0)
                    await asyncio.sleep(0.02)
                seen: list[Any] = []
                reading = [asyncio.create_task(collect_all(c, seen)) for c in (one, two)]
                await until(lambda: len(first.owned) + len(second.owned) == 101)
                assert generation(world) - before == 1
                await asyncio.sleep(20)
                assert sorted(seen) == sorted((f"logs-{i}", 0, 0) for i in range(50))
                assert generation(world) - before == 1
                for task in reading:
                    task.cancel()

        simulate(scenario, topics={"logs-x": 1, "other": 1})

    def test_a_deleted_topic_leaves_the_assignment(self) -> None:
        async def scenario(world: World) -> None:
            diary = Diary()
            options = {**QUICK, **FAST, "listener": diary, "auto_offset_reset": "earliest"}
            async with world.consumer("t", "u", **options) as consumer:
                await diary.until(lambda: len(diary.owned) == 2)
                fill(world, 2)
                await collect(consumer, 2)
                await consumer.poll(timeout=0)
                world.cluster.delete_topic("u")
                await diary.until(lambda: {tp.topic for tp in diary.owned} == {"t"})
                fill(world, 1)
                assert await collect(consumer, 1) == [("t", 0, 2)]

        simulate(scenario, topics={"t": 1, "u": 1})


class TestNewPartitions:
    @pytest.mark.parametrize("resync", [False, True])
    @both
    def test_latest_misses_no_record_of_a_new_partition(self, strategy: str, resync: bool) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            options = {**LATEST, "partition_assignment_strategy": strategy}
            async with member(world, **options) as consumer:
                world.cluster.add_partitions("t", 3)
                world.cluster.produce("t", [b"missed by others"], 2)
                assert await collect(consumer, 1) == [("t", 2, 0)]
                assert committed(world, 0) == 5
                assert generation(world) == (1 if resync else 2)

        simulate(scenario, topics={"t": 2}, resync=resync)

    def test_a_member_that_joins_later_knows_that_a_partition_is_new(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            first = Diary()
            # The record is not processed, and keeps its partition.
            options = {"auto_offset_reset": "latest", "checked": False}
            async with member(world, first, **options) as one:
                await one.poll(timeout=0)
                assert committed(world, 0) == committed(world, 1) == 5
                world.cluster.add_partitions("t", 3)
                world.cluster.produce("t", [b"x"], 2)
                # The first metadata of this consumer already contains the partition.
                async with member(world, **options) as two:
                    found = [*(await one.poll(timeout=5)), *(await two.poll(timeout=5))]
                    assert [(r.partition, r.offset) for r in found] == [(2, 0)]

        simulate(scenario, topics={"t": 2})

    def test_members_that_start_together_begin_at_the_end_with_latest(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 4)
            consumers = [member(world, auto_offset_reset="latest") for _ in range(4)]
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            await asyncio.sleep(5)
            for consumer in consumers:
                assert not await consumer.poll(timeout=1)
            assert [committed(world, p) for p in range(4)] == [5] * 4
            await asyncio.gather(*(consumer.close() for consumer in consumers))

        simulate(scenario, topics={"t": 4})

    def test_new_partitions_reset_begins_by_auto_offset_reset_in_a_group(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5, 2)
            options: dict[str, Any] = {**LATEST, "new_partitions": "reset"}
            async with member(world, **options) as consumer:
                world.cluster.add_partitions("t", 3)
                world.cluster.produce("t", [b"missed"], 2)
                assert not await consumer.poll(timeout=5)
                world.cluster.produce("t", [b"seen"], 2)
                assert await collect(consumer, 1) == [("t", 2, 1)]

        simulate(scenario, topics={"t": 2})

    def test_no_initial_offset_is_committed_without_automatic_commits(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with member(world, enable_auto_commit=False) as consumer:
                assert await consumer.get()
                assert committed(world) is None

        simulate(scenario)

    def test_the_initial_offset_is_committed_before_the_first_record(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with member(world, auto_commit_interval_ms=1_000_000) as consumer:
                assert await consumer.get()
                assert committed(world) == 0

        simulate(scenario)

    def test_auto_offset_reset_none_raises(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 5)
            async with member(world, auto_offset_reset="none") as consumer:
                with pytest.raises(NoOffsetError):
                    await consumer.poll(timeout=10)
                consumer.seek(TopicPartition("t", 0), 2)
                record = await consumer.get()
                assert record is not None
                assert record.offset == 2

        simulate(scenario)
