"""The keys and values of the records in Kafka's internal topics.

In a record, the number of its type precedes a key, and the version of its layout a value, each as
an int16. Names, types, and versions are those of Kafka 4.4, which writes the last version here.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.protocol.schema import (
    Message,
    Struct,
    array,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class OffsetCommitKey(Message, versions="0-1", flexible="none"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)


class GroupKey(Message, versions="0", flexible="none"):
    """The key of each record about a group as a whole."""

    group: str = string()


class MemberKey(Message, versions="0", flexible="none"):
    """The key of each record about one member."""

    group: str = string()
    member_id: str = string()


class RegularExpressionKey(Message, versions="0", flexible="none"):
    group: str = string()
    regular_expression: str = string()


class ClassicMemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, versions="0-3", flexible="none"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(null="0+")
    leader: str | None = string(null="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[ClassicMemberMetadata] = array(ClassicMemberMetadata)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string(null="0+")
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(null="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(null="0+")


class AssignmentEpochValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()


class AssignedTopic(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class TargetAssignmentValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[AssignedTopic] = array(AssignedTopic)


class CurrentAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[AssignedTopic] = array(AssignedTopic)
    partitions_pending_revocation: list[AssignedTopic] = array(AssignedTopic)


class RegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array(string)
    metadata_version: int = int64()
    timestamp: int = int64()


class TransactionLogKey(Message, versions="0", flexible="none"):
    transactional_id: str = string()


class TransactionPartitions(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=-1, ignorable=True)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    state: int = int8()
    partitions: list[TransactionPartitions] | None = array(TransactionPartitions, null="0+")
    last_update_timestamp: int = int64()
    start_timestamp: int = int64()
    client_transaction_version: int = int16("1+", tag=2, default=0, ignorable=True)


def encode_numbered(number: int, message: Message, version: int) -> bytes:
    """Return a key or a value: a number, and the message in a version."""
    return number.to_bytes(2, "big") + b"".join(message.encode(version))
