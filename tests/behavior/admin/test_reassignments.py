"""Elections and reassignments of partitions, the same on the embedded cluster and a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from aiokclient import Admin, Producer, TopicPartition
from aiokclient.admin import (
    ElectionType,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    PartitionDescription,
    PartitionReassignment,
    TopicDescription,
)
from aiokclient.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError


@pytest.fixture
async def admin(brokers: Any) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=brokers.servers) as admin:
        yield admin


async def describe(admin: Admin, tp: TopicPartition) -> PartitionDescription | None:
    topic = (await admin.describe_topics([tp.topic]))[tp.topic]
    found = isinstance(topic, TopicDescription) and len(topic.partitions) > tp.partition
    return topic.partitions[tp.partition] if found else None


async def until(
    brokers: Any,
    admin: Admin,
    tp: TopicPartition,
    is_reached: Callable[[PartitionDescription], bool],
) -> PartitionDescription:
    """Wait until the partition has a state, and all brokers know it."""
    async with asyncio.timeout(30):
        while (found := await describe(admin, tp)) is None or not is_reached(found):
            pass
    await brokers.await_all()
    return found


async def create(brokers: Any, admin: Admin, *replicas: int) -> TopicPartition:
    tp = TopicPartition(f"moved-{uuid.uuid4().hex[:12]}", 0)
    (await admin.create_topics([NewTopic(tp.topic, assignments={0: replicas})])).raise_for_errors()
    await until(
        brokers, admin, tp, lambda p: p.leader == replicas[0] and len(p.isr) == len(replicas)
    )
    return tp


async def move(admin: Admin, tp: TopicPartition, replicas: Sequence[int] | None) -> None:
    (await admin.alter_partition_reassignments({tp: replicas})).raise_for_errors()


async def test_a_partition_moves_to_other_brokers(brokers: Any, admin: Admin) -> None:
    tp = await create(brokers, admin, 1)
    async with Producer(bootstrap_servers=brokers.servers) as producer:
        await producer.send(tp.topic, b"v")
    await move(admin, tp, [2, 3])
    found = await until(brokers, admin, tp, lambda p: p.replicas == (2, 3) and p.leader in (2, 3))
    assert sorted(found.isr) == [2, 3]
    assert await admin.list_partition_reassignments([tp]) == {}
    listed = await admin.list_offsets({tp: OffsetSpec.LATEST})
    end = listed.raise_for_errors()[tp]
    assert isinstance(end, ListedOffset)
    assert end.offset == 1


async def test_an_election_makes_the_first_replica_the_leader(brokers: Any, admin: Admin) -> None:
    tp = await create(brokers, admin, 1, 2)
    results = await admin.elect_leaders(ElectionType.PREFERRED, [tp])
    assert isinstance(results[tp], ElectionNotNeededError)
    # Another order of the same replicas moves no leader.
    await move(admin, tp, [2, 1])
    found = await until(brokers, admin, tp, lambda p: p.replicas == (2, 1))
    assert found.leader == 1
    assert await admin.list_partition_reassignments() == {}
    results = await admin.elect_leaders(ElectionType.PREFERRED, [tp])
    assert results.raise_for_errors() == {tp: None}
    await until(brokers, admin, tp, lambda p: p.leader == 2)
    await move(admin, tp, [1, 2])
    await until(brokers, admin, tp, lambda p: p.replicas == (1, 2))
    results = await admin.elect_leaders(ElectionType.PREFERRED)
    assert results[tp] is None
    await until(brokers, admin, tp, lambda p: p.leader == 1)
    assert tp not in await admin.elect_leaders(ElectionType.PREFERRED)


async def test_partitions_that_do_not_exist_are_not_elected_or_moved(
    brokers: Any, admin: Admin
) -> None:
    tp = await create(brokers, admin, 1)
    absent = TopicPartition(f"absent-{uuid.uuid4().hex[:12]}", 0)
    beyond = TopicPartition(tp.topic, 9)
    for kind in ElectionType:
        results = await admin.elect_leaders(kind, [absent, beyond, tp])
        assert list(results) == [absent, beyond, tp]
        assert [type(each) for each in results.values()] == [
            UnknownTopicOrPartitionError,
            UnknownTopicOrPartitionError,
            ElectionNotNeededError,
        ]
    moved = await admin.alter_partition_reassignments({absent: [1], beyond: [1], tp: [1]})
    assert {type(each) for each in moved.errors.values()} == {UnknownTopicOrPartitionError}
    assert list(moved.succeeded) == [tp]
    assert f"Unable to find a topic named {absent.topic}." in str(moved[absent])
    assert f"Unable to find partition {tp.topic}:9." in str(moved[beyond])
    assert await admin.list_partition_reassignments([absent, beyond, tp]) == {}
    assert await admin.list_partition_reassignments([]) == {}
    assert await admin.elect_leaders(ElectionType.UNCLEAN, []) == {}
    assert await admin.alter_partition_reassignments({}) == {}


async def test_replicas_that_are_not_possible_are_refused(brokers: Any, admin: Admin) -> None:
    tp = await create(brokers, admin, 1, 2)
    for replicas, why in (
        ([], "includes an empty replica list"),
        ([1, 1], "includes the broker 1 more than once"),
        ([1, 77], "includes broker 77, but no such broker is registered"),
    ):
        results = await admin.alter_partition_reassignments({tp: replicas})
        assert isinstance(results[tp], InvalidReplicaAssignmentError)
        assert why in str(results[tp])
    results = await admin.alter_partition_reassignments({tp: None})
    assert isinstance(results[tp], NoReassignmentInProgressError)
    results = await admin.alter_partition_reassignments(
        {tp: [1, 2, 3]}, allow_replication_factor_change=False
    )
    assert isinstance(results[tp], InvalidReplicationFactorError)
    assert "The replication factor is changed from 2 to 3" in str(results[tp])
    wrong: Any = {tp: ["1"]}
    with pytest.raises(ArgumentTypeError, match="are not the replicas"):
        await admin.alter_partition_reassignments(wrong)
    with pytest.raises(ArgumentTypeError, match="is not an ElectionType"):
        await admin.elect_leaders("preferred", [tp])  # type: ignore[arg-type]


async def test_a_reassignment_waits_for_a_broker_and_can_be_cancelled(
    brokers: Any, admin: Admin
) -> None:
    tp = await create(brokers, admin, 1, 2)
    brokers.stop(3)
    try:
        await move(admin, tp, [3, 1])
        moving = await admin.list_partition_reassignments([tp])
        assert moving == {tp: PartitionReassignment((3, 1, 2), (3,), (2,))}
        assert moving[tp].target == (3, 1)
        await until(brokers, admin, tp, lambda p: p.replicas == (3, 1, 2))
        await move(admin, tp, [3, 2])
        moving = await admin.list_partition_reassignments()
        assert moving == {tp: PartitionReassignment((3, 2, 1), (3,), (1,))}
        results = await admin.alter_partition_reassignments(
            {tp: [3]}, allow_replication_factor_change=False
        )
        assert "is changed from 2 to 1" in str(results.errors[tp])
        # A cancellation does not restore the order.
        await move(admin, tp, None)
        await until(brokers, admin, tp, lambda p: p.replicas == (2, 1))
        assert await admin.list_partition_reassignments() == {}
        await move(admin, tp, [3])
    finally:
        brokers.start(3)
    found = await until(brokers, admin, tp, lambda p: p.replicas == (3,) and p.leader == 3)
    assert found.isr == (3,)


async def test_an_unclean_election_needs_a_running_replica(brokers: Any, admin: Admin) -> None:
    tp = await create(brokers, admin, 3, 2)
    brokers.stop(2)
    brokers_running = [3]
    try:
        await until(brokers, admin, tp, lambda p: p.isr == (3,))
        async with Producer(bootstrap_servers=brokers.servers) as producer:
            await producer.send(tp.topic, b"lost")
        brokers.stop(3)
        brokers_running.clear()
        await until(brokers, admin, tp, lambda p: p.leader is None)
        results = await admin.elect_leaders(ElectionType.UNCLEAN, [tp])
        assert isinstance(results[tp], EligibleLeadersNotAvailableError)
        assert isinstance(
            (await admin.elect_leaders(ElectionType.UNCLEAN))[tp], EligibleLeadersNotAvailableError
        )
        results = await admin.elect_leaders(ElectionType.PREFERRED, [tp])
        assert isinstance(results[tp], PreferredLeaderNotAvailableError)
        brokers.start(2)
        brokers_running.append(2)
        async with asyncio.timeout(30):
            while (await admin.elect_leaders(ElectionType.UNCLEAN, [tp])).errors:
                pass
        found = await until(brokers, admin, tp, lambda p: p.leader == 2)
        assert found.isr == (2,)
        listed = await admin.list_offsets({tp: OffsetSpec.LATEST})
        end = listed.raise_for_errors()[tp]
        assert isinstance(end, ListedOffset)
        assert end.offset == 0
    finally:
        for node in {2, 3} - set(brokers_running):
            brokers.start(node)
