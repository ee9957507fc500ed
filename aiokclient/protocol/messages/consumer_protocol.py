"""The messages of classic consumer groups, which JoinGroup and SyncGroup transport as bytes.

The version precedes each message as an int16. New versions only append fields, so
that an older reader can read the fields that it knows.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Message, Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """The metadata that a member sends to the leader of its group."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(null="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", null="0+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """The assignment that the leader of a group sends to a member."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(null="0+", default=None)
