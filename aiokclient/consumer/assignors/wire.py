"""Subscriptions and assignments as bytes: the protocol that consumers embed in the group's.

The version comes first, and new versions only append fields: of a newer one the known fields are
read and the rest is left alone. Written is the newest, as Kafka's own clients do, since every
reader is asked for the same tolerance. What other members send is not to be trusted: bytes that do
not follow the protocol raise a typed error, whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TypeVar

from aiokclient.consumer.assignors.assignor import MemberAssignment, MemberSubscription
from aiokclient.errors import AssignmentFailedError, ProtocolError
from aiokclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from aiokclient.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from aiokclient.types import TopicPartition

__all__ = [
    "decode_assignment",
    "decode_members",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

VERSION = 3
HEAD = 2

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The metadata of a member in JoinGroup. The instance id is a field of JoinGroup's own."""
    return _written(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=_grouped(subscription.owned),
            generation_id=subscription.generation_id,
            rack_id=subscription.rack,
        )
    )


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """What a member of any client sent; ProtocolError for what no version of the protocol is."""
    message = _read(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        topics=tuple(dict.fromkeys(message.topics)),
        user_data=message.user_data,
        owned=_single(message.owned_partitions),
        generation_id=max(message.generation_id, -1),
        rack=message.rack_id or None,
        instance_id=instance_id,
    )


def decode_members(
    members: Iterable[tuple[str, str | None, bytes]],
) -> dict[str, MemberSubscription]:
    """The subscriptions of a group by member id, out of (member id, instance id, metadata).

    Raises AssignmentFailedError, which names the member, for metadata that cannot be read.
    """
    found = {}
    for member_id, instance_id, metadata in members:
        try:
            found[member_id] = decode_subscription(metadata, instance_id)
        except ProtocolError as error:
            raise AssignmentFailedError(
                f"The subscription of member {member_id!r} cannot be read: {error} Its metadata "
                f"begins with {metadata[:32].hex(' ')!r}. Stop that member, or repair its client."
            ) from error
    return found


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """What a member gets, as SyncGroup carries it."""
    topics = _grouped(assignment.partitions)
    return _written(
        ConsumerProtocolAssignment(assigned_partitions=topics, user_data=assignment.user_data)
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """What a leader of any client gave; no bytes mean no partitions. Raises ProtocolError."""
    if not data:
        return MemberAssignment()
    message = _read(ConsumerProtocolAssignment, data)
    partitions = _single(message.assigned_partitions)
    for partition in partitions:
        if partition.partition < 0:
            raise ProtocolError(
                f"The leader of the group has assigned {partition}, which is not a valid partition."
            )
    return MemberAssignment(partitions, message.user_data)


def _written(message: ConsumerProtocolAssignment | ConsumerProtocolSubscription) -> bytes:
    return VERSION.to_bytes(HEAD, "big") + b"".join(message.encode(VERSION))


def _read(kind: type[M], data: bytes) -> M:
    version = int.from_bytes(data[:HEAD], "big", signed=True)
    if len(data) < HEAD or version < 0:
        raise ProtocolError(f"{kind.__name__} does not begin with a version.")
    return kind.decode_from(data, HEAD, min(version, VERSION))[0]


def _grouped(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    groups = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return [
        TopicPartitions(topic=topic, partitions=[index for _, index in group])
        for topic, group in groups
    ]


def _single(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    found = (TopicPartition(one.topic, index) for one in topics for index in one.partitions)
    return tuple(dict.fromkeys(found))
