"""The embedded protocol of classic consumer groups, carried by JoinGroup and SyncGroup.

Each is preceded by its version as an int16. A reader that knows less than the
writer reads what it knows, so new versions only append fields.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Message, Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """What a member tells the leader of its group."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(null="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", null="0+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """What the leader of a group gives to a member."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(null="0+", default=None)
