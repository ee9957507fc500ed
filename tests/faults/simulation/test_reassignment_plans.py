"""Plans that move replicas, while brokers are stopped or silent and clients are closed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, NewTopic, TopicPartition
from aiokclient.admin import (
    PlannedMove,
    ReassignmentPlan,
    ReassignmentProgress,
    TopicDescription,
)
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    IllegalStateError,
    LeaderNotAvailableError,
)
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("n", 0), TopicPartition("n", 1)
PLAN = ReassignmentPlan({T0: PlannedMove((3, 1), (1, 2), 10)})


async def begin_stuck(world: World, admin: Admin) -> None:
    """Begin the move of PLAN. Its new broker does not run, so it stays in progress."""
    created = await admin.create_topics([NewTopic("n", assignments={0: [1, 2], 1: [2, 1]})])
    created.raise_for_errors()
    world.cluster.stop(3)
    (await admin.alter_partition_reassignments({T0: [3, 1]})).raise_for_errors()


async def read_replicas(admin: Admin, tp: TopicPartition = T0) -> tuple[int, ...]:
    topic = (await admin.describe_topics([tp.topic]))[tp.topic]
    assert isinstance(topic, TopicDescription)
    return topic.partitions[tp.partition].replicas


def test_a_plan_without_progress_ends_after_the_timeout_and_is_undone() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            began_at = world.now
            with pytest.raises(ApiTimeoutError) as caught:
                await admin.apply_plan(PLAN, throttle=1_000, timeout=30)
            assert 30 <= world.now - began_at < 60
            assert "No replica has made progress for 30 s. n-0 is being moved" in str(caught.value)
            assert "n-0 waits for broker 3." in str(caught.value)
            assert await admin.list_partition_reassignments() == {}
            assert await read_replicas(admin) == (1, 2)

    simulate(scenario, brokers=3)


def test_a_plan_that_another_program_cancels_ends_after_the_timeout() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            call = asyncio.create_task(admin.apply_plan(PLAN, timeout=30))
            await asyncio.sleep(10)
            (await admin.alter_partition_reassignments({T0: None})).raise_for_errors()
            with pytest.raises(ApiTimeoutError) as caught:
                await call
            assert "n-0 is not being moved any more" in str(caught.value)

    simulate(scenario, brokers=3)


def test_a_plan_waits_for_a_broker_that_starts_again() -> None:
    async def scenario(world: World) -> None:
        seen: list[ReassignmentProgress] = []
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            call = asyncio.create_task(admin.apply_plan(PLAN, on_progress=seen.append))
            await asyncio.sleep(20)
            world.cluster.start(3)
            progress = await call
            assert progress.is_complete
            assert progress.complete == (T0,)
            assert [each.is_complete for each in seen].count(True) == 1
            assert await read_replicas(admin) == (3, 1)

    simulate(scenario, brokers=3)


def test_an_error_of_the_progress_function_undoes_the_plan() -> None:
    def fail(progress: ReassignmentProgress) -> None:
        raise ZeroDivisionError

    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            with pytest.raises(ZeroDivisionError):
                await admin.apply_plan(PLAN, on_progress=fail)
            assert await admin.list_partition_reassignments() == {}
            assert await read_replicas(admin) == (1, 2)

    simulate(scenario, brokers=3)


def test_a_topic_that_is_deleted_while_it_moves_counts_as_complete() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            call = asyncio.create_task(admin.apply_plan(PLAN, throttle=1_000))
            await asyncio.sleep(10)
            (await admin.delete_topics(["n"])).raise_for_errors()
            assert (await call).complete == (T0,)

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("is_closed", [False, True], ids=["silent brokers", "closed client"])
def test_what_cannot_be_undone_is_noted_and_logged(
    is_closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            await begin_stuck(world, admin)
            call = asyncio.create_task(admin.apply_plan(PLAN, throttle=1_000))
            await asyncio.sleep(10)
            error: Any
            if is_closed:
                await admin.close()
                with pytest.raises(ClosedError) as closed:
                    await call
                error = closed.value
            else:
                for api in (ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLUSTER):
                    world.cluster.delay(api, 10_000)
                call.cancel()
                began_at = world.now
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await call
                error = cancelled.value
                assert world.now - began_at < 60
                world.cluster.reset()
            text = "may still be in progress, and their throttle in effect"
            assert any(text in note for note in error.__notes__)

    with caplog.at_level(logging.WARNING, "aiokclient"):
        simulate(scenario, brokers=3)
    lines = [r for r in caplog.records if getattr(r, "event", "") == "reassignment_not_undone"]
    assert len(lines) == 1


def test_replicas_on_stopped_brokers_stay_unless_the_brokers_are_given() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            replicas = {0: [3, 1], 1: [3, 2], 2: [1, 2], 3: [1, 2]}
            (await admin.create_topics([NewTopic("n", assignments=replicas)])).raise_for_errors()
            world.cluster.stop(3)
            plan = await admin.rebalance_plan(["n"])
            assert all(move.adding == () for move in plan.moves.values())
            assert plan.loads_after[3].replica_count == 2
            plan = await admin.rebalance_plan(["n"], brokers=[1, 2])
            assert plan.loads_after[3].replica_count == 0
            assert len(await admin.drain_broker(3)) == 2
            assert await read_replicas(admin, T0) == (2, 1)
            # Of broker 2 as well, so that both lead two partitions.
            assert await read_replicas(admin, T1) == (2, 1)
            assert not await admin.drain_broker(3)

    simulate(scenario, brokers=3, topics={})


def test_a_partition_without_a_leader_cannot_be_drained() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            topic = NewTopic("n", assignments={0: [3]})
            (await admin.create_topics([topic])).raise_for_errors()
            world.cluster.stop(3)
            with pytest.raises(LeaderNotAvailableError, match=r"n-0.*its brokers \(3\)"):
                await admin.drain_broker(3)

    simulate(scenario, brokers=3, topics={})


def test_racks_are_respected() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            replicas = {index: [1, 3] for index in range(4)}
            (await admin.create_topics([NewTopic("n", assignments=replicas)])).raise_for_errors()
            plan = await admin.rebalance_plan(["n"])
            for move in plan.moves.values():
                assert len({"aabb"[node - 1] for node in move.after}) == 2
            assert [each.replica_count for each in plan.loads_after.values()] == [2] * 4
            drained = await admin.drain_broker(1, dry_run=True)
            assert {move.adding for move in drained.moves.values()} == {(2,)}

    simulate(scenario, brokers=4, topics={}, racks=["a", "a", "b", "b"])


def test_a_broker_whose_session_has_ended_gets_no_replicas() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            topic = NewTopic("n", assignments={0: [1, 2]})
            (await admin.create_topics([topic])).raise_for_errors()
            world.cluster.stop(3)
            with pytest.raises(IllegalStateError, match="Broker 3 does not run"):
                await admin.apply_plan(PLAN)
            assert await read_replicas(admin) == (1, 2)

    simulate(scenario, brokers=3)
