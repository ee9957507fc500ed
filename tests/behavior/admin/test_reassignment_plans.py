"""Plans that move replicas, the same on the embedded cluster and a real Kafka."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import JavaTool

from aiokclient import Admin, ConfigResource, Producer, TopicPartition
from aiokclient.admin import (
    NewTopic,
    PartitionReassignment,
    PlannedMove,
    ReassignmentPlan,
    ReassignmentProgress,
    TopicDescription,
)
from aiokclient.admin.replicas import planning
from aiokclient.errors import (
    ApiTimeoutError,
    BrokerIdNotRegisteredError,
    IllegalStateError,
    InvalidReplicaAssignmentError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.testing import EmbeddedCluster

JAVA = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
Placed = dict[int, tuple[tuple[int, ...], int | None]]


@pytest.fixture
async def admin(brokers: Any) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=brokers.servers) as admin:
        yield admin


async def describe(admin: Admin, topic: str) -> Placed:
    """Return the replicas and the leader of each partition, or nothing if they are unknown."""
    described = (await admin.describe_topics([topic]))[topic]
    if not isinstance(described, TopicDescription):
        return {}
    return {each.index: (each.replicas, each.leader) for each in described.partitions}


async def until(
    brokers: Any, admin: Admin, topic: str, is_reached: Callable[[Placed], bool]
) -> Placed:
    """Wait until a topic has a state, and all brokers know it."""
    async with asyncio.timeout(30):
        while not is_reached(placed := await describe(admin, topic)):
            pass
    await brokers.await_all()
    return placed


async def create(brokers: Any, admin: Admin, assignments: Mapping[int, Sequence[int]]) -> str:
    topic = f"planned-{uuid.uuid4().hex[:12]}"
    created = await admin.create_topics([NewTopic(topic, assignments=assignments)])
    created.raise_for_errors()
    wanted = {index: (tuple(each), each[0]) for index, each in assignments.items()}
    await until(brokers, admin, topic, lambda placed: placed == wanted)
    return topic


async def read_lists(admin: Admin, topic: str) -> list[str | None]:
    """Return the options of a topic that say to which replicas a throttle applies."""
    resource = ConfigResource.topic(topic)
    entries = (await admin.describe_configs({resource: LISTS})).raise_for_errors()[resource]
    return [entries[name].value for name in LISTS]


async def until_lists(brokers: Any, admin: Admin, topic: str, wanted: list[str | None]) -> None:
    async with asyncio.timeout(30):
        while await read_lists(admin, topic) != wanted:
            pass
    await brokers.await_all()


async def until_even(brokers: Any, admin: Admin, topic: str) -> None:
    async with asyncio.timeout(30):
        while await admin.rebalance_plan([topic]):
            pass
    await brokers.await_all()


async def test_a_plan_evens_out_the_replicas_and_leaders_of_a_topic(
    brokers: Any, admin: Admin
) -> None:
    topic = await create(brokers, admin, {index: [1, 2] for index in range(6)})
    async with Producer(bootstrap_servers=brokers.servers) as producer:
        for index in range(6):
            await producer.send(topic, b"v" * 1_000, partition=index)
    plan = await admin.rebalance_plan([topic])
    assert await describe(admin, topic) == dict.fromkeys(range(6), ((1, 2), 1))
    assert [each.replica_count for each in plan.loads_before.values()] == [6, 6, 0]
    assert [each.replica_count for each in plan.loads_after.values()] == [4, 4, 4]
    assert [each.leader_count for each in plan.loads_after.values()] == [2, 2, 2]
    assert sum(len(move.adding) for move in plan.moves.values()) == 4
    assert plan.bytes_to_copy >= 4_000
    assert await admin.rebalance_plan([topic]) == plan

    seen: list[ReassignmentProgress] = []
    progress = await admin.apply_plan(plan, on_progress=seen.append)
    assert progress == seen[-1]
    assert progress.is_complete
    assert set(progress.complete) == set(plan.moves)
    assert progress.copied_bytes == progress.total_bytes == plan.bytes_to_copy
    planned = {tp.partition: move.after for tp, move in plan.moves.items()}
    after = {index: planned.get(index, (1, 2)) for index in range(6)}
    wanted = {index: (replicas, replicas[0]) for index, replicas in after.items()}
    await until(brokers, admin, topic, lambda placed: placed == wanted)
    await until_even(brokers, admin, topic)
    # To carry it out again does nothing.
    assert (await admin.apply_plan(plan)).is_complete


async def test_a_plan_moves_a_topic_to_the_given_brokers(brokers: Any, admin: Admin) -> None:
    topic = await create(brokers, admin, {0: [1], 1: [2]})
    plan = await admin.rebalance_plan([topic], brokers=[3])
    assert {move.after for move in plan.moves.values()} == {(3,)}
    copy = ReassignmentPlan.from_json(plan.to_json())
    started = await admin.apply_plan(copy, wait=False)
    assert len(started.complete) + len(started.moving) + len(started.stopped) == 2
    await until(brokers, admin, topic, lambda placed: placed == {0: ((3,), 3), 1: ((3,), 3)})
    async with asyncio.timeout(30):
        while not (await admin.describe_plan_progress(plan)).is_complete:
            pass


async def test_a_plan_keeps_the_racks_of_a_partition_unless_they_are_ignored() -> None:
    async with (
        EmbeddedCluster(brokers=3, racks=["a", "b", "b"]) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        placed = {0: [1, 2], 1: [1, 3], 2: [1, 2]}
        (await admin.create_topics([NewTopic("orders", assignments=placed)])).raise_for_errors()

        def count(plan: ReassignmentPlan) -> list[int]:
            after = {tp.partition: move.after for tp, move in plan.moves.items()}
            lists = [after.get(each, placed[each]) for each in placed]
            return [sum(node in replicas for replicas in lists) for node in (1, 2, 3)]

        assert count(await admin.rebalance_plan(["orders"]))[0] == 3
        assert count(await admin.rebalance_plan(["orders"], ignore_racks=True)) == [2, 2, 2]


async def test_plans_that_are_not_possible_are_refused(brokers: Any, admin: Admin) -> None:
    topic = await create(brokers, admin, {0: [1, 2]})
    with pytest.raises(InvalidReplicaAssignmentError, match="only these brokers may have them: 3"):
        await admin.rebalance_plan([topic], brokers=[3])
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker 77 is not in the cluster"):
        await admin.rebalance_plan([topic], brokers=[1, 77])
    with pytest.raises(ArgumentValueError, match="no broker in `brokers`"):
        await admin.rebalance_plan([topic], brokers=[])
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.rebalance_plan([f"absent-{topic}"])
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker 77 is not in the cluster"):
        await admin.drain_broker(77, dry_run=True)
    with pytest.raises(ArgumentValueError, match="would stop the copies"):
        await admin.apply_plan(ReassignmentPlan({}), throttle=0)
    with pytest.raises(ArgumentTypeError, match="is not a function"):
        await admin.apply_plan(ReassignmentPlan({}), on_progress=1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="is not a ReassignmentPlan"):
        await admin.apply_plan({})  # type: ignore[arg-type]
    assert not await admin.rebalance_plan([])


async def test_a_plan_for_other_replicas_begins_nothing(brokers: Any, admin: Admin) -> None:
    topic = await create(brokers, admin, {0: [1, 2], 1: [1, 2]})
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    plan = ReassignmentPlan(
        {first: PlannedMove((3, 2), (1, 2)), second: PlannedMove((1, 3), (2, 3))}
    )
    with pytest.raises(IllegalStateError, match=r"is on brokers 1, 2, and the plan .* from") as no:
        await admin.apply_plan(plan)
    assert str(second) in str(no.value)
    absent = ReassignmentPlan({TopicPartition(topic, 7): PlannedMove((3,))})
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.apply_plan(absent)
    stopped = ReassignmentPlan({first: PlannedMove((77, 2), (1, 2))})
    with pytest.raises(IllegalStateError, match="Broker 77 does not run"):
        await admin.apply_plan(stopped)
    assert await describe(admin, topic) == dict.fromkeys((0, 1), ((1, 2), 1))
    progress = await admin.describe_plan_progress(plan)
    assert progress.stopped == (first, second)
    assert not progress.is_complete


async def test_the_throttle_of_a_plan_is_removed_at_its_end(brokers: Any, admin: Admin) -> None:
    topic = await create(brokers, admin, {0: [1, 2], 1: [1, 2]})
    other = ConfigResource.topic(topic)
    (await admin.alter_configs({other: {LISTS[0]: "1:2"}})).raise_for_errors()
    await until_lists(brokers, admin, topic, ["1:2", ""])
    tp = TopicPartition(topic, 0)
    there = ReassignmentPlan({tp: PlannedMove((1, 3))})
    back = ReassignmentPlan({tp: PlannedMove((1, 2), (1, 3))})
    assert (await admin.apply_plan(there, throttle=10_000_000)).is_complete
    # What others have set stays.
    await until_lists(brokers, admin, topic, ["1:2", ""])
    await until(brokers, admin, topic, lambda placed: placed[0] == ((1, 3), 1))
    await admin.apply_plan(back, throttle=10_000_000, wait=False)
    await until_lists(brokers, admin, topic, ["1:2,0:1,0:3", "0:2"])
    await until(brokers, admin, topic, lambda placed: placed[0] == ((1, 2), 1))
    removed = await admin.throttle_reassignments(None)
    assert other in removed.raise_for_errors()
    assert ConfigResource.broker(1) in removed
    await until_lists(brokers, admin, topic, ["", ""])
    assert not await admin.throttle_reassignments(1_000)


async def wait_for_stop(brokers: Any, admin: Admin, node: int) -> None:
    """Wait until no broker takes a stopped one for running."""
    async with asyncio.timeout(30):
        while any(each.node_id == node for each in (await admin.describe_cluster()).brokers):
            pass
    await brokers.await_all()


async def begin_stuck(brokers: Any, admin: Admin) -> tuple[str, ReassignmentPlan]:
    """Begin a move to a broker that does not run, and return the topic and the plan for it."""
    topic = await create(brokers, admin, {0: [1, 2], 1: [2, 1]})
    tp = TopicPartition(topic, 0)
    brokers.stop(3)
    await wait_for_stop(brokers, admin, 3)
    (await admin.alter_partition_reassignments({tp: [3, 1]})).raise_for_errors()
    await until(brokers, admin, topic, lambda placed: placed[0][0] == (3, 1, 2))
    return topic, ReassignmentPlan({tp: PlannedMove((3, 1), (1, 2), 10)})


async def test_a_partition_that_moves_already_is_in_no_other_plan(
    brokers: Any, admin: Admin
) -> None:
    try:
        topic, plan = await begin_stuck(brokers, admin)
        tp = TopicPartition(topic, 0)
        with pytest.raises(IllegalStateError, match=f"{topic}-0 is being moved already"):
            await admin.rebalance_plan([topic])
        with pytest.raises(IllegalStateError, match=f"{topic}-0 is being moved already"):
            await admin.drain_broker(2, dry_run=True)
        with pytest.raises(IllegalStateError, match="Broker 3 does not run"):
            await admin.rebalance_plan([topic], brokers=[1, 3])
        elsewhere = ReassignmentPlan({tp: PlannedMove((2, 1), (1, 2))})
        with pytest.raises(IllegalStateError, match="is being moved to brokers 3, 1"):
            await admin.apply_plan(elsewhere)
        moving = {tp: PartitionReassignment((3, 1, 2), (3,), (2,))}
        progress = await admin.describe_plan_progress(plan, timeout=5)
        assert progress == ReassignmentProgress((), moving, (), 0, 10)
        limited = await admin.throttle_reassignments(5_000)
        assert set(limited.raise_for_errors()) == {
            ConfigResource.topic(topic),
            ConfigResource.broker(1),
            ConfigResource.broker(2),
        }
        await until_lists(brokers, admin, topic, ["0:1,0:2", "0:3"])
        # The former order, which a cancellation alone does not restore, is back as well.
        cancelled = await admin.cancel_plan(plan)
        assert cancelled.raise_for_errors() == {tp: None}
        await until(brokers, admin, topic, lambda placed: placed[0] == ((1, 2), 1))
        await until_lists(brokers, admin, topic, ["", ""])
        assert await admin.list_partition_reassignments() == {}
        assert not await admin.cancel_plan(plan)
    finally:
        brokers.start(3)


async def read_rates(admin: Admin, node: int) -> list[str | None]:
    """Return the rates of a broker."""
    resource = ConfigResource.broker(node)
    entries = (await admin.describe_configs({resource: RATES})).raise_for_errors()[resource]
    return [entries[name].value if name in entries else None for name in RATES]


@pytest.mark.parametrize(
    "brokers", ["embedded", pytest.param("kafka3", marks=pytest.mark.walk)], indirect=True
)
async def test_a_cancelled_plan_without_former_replicas_leaves_no_throttle(
    brokers: Any, admin: Admin
) -> None:
    try:
        topic, plan = await begin_stuck(brokers, admin)
        usual = [await read_rates(admin, node) for node in (1, 2)]
        (await admin.throttle_reassignments(5_000)).raise_for_errors()
        await until_lists(brokers, admin, topic, ["0:1,0:2", "0:3"])
        async with asyncio.timeout(30):
            while [await read_rates(admin, node) for node in (1, 2)] != [["5000", "5000"]] * 2:
                pass
        # Like a file of Kafka's tool, it names neither broker 2 nor the order before.
        moves = {tp: PlannedMove(move.after) for tp, move in plan.moves.items()}
        (await admin.cancel_plan(ReassignmentPlan(moves))).raise_for_errors()
        await until_lists(brokers, admin, topic, ["", ""])
        async with asyncio.timeout(30):
            while [await read_rates(admin, node) for node in (1, 2)] != usual:
                pass
    finally:
        brokers.start(3)


# A broker of a real Kafka takes seconds of processor time to start again. The test above shows that
# it cancels a plan as the embedded cluster does.
@pytest.mark.parametrize("brokers", ["embedded"], indirect=True)
async def test_a_cancelled_plan_is_undone(brokers: Any, admin: Admin) -> None:
    try:
        topic, plan = await begin_stuck(brokers, admin)
        begun = asyncio.Event()
        task = asyncio.create_task(
            admin.apply_plan(plan, throttle=1_000_000, on_progress=lambda _: begun.set())
        )
        await begun.wait()
        await until_lists(brokers, admin, topic, ["0:1,0:2", "0:3"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await admin.list_partition_reassignments() == {}
        await until(brokers, admin, topic, lambda placed: placed[0] == ((1, 2), 1))
        await until_lists(brokers, admin, topic, ["", ""])
    finally:
        brokers.start(3)


async def test_all_replicas_leave_a_drained_broker(own_brokers: Any, tmp_path: Path) -> None:
    async with Admin(bootstrap_servers=own_brokers.servers) as admin:
        topic = await create(own_brokers, admin, {0: [2, 1], 1: [3, 2], 2: [1, 3], 3: [2, 3]})
        single = await create(own_brokers, admin, {0: [2], 1: [2]})
        before = await describe(admin, topic)
        plan = await admin.drain_broker(2, dry_run=True)
        assert await describe(admin, topic) == before
        assert await admin.list_partition_reassignments() == {}
        async with asyncio.timeout(30):  # The broker that was asked may not know the topics yet.
            while sum(tp.topic in (topic, single) for tp in plan.moves) < 5:
                plan = await admin.drain_broker(2, dry_run=True)
        assert plan.loads_before[2].replica_count == len(plan)
        assert plan.loads_after[2].replica_count == plan.loads_after[2].leader_count == 0
        done = await admin.drain_broker(2, throttle=50_000_000)
        assert done == plan
        for name in (topic, single):
            wanted: Placed = dict(await describe(admin, name))
            for tp, move in plan.moves.items():
                assert 2 not in move.after
                if tp.topic == name:
                    wanted[tp.partition] = (move.after, move.after[0])
            await until(own_brokers, admin, name, lambda placed, wanted=wanted: placed == wanted)
            await until_lists(own_brokers, admin, name, ["", ""])
        assert not await admin.drain_broker(2, dry_run=True)
    if own_brokers.is_real:
        path = tmp_path / "plan.json"
        path.write_text(plan.to_json())
        tool = JavaTool(
            JAVA,
            *("--bootstrap-server", own_brokers.servers),
            *("--reassignment-json-file", str(path), "--verify"),
        )
        assert tool.run().decode().count("is completed.") == len(plan)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["timeout", "cancellation"])
async def test_the_computation_of_a_plan_ends_when_the_call_does(
    embedded: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    began, ended = threading.Event(), threading.Event()

    def compute_for_ever(*arguments: Any) -> ReassignmentPlan:
        *_, is_stopped = arguments
        began.set()
        while not is_stopped():
            pass
        ended.set()
        return ReassignmentPlan({})

    monkeypatch.setattr(planning, "compute_plan", compute_for_ever)
    async with Admin(bootstrap_servers=embedded.bootstrap_servers) as admin:
        planned = asyncio.create_task(admin.rebalance_plan(timeout=30 if is_cancelled else 0.5))
        assert await asyncio.to_thread(began.wait, 30)
        if is_cancelled:
            planned.cancel()
            with pytest.raises(asyncio.CancelledError):
                await planned
        else:
            with pytest.raises(ApiTimeoutError, match="was not computed before the timeout"):
                await planned
    assert await asyncio.to_thread(ended.wait, 30)
