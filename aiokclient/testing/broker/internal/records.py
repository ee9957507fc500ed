"""The records that coordinators write about groups and transactional ids.

Offsets, classic groups, groups of the consumer protocol, and transactional ids are written when
Kafka writes them. There are these differences: `metadata_hash` is 0, a member of a consumer group
that uses the classic protocol has no metadata of that protocol, and a regular expression has no
record. All functions here are called with immutable objects, and their results are made later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.testing.broker.internal import schemas
from aiokclient.testing.broker.internal.schemas import encode_numbered
from aiokclient.testing.broker.topics.internal_partition import Record
from aiokclient.testing.broker.topics.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from aiokclient.testing.broker.groups.consumer_member import ConsumerMember
    from aiokclient.testing.broker.groups.members import ClassicMember
    from aiokclient.testing.broker.groups.offsets import Committed
    from aiokclient.testing.broker.groups.server_assignors import PartitionIds
    from aiokclient.testing.broker.internal.topics import ProducerKey
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.types import TopicPartition

OFFSET, CLASSIC_GROUP, CONSUMER_GROUP, SUBSCRIPTION = 1, 2, 3, 4
MEMBER, TARGET_EPOCH, TARGET, CURRENT = 5, 6, 7, 8
"""The numbers of the types of records about groups.

Kafka writes no subscriptions of groups any more, but removes those of earlier versions.
"""
_OFFSET_VERSION, _CLASSIC_VERSION = 4, 3
_MEMBER_STATES = {"stable": 0, "unrevoked": 1, "unreleased": 2}
_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)


class ClassicGroupSnapshot(NamedTuple):
    """The state of a classic group to be written. `at_ms` is the time when its state began."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    at_ms: int
    members: tuple[ClassicMember, ...]


class MemberChange(NamedTuple):
    """A member of a consumer group, and its target, before and after a change."""

    member_id: str
    before: ConsumerMember | None
    after: ConsumerMember | None
    target_before: PartitionIds | None
    target_after: PartitionIds | None


