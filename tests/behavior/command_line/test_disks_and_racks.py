"""Log directories and racks of three real brokers, typed and as calls of Admin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Admin, Producer, TopicPartition
from aiokclient.admin import (
    NewTopic,
    PartitionReassignment,
    PlannedMove,
    ReassignmentPlan,
    ReplicaLogDirs,
    TopicPartitionReplica,
)

pytestmark = [pytest.mark.walk, pytest.mark.kafka]
RACKS = ("a", "b", "b")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(java: str) -> Iterator[KafkaCluster]:
    factors = {
        f"{name}.replication.factor": 2
        for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    }
    with KafkaCluster(KAFKA, brokers=3, racks=RACKS, log_dirs=2, properties=factors) as cluster:
        yield cluster


def ask(cluster: KafkaCluster, call: Callable[[Admin], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            return await call(admin)

    return asyncio.run(main())


async def find_directory(admin: Admin, replica: TopicPartitionReplica) -> ReplicaLogDirs:
    described = await admin.describe_replica_log_dirs([replica])
    return described.raise_for_errors()[replica]


async def until_in(admin: Admin, replica: TopicPartitionReplica, path: str) -> None:
    async with asyncio.timeout(60):
        while (found := await find_directory(admin, replica)).path != path or found.future_path:
            pass


def test_a_replica_moves_to_the_directory_that_is_typed(cluster: KafkaCluster, run_on: Any) -> None:
    topic = cluster.create_topic(None, 1, 1)
    run, node = run_on(cluster.bootstrap), cluster.leader(topic)
    replica = TopicPartitionReplica(topic, 0, node)
    first, second = cluster.list_log_dirs(node)
    now = ask(cluster, lambda admin: find_directory(admin, replica)).path
    target = second if now == first else first
    typed = run("log-dirs", "move", f"{topic}:0", f"{node}:{target}")
    assert typed.code == 0, typed
    ask(cluster, lambda admin: until_in(admin, replica, target))
    described = json.loads(run("log-dirs", "describe", "--topics", topic, "--json").out)
    held = {each["path"]: each["replica_count"] for each in described if each["broker"] == node}
    assert held == {target: 1, now: 0}


def test_a_cordoned_directory_gets_no_replica_until_it_is_uncordoned(
    cluster: KafkaCluster, run_on: Any
) -> None:
    run = run_on(cluster.bootstrap)
    first, second = cluster.list_log_dirs(1)
    assert run("log-dirs", "cordon", f"1:{first}").code == 0

    async def place(admin: Admin, topic: str) -> set[str | None]:
        assignments = {index: [1] for index in range(4)}
        (await admin.create_topics([NewTopic(topic, assignments=assignments)])).raise_for_errors()
        replicas = [TopicPartitionReplica(topic, index, 1) for index in assignments]
        async with asyncio.timeout(60):
            while True:
                found = (await admin.describe_replica_log_dirs(replicas)).raise_for_errors()
                if all(each.path for each in found.values()):
                    return {each.path for each in found.values()}

    async def until_cordoned(admin: Admin, wanted: dict[str, bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                directories = (await admin.describe_log_dirs([1])).raise_for_errors()[1]
                if {each.path: each.is_cordoned for each in directories} == wanted:
                    return

    ask(cluster, lambda admin: until_cordoned(admin, {first: True, second: False}))
    assert ask(cluster, lambda admin: place(admin, "beside-cordoned")) == {second}
    assert run("log-dirs", "uncordon", f"1:{first}").code == 0
    ask(cluster, lambda admin: until_cordoned(admin, {first: False, second: False}))
    assert first in ask(cluster, lambda admin: place(admin, "uncordoned"))


def test_a_plan_moves_replicas_to_the_directories_that_it_names(cluster: KafkaCluster) -> None:
    async def main(admin: Admin) -> None:
        topic = "planned-directory"
        (await admin.create_topics([NewTopic(topic, assignments={0: [1]})])).raise_for_errors()
        target = cluster.list_log_dirs(3)[1]
        move = PlannedMove((3, 1), (1,), log_dirs=(target, "any"))
        plan = ReassignmentPlan({TopicPartition(topic, 0): move})
        assert (await admin.apply_plan(plan)).is_complete
        await until_in(admin, TopicPartitionReplica(topic, 0, 3), target)

    cluster.await_in_sync("__consumer_offsets")
    ask(cluster, main)


def test_a_plan_is_complete_once_its_directories_have_the_replicas(
    cluster: KafkaCluster, run_on: Any, tmp_path: Path
) -> None:
    topic = cluster.create_topic(None, 1, 1)
    run, node = run_on(cluster.bootstrap), cluster.leader(topic)
    replica = TopicPartitionReplica(topic, 0, node)
    first, second = cluster.list_log_dirs(node)

    async def begin(admin: Admin) -> ReassignmentPlan:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_all(topic, [bytes(100_000)] * 50)
        now = (await find_directory(admin, replica)).path
        target = second if now == first else first
        return ReassignmentPlan(
            {TopicPartition(topic, 0): PlannedMove((node,), (node,), log_dirs=(target,))}
        )

    plan = ask(cluster, begin)
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    before = ask(cluster, lambda admin: admin.describe_plan_progress(plan))
    assert before.stopped == (TopicPartition(topic, 0),)
    started = run("reassign", "start", str(file), "--log-dir-throttle", "1kB", "--yes")
    assert started.code == 0, started
    during = ask(cluster, lambda admin: admin.describe_plan_progress(plan))
    assert during.moving == {TopicPartition(topic, 0): PartitionReassignment((node,), (), ())}
    shown = run("reassign", "status", str(file))
    assert "0 of 1 partitions have been moved" in shown.err, shown
    assert "throttles" not in shown.err
    assert run("configs", "set", f"broker:{node}", f"{LOG_DIR_RATE}=100000000").code == 0
    (target,) = plan.moves[TopicPartition(topic, 0)].log_dirs
    ask(cluster, lambda admin: until_in(admin, replica, target))
    shown = run("reassign", "status", str(file))
    assert "1 of 1 partitions have been moved" in shown.err, shown


def test_plans_keep_the_racks_of_replicas(cluster: KafkaCluster, run_on: Any) -> None:
    async def main(admin: Admin) -> None:
        topic = "in-racks"
        assignments = {index: [1, 2] for index in range(6)}
        (await admin.create_topics([NewTopic(topic, assignments=assignments)])).raise_for_errors()
        cluster.await_partitions(topic, 6)
        plan = await admin.rebalance_plan([topic])
        # Broker 1 is the only one in its rack, so that all its replicas stay there.
        assert plan.loads_after[1].replica_count == 6
        assert [plan.loads_after[node].replica_count for node in (2, 3)] == [3, 3]
        assert (await admin.apply_plan(plan)).is_complete
        async with asyncio.timeout(60):
            while await admin.rebalance_plan([topic]):
                pass
        drained = await admin.drain_broker(2, dry_run=True)
        moved = {tp: move for tp, move in drained.moves.items() if tp.topic == topic}
        assert len(moved) == 3
        assert all(set(move.after) == {1, 3} for move in moved.values())

    ask(cluster, main)
    drained = run_on(cluster.bootstrap)("brokers", "drain", "2", "--yes")
    assert drained.code == 0, drained

    async def await_drained(admin: Admin) -> None:
        """Wait until the broker that is asked, which may lag, lists no replica on broker 2."""
        nodes = {2}
        async with asyncio.timeout(60):
            while 2 in nodes:
                topics = await admin.list_topics(internal=True)
                described = (await admin.describe_topics(topics)).raise_for_errors()
                nodes = {
                    node for t in described.values() for p in t.partitions for node in p.replicas
                }

    ask(cluster, await_drained)
