"""The records that coordinators write about share groups and share partitions.

They are those that Kafka 4.4 writes, except that `metadata_hash` is 0, and that the topics whose
states are being created are in a batch of their own. All functions here are
called with immutable objects, and the records are encoded when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.testing.broker.internal import schemas, share_schemas
from aiokclient.testing.broker.internal.schemas import encode_numbered
from aiokclient.testing.broker.topics.internal_partition import Record
from aiokclient.testing.broker.topics.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Message
    from aiokclient.testing.broker.groups.server_assignors import PartitionIds
    from aiokclient.testing.broker.share.members import ShareMember
    from aiokclient.testing.broker.share.records import StateChange
    from aiokclient.testing.broker.state import ClusterState

MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, STATES = 10, 11, 12, 13, 14, 15
"""The numbers of the types of records about share groups."""
_SNAPSHOT, _UPDATE = 0, 1


class ShareMemberChange(NamedTuple):
    """A member of a share group, and its target, before and after a change."""

    member_id: str
    before: ShareMember | None
    after: ShareMember | None
    target_before: PartitionIds | None
    target_after: PartitionIds | None


class ShareSnapshot(NamedTuple):
    """The record in which a share coordinator stores a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    finished: int
    created_ms: int
    changes: Sequence[StateChange]


# -- groups ------------------------------------------------------------------------------------


def write_share_group(
    cluster: ClusterState,
    group_id: str,
    changes: Sequence[ShareMemberChange],
    epoch: int | None,
    target_epoch: int | None,
) -> None:
    """Write what has changed in a share group. None is an unchanged epoch."""
    make = partial(_make_group, group_id, changes, epoch, target_epoch)
    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make)


def write_deleted_share_group(cluster: ClusterState, group_id: str) -> None:
    """Write that a share group without members was deleted."""

    def make_records() -> list[Record]:
        return [(_encode_key(each, group_id), None) for each in (TARGET_EPOCH, STATES, GROUP)]

    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make_records)


def write_share_topics(
    cluster: ClusterState,
    group_id: str,
    *,
    creating: Mapping[UUID, Sequence[int]] = {},
    existing: Mapping[UUID, Sequence[int]] = {},
    deleting: Iterable[UUID] = (),
) -> None:
    """Write the topics of which a share group has states. Deleted topics are left out."""
    names = {each: topic.name for each, topic in cluster.topics_by_id.items()}

    def list_topics(topics: Mapping[UUID, Sequence[int]]) -> list[share_schemas.ShareTopic]:
        return [
            share_schemas.ShareTopic(
                topic_id=each, topic_name=names[each], partitions=list(indexes)
            )
            for each, indexes in topics.items()
            if each in names
        ]

    value = share_schemas.StatePartitionMetadataValue(
        initializing_topics=list_topics(creating),
        initialized_topics=list_topics(existing),
        deleting_topics=[
            share_schemas.DeletedShareTopic(topic_id=each, topic_name=names[each])
            for each in deleting
            if each in names
        ],
    )
    make = partial(_make_topics, group_id, value)
    cluster.internal.write_records(OFFSETS_TOPIC, group_id, make)


def _make_topics(group_id: str, value: share_schemas.StatePartitionMetadataValue) -> list[Record]:
    return [(_encode_key(STATES, group_id), encode_numbered(0, value, 0))]


def _make_group(
    group_id: str,
    changes: Sequence[ShareMemberChange],
    epoch: int | None,
    target_epoch: int | None,
) -> list[Record]:
    records: list[Record] = []
    gone = [each.member_id for each in changes if each.after is None]
    there = [(each, each.after) for each in changes if each.after is not None]

    def add(number: int, value: Message, member_id: str | None = None) -> None:
        records.append((_encode_key(number, group_id, member_id), encode_numbered(0, value, 0)))

    for number in (CURRENT, TARGET, MEMBER):
        records += [(_encode_key(number, group_id, each), None) for each in gone]
    for change, member in there:
        if change.before is None or _make_member(change.before) != _make_member(member):
            add(MEMBER, _make_member(member), member.member_id)
    if epoch is not None:
        add(GROUP, share_schemas.ShareGroupMetadataValue(epoch=epoch))
    for change, member in there:
        if change.target_after is not None and change.target_after != change.target_before:
            topics = _list_topics(change.target_after)
            add(TARGET, schemas.TargetAssignmentValue(topic_partitions=topics), member.member_id)
    if target_epoch is not None:
        add(TARGET_EPOCH, schemas.AssignmentEpochValue(assignment_epoch=target_epoch))
    for change, member in there:
        if change.before is None or _make_current(change.before) != _make_current(member):
            add(CURRENT, _make_current(member), member.member_id)
    return records


def _encode_key(number: int, group_id: str, member_id: str | None = None) -> bytes:
    if member_id is None:
        return encode_numbered(number, schemas.GroupKey(group=group_id), 0)
    return encode_numbered(number, schemas.MemberKey(group=group_id, member_id=member_id), 0)


def _make_member(member: ShareMember) -> share_schemas.ShareGroupMemberMetadataValue:
    return share_schemas.ShareGroupMemberMetadataValue(
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
    )


def _make_current(member: ShareMember) -> share_schemas.ShareCurrentAssignmentValue:
    return share_schemas.ShareCurrentAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=max(member.previous_epoch, 0),
        assigned_partitions=_list_topics(member.assigned),
    )


def _list_topics(partitions: PartitionIds) -> list[schemas.AssignedTopic]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [schemas.AssignedTopic(topic_id=each, partitions=topics[each]) for each in topics]


# -- share partitions --------------------------------------------------------------------------


def write_share_state(
    cluster: ClusterState,
    group_id: str,
    topic_id: UUID,
    partition: int,
    snapshot: ShareSnapshot | None,
    *,
    is_update: bool = False,
) -> None:
    """Write the state of a share partition, an update of it, or that it was deleted."""
    key = share_schemas.ShareStateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    now = cluster.clock.time_ms()

    def make_records() -> list[Record]:
        encoded = encode_numbered(_UPDATE if is_update else _SNAPSHOT, key, 0)
        if snapshot is None:
            return [(encoded, None)]
        batches = [
            share_schemas.StateBatch(
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
            )
            for each in snapshot.changes
        ]
        if is_update:
            value: Message = share_schemas.ShareUpdateValue(
                snapshot_epoch=snapshot.snapshot_epoch,
                leader_epoch=snapshot.leader_epoch,
                start_offset=snapshot.start_offset,
                delivery_complete_count=snapshot.finished,
                state_batches=batches,
            )
        else:
            value = share_schemas.ShareSnapshotValue(
                snapshot_epoch=snapshot.snapshot_epoch,
                state_epoch=snapshot.state_epoch,
                leader_epoch=snapshot.leader_epoch,
                start_offset=snapshot.start_offset,
                delivery_complete_count=snapshot.finished,
                create_timestamp=snapshot.created_ms,
                write_timestamp=now,
                state_batches=batches,
            )
        return [(encoded, encode_numbered(0, value, 0))]

    name = f"{group_id}:{topic_id}:{partition}"
    cluster.internal.write_records(SHARE_STATE_TOPIC, name, make_records)
