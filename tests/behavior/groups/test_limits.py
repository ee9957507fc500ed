"""Members beyond their time limits, blocked event loops, instance ids, and refusals."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from group_world import Diary, committed, fill, member
from world import World, simulate

from aiokclient import Assignor, Consumer, State, TopicPartition
from aiokclient.consumer.assignors.assignor import MemberAssignment
from aiokclient.errors import (
    AssignmentFailedError,
    ConfigError,
    FencedInstanceIdError,
    IllegalStateError,
    InvalidSessionTimeoutError,
    KafkaError,
    UnsupportedVersionError,
)

CALLS: Mapping[str, Any] = {
    "commit": lambda c: c.commit(),
    "committed": lambda c: c.committed([]),
    "rewind_group": lambda c: c.rewind_group({}),
}


async def until_it_raises(consumer: Consumer[Any, Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            await consumer.poll(timeout=1)


class TestPollInterval:
    def test_a_member_that_exceeds_the_poll_interval_leaves_and_logs_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            options = {"max_poll_interval_ms": 10_000, "auto_commit_interval_ms": 100}
            async with member(world, diary, **options) as consumer:
                await consumer.get()
                await consumer.get()
                caplog.clear()
                await diary.until(lambda: ("lost", [0]) in diary.pages)
                assert 9.9 < world.now < 10.2
                assert "has not requested records for 10.0 s" in caplog.text
                assert not world.cluster.groups["g"].members
                assert consumer.state is State.DEGRADED
                assert "max_poll_interval_ms" in consumer.health().reasons[0]
                assert committed(world) == 1
                record = await consumer.get(timeout=10)
                assert record is not None
                assert record.offset == 1
                assert consumer.state is State.RUNNING

        simulate(scenario)

    def test_waiting_for_records_does_not_count_for_the_poll_interval(self) -> None:
        async def scenario(world: World) -> None:
            diary = Diary()
            async with member(world, diary, max_poll_interval_ms=10_000) as consumer:
                waiting = asyncio.create_task(consumer.get(timeout=100))
                await asyncio.sleep(60)
                assert diary.pages == [("assigned", [0])]
                fill(world, 1)
                assert await waiting

        simulate(scenario)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_late_tracked_handler_loses_its_partition(self, protocol: str) -> None:
        """The late handler's record is delivered again after the partition was lost.

        The member joins again by itself, because the program already waits for records.
        """

        async def scenario(world: World) -> None:
            fill(world, 1)
            options = {"group_id": "g", "group_protocol": protocol, "max_poll_interval_ms": 10_000}
            async with world.consumer("t", **options) as consumer:
                records = consumer.tracked(max_outstanding=1)
                late = await anext(records)
                again = await asyncio.wait_for(anext(records), 60)
                assert 10 < world.now < 12
                assert (late.offset, again.offset) == (0, 0)
                consumer.done(late)
                consumer.done(again)
                fill(world, 1)
                assert (await asyncio.wait_for(anext(records), 60)).offset == 1
                assert consumer.state is State.RUNNING

        simulate(scenario)

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_request_in_the_iteration_of_the_expiry_joins_again(self, protocol: str) -> None:
        """The member joins again if records are requested just as the poll interval expires.

        Both happen in one iteration of the event loop after it was blocked, because all due
        callbacks run together.
        """

        async def scenario(world: World) -> None:
            fill(world, 1)
            options = {"group_id": "g", "group_protocol": protocol}
            async with world.consumer("t", **options) as consumer:
                assert await consumer.get() is not None
                back = asyncio.Event()

                async def come_back() -> Any:
                    await back.wait()
                    return await consumer.get(timeout=100)

                reading = asyncio.create_task(come_back())
                await asyncio.sleep(1)
                back.set()
                assert consumer._engine is not None
                assert consumer._engine.group is not None
                consumer._engine.group.on_poll_overdue("it is late")
                await asyncio.sleep(1)
                fill(world, 1)
                assert await reading is not None

        simulate(scenario)

    def test_heartbeats_continue_while_the_program_is_busy(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            async with member(world, diary) as consumer:
                await consumer.get()
                await asyncio.sleep(50)
                assert diary.pages == [("assigned", [0])]
                assert (await consumer.get()).offset == 1

        simulate(scenario)


class TestHeldLoop:
    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_blocked_loop_is_logged_with_its_duration(
        self, protocol: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            consumer = world.consumer("t", group_id="g", group_protocol=protocol)
            async with consumer:
                assert len(await consumer.poll(timeout=30)) == 10
                await asyncio.sleep(2)
                world.sim.loop.leap(20)
                await asyncio.sleep(4)
                found = [r.getMessage() for r in caplog.records if "stood still" in r.getMessage()]
                assert len(found) == 1
                assert "stood still for 19." in found[0] or "stood still for 20." in found[0]

        with caplog.at_level(logging.WARNING):
            simulate(scenario)


class TestInstanceIds:
    def test_a_static_member_keeps_its_partitions_over_a_restart(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10, 2)
            diary = Diary()
            async with member(world, diary, group_instance_id="a"):
                async with member(world, group_instance_id="b") as other:
                    await diary.until(lambda: len(diary.owned) == 1)
                    mine = other.assignment()
                before = world.cluster.groups["g"].generation
                async with member(world, group_instance_id="b") as again:
                    assert again.assignment() == mine
                    assert world.cluster.groups["g"].generation == before

        simulate(scenario, topics={"t": 2})

    def test_a_second_member_with_the_same_instance_id_fences_the_first(self) -> None:
        async def scenario(world: World) -> None:
            fill(world, 10)
            diary = Diary()
            first = member(world, diary, group_instance_id="a")
            await first.start()
            async with member(world, group_instance_id="a") as second:
                with pytest.raises(FencedInstanceIdError, match="Give each process"):
                    await until_it_raises(first)
                assert first.state is State.FAILED
                with pytest.raises(FencedInstanceIdError):
                    await first.commit()
                assert ("lost", [0]) in diary.pages
                assert await second.get()
            await first.close()

        simulate(scenario)


class TestRefused:
    def test_group_calls_without_a_group_raise(self) -> None:
        async def scenario(world: World) -> None:
            async with world.consumer("t") as consumer:
                for name, call in CALLS.items():
                    with pytest.raises(IllegalStateError, match=f"{name}.*group_id"):
                        await call(consumer)

        simulate(scenario)

    def test_a_session_timeout_out_of_the_brokers_range_is_refused(self) -> None:
        async def scenario(world: World) -> None:
            consumer = member(world, session_timeout_ms=100_000_000)
            with pytest.raises(InvalidSessionTimeoutError, match="session_timeout_ms is 100000000"):
                await consumer.start()
            assert consumer.state is State.NEW

        simulate(scenario)

    def test_an_unknown_strategy_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="partition_assignment_strategy"):
            Consumer(
                "t",
                bootstrap_servers="localhost:1",
                group_id="g",
                partition_assignment_strategy="best",
            )

    @pytest.mark.parametrize("wrong", [("t", 9), ("nowhere", 0)])
    def test_an_assignor_that_assigns_a_missing_partition_is_refused(
        self, wrong: tuple[str, int]
    ) -> None:
        class Mine(Assignor):
            name = "mine"

            def assign(self, cluster: Any, members: Any) -> Any:
                return {m: MemberAssignment((TopicPartition(*wrong),)) for m in members}

        async def scenario(world: World) -> None:
            with pytest.raises(AssignmentFailedError, match="'mine'"):
                await member(world, partition_assignment_strategy=Mine()).start()

        simulate(scenario)

    def test_an_assignor_that_raises_is_retried_and_both_members_see_why(self) -> None:
        class MineError(Exception):
            pass

        class Mine(Assignor):
            name = "mine"
            broken = False

            def assign(self, cluster: Any, members: Any) -> Any:
                if Mine.broken:
                    raise MineError("not today")
                first = sorted(members)[0]
                return {first: MemberAssignment(tuple(cluster.partitions("t")))}

        async def scenario(world: World) -> None:
            fill(world, 3)
            async with member(world, partition_assignment_strategy=Mine()) as one:
                await one.poll(timeout=0)
                async with member(world, partition_assignment_strategy=Mine()) as two:
                    Mine.broken = True
                    world.cluster.rebalance("g")
                    seen: list[Exception] = []
                    async with asyncio.timeout(100):
                        while {type(e) for e in seen} != {MineError, AssignmentFailedError}:
                            for consumer in (one, two):
                                try:
                                    await consumer.poll(timeout=1)
                                except (MineError, KafkaError) as error:
                                    seen.append(error)
                    assert any("MineError: not today" in str(error) for error in seen)
                    Mine.broken = False
                    found: list[Any] = []
                    while len(found) < 3:
                        for consumer in (one, two):
                            try:
                                found += await consumer.poll(timeout=1)
                            except (MineError, AssignmentFailedError):
                                continue

        simulate(scenario)

    def test_automatic_commits_are_off_when_assignments_overlap(self) -> None:
        class Twice(Assignor):
            name = "twice"
            overlapping = True

            def assign(self, cluster: Any, members: Any) -> Any:
                return {m: MemberAssignment(tuple(cluster.partitions("t"))) for m in members}

        async def scenario(world: World) -> None:
            fill(world, 3)
            for asked, expected in ((None, None), (True, 3)):
                options = {} if asked is None else {"enable_auto_commit": asked}
                strategy = {"partition_assignment_strategy": Twice()}
                async with member(world, **options, **strategy) as consumer:
                    assert len(await consumer.poll()) == 3
                    await consumer.poll(timeout=0)
                assert committed(world) == expected

        simulate(scenario)

    def test_rewind_group_needs_the_classic_protocol_and_a_subscription(self) -> None:
        async def scenario(world: World) -> None:
            consumer = world.consumer(group_id="g")
            async with consumer:
                with pytest.raises(IllegalStateError, match="subscribe"):
                    await consumer.rewind_group({TopicPartition("t", 0): 0})
                for bad in ({TopicPartition("t", 0): -1}, {TopicPartition("t", 0): "1"}):
                    with pytest.raises(IllegalStateError):
                        await consumer.rewind_group(bad)  # type: ignore[arg-type]
            newer = world.consumer("t", group_id="h", group_protocol="consumer")
            async with newer:
                with pytest.raises(UnsupportedVersionError, match="classic"):
                    await newer.rewind_group({TopicPartition("t", 0): 0})

        simulate(scenario)