class TransactionSnapshot(NamedTuple):
    """The state of a transactional id to be written."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[TopicPartition, ...]
    updated_ms: int
    started_ms: int
    client_level: int


# -- offsets -----------------------------------------------------------------------------------


def write_offsets(
    cluster: ClusterState,
    group_id: str,
    offsets: Mapping[TopicPartition, Committed],
    producer: ProducerKey | None = None,
) -> None:
    """Write committed offsets. Those with a producer are part of its transaction."""
    topics = cluster.topics
    # A topic may have been deleted while a long request was handled.
    found = [
        (tp, each, topics[tp.topic].topic_id) for tp, each in offsets.items() if tp.topic in topics
    ]
    make = partial(_make_offsets, group_id, found)
    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make, producer)


def write_deleted_offsets(
    cluster: ClusterState, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    """Write that offsets were deleted."""
    gone = tuple(partitions)
    if gone:
        make = partial(_make_deleted_offsets, group_id, gone)
        cluster.internal.write_records(OFFSETS_TOPIC, group_id, make)


def _make_offsets(
    group_id: str, offsets: Sequence[tuple[TopicPartition, Committed, UUID]]
) -> list[Record]:
    return [
        (
            _encode_offset_key(group_id, tp),
            encode_numbered(
                _OFFSET_VERSION,
                schemas.OffsetCommitValue(
                    offset=committed.offset,
                    leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    commit_timestamp=committed.at_ms,
                    topic_id=topic_id,
                ),
                _OFFSET_VERSION,
            ),
        )
        for tp, committed, topic_id in offsets
    ]


def _make_deleted_offsets(group_id: str, partitions: Sequence[TopicPartition]) -> list[Record]:
    return [(_encode_offset_key(group_id, tp), None) for tp in partitions]


def _encode_offset_key(group_id: str, tp: TopicPartition) -> bytes:
    key = schemas.OffsetCommitKey(group=group_id, topic=tp.topic, partition=tp.partition)
    return encode_numbered(OFFSET, key, 1)


# -- groups ------------------------------------------------------------------------------------


def write_classic_group(
    cluster: ClusterState, group_id: str, snapshot: ClassicGroupSnapshot | None
) -> None:
    """Write the state of a classic group, or that it was deleted."""
    make = partial(_make_classic_group, group_id, snapshot)
    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make)


def _make_classic_group(group_id: str, snapshot: ClassicGroupSnapshot | None) -> list[Record]:
    key = _encode_group_key(CLASSIC_GROUP, group_id)
    if snapshot is None:
        return [(key, None)]
    value = schemas.GroupMetadataValue(
        protocol_type=snapshot.protocol_type,
        generation=snapshot.generation,
        protocol=snapshot.protocol,
        leader=snapshot.leader,
        current_state_timestamp=snapshot.at_ms,
        members=[
            schemas.ClassicMemberMetadata(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout=each.rebalance_timeout_ms,
                session_timeout=each.session_timeout_ms,
                subscription=each.find_metadata(snapshot.protocol),
                assignment=each.assignment,
            )
            for each in snapshot.members
        ],
    )
    return [(key, encode_numbered(_CLASSIC_VERSION, value, _CLASSIC_VERSION))]


def write_consumer_group(
    cluster: ClusterState,
    group_id: str,
    changes: Sequence[MemberChange],
    epoch: int | None,
    target_epoch: int | None,
) -> None:
    """Write what has changed in a group of the consumer protocol. None is an unchanged epoch."""
    make = partial(_make_consumer_group, group_id, changes, epoch, target_epoch)
    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make)


def write_deleted_consumer_group(
    cluster: ClusterState, group_id: str, changes: Sequence[MemberChange]
) -> None:
    """Write that a group of the consumer protocol was deleted. `changes` remove its members."""

    def make_records() -> list[Record]:
        ids = [each.member_id for each in changes]

        def remove_members(number: int) -> list[Record]:
            return [(_encode_member_key(number, group_id, each), None) for each in ids]

        def remove_group(number: int) -> list[Record]:
            return [(_encode_group_key(number, group_id), None)]

        return [
            *remove_members(CURRENT),
            *remove_members(TARGET),
            *remove_group(TARGET_EPOCH),
            *remove_members(MEMBER),
            *remove_group(SUBSCRIPTION),
            *remove_group(CONSUMER_GROUP),
        ]

    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make_records)


def _make_consumer_group(
    group_id: str,
    changes: Sequence[MemberChange],
    epoch: int | None,
    target_epoch: int | None,
) -> list[Record]:
    records: list[Record] = []
    gone = [each for each in changes if each.after is None]
    there = [(each, each.after) for each in changes if each.after is not None]
    for number in (CURRENT, TARGET, MEMBER):
        records += [(_encode_member_key(number, group_id, each.member_id), None) for each in gone]
    for change, member in there:
        value = _encode_member(member)
        if change.before is None or _encode_member(change.before) != value:
            records.append((_encode_member_key(MEMBER, group_id, member.member_id), value))
    if epoch is not None:
        group = schemas.ConsumerGroupMetadataValue(epoch=epoch)
        records.append((_encode_group_key(CONSUMER_GROUP, group_id), encode_numbered(0, group, 0)))
    for change, member in there:
        if change.target_after is not None and change.target_after != change.target_before:
            target = schemas.TargetAssignmentValue(
                topic_partitions=_list_topics(change.target_after)
            )
            key = _encode_member_key(TARGET, group_id, member.member_id)
            records.append((key, encode_numbered(0, target, 0)))
    if target_epoch is not None:
        assigned = schemas.AssignmentEpochValue(assignment_epoch=target_epoch)
        key = _encode_group_key(TARGET_EPOCH, group_id)
        records.append((key, encode_numbered(0, assigned, 0)))
    for change, member in there:
        value = _encode_current(member)
        if change.before is None or _encode_current(change.before) != value:
            records.append((_encode_member_key(CURRENT, group_id, member.member_id), value))
    return records


def _encode_group_key(number: int, group_id: str) -> bytes:
    return encode_numbered(number, schemas.GroupKey(group=group_id), 0)


def _encode_member_key(number: int, group_id: str, member_id: str) -> bytes:
    return encode_numbered(number, schemas.MemberKey(group=group_id, member_id=member_id), 0)


def _encode_member(member: ConsumerMember) -> bytes:
    value = schemas.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    return encode_numbered(0, value, 0)


def _encode_current(member: ConsumerMember) -> bytes:
    value = schemas.CurrentAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_MEMBER_STATES[member.state.value],
        assigned_partitions=_list_topics(member.assigned),
        partitions_pending_revocation=_list_topics(member.revoking),
    )
    return encode_numbered(0, value, 0)


def _list_topics(partitions: PartitionIds) -> list[schemas.AssignedTopic]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [schemas.AssignedTopic(topic_id=each, partitions=topics[each]) for each in topics]


# -- transactional ids -------------------------------------------------------------------------


def write_transaction(
    cluster: ClusterState, transactional_id: str, snapshot: TransactionSnapshot | None, level: int
) -> None:
    """Write the state of a transactional id at a level of transaction.version, or its end."""
    make = partial(_make_transaction, transactional_id, snapshot, level)
    cluster.internal.write_records(TRANSACTIONS_TOPIC, transactional_id, make)


def _make_transaction(
    transactional_id: str, snapshot: TransactionSnapshot | None, level: int
) -> list[Record]:
    key = encode_numbered(0, schemas.TransactionLogKey(transactional_id=transactional_id), 0)
    if snapshot is None:
        return [(key, None)]
    topics: dict[str, list[int]] = {}
    for tp in snapshot.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    value = schemas.TransactionLogValue(
        producer_id=snapshot.producer_id,
        previous_producer_id=snapshot.previous_producer_id,
        next_producer_id=snapshot.next_producer_id,
        producer_epoch=snapshot.producer_epoch,
        transaction_timeout_ms=snapshot.timeout_ms,
        state=_TRANSACTION_STATES.index(snapshot.state),
        partitions=None
        if snapshot.state == _TRANSACTION_STATES[0]
        else [
            schemas.TransactionPartitions(topic=topic, partition_ids=sorted(indexes))
            for topic, indexes in topics.items()
        ],
        last_update_timestamp=snapshot.updated_ms,
        start_timestamp=snapshot.started_ms,
        client_transaction_version=snapshot.client_level,
    )
    # Level 0 stores nothing that has a tag (KIP-890).
    version = min(level, 1)
    return [(key, encode_numbered(version, value, version))]
