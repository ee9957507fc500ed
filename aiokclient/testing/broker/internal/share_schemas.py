"""The keys and values of the records about share groups in Kafka's internal topics.

Names, types, and versions are those of Kafka 4.4. Records about groups are in `__consumer_offsets`,
those about share partitions in `__share_group_state`.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from aiokclient.testing.broker.internal.schemas import AssignedTopic


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareTopic(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class DeletedShareTopic(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()


class StatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The topics whose states are being created, exist, and are being deleted."""

    initializing_topics: list[ShareTopic] = array(ShareTopic)
    initialized_topics: list[ShareTopic] = array(ShareTopic)
    deleting_topics: list[DeletedShareTopic] = array(DeletedShareTopic)


class ShareCurrentAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[AssignedTopic] = array(AssignedTopic)


class ShareStateKey(Message, versions="0", flexible="none"):
    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
