"""The wire format of subscriptions and assignments, which JoinGroup and SyncGroup carry as bytes.

The data begins with a version, and newer versions only append fields. So older clients can read
newer data: they read the fields that they know and ignore the rest. Therefore this client always
writes the newest version, as Kafka's own clients do. Data from other members is not trusted: any
bytes that do not follow the format raise ProtocolError.
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

VERSION = 3
HEAD = 2

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Return the metadata of a member for JoinGroup.

    It does not include the instance id, for which JoinGroup has a field.
    """
    return _written(
        ConsumerProtocolSubscription(
            # A JoinGroup with other bytes than the last one begins a rebalance, so their order must
            # not vary.
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=_grouped(subscription.owned),
            generation_id=subscription.generation_id,
            rack_id=subscription.rack,
        )
    )


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Decode the metadata of a member, which may use any client.

    Raises ProtocolError for bytes that do not follow the format.
    """
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
    """Return the subscriptions of a group by member id.

    Each item of `members` consists of member id, instance id, and metadata. Raises
    AssignmentFailedError, which names the member, for metadata that cannot be decoded.
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
    """Return the assignment of a member as bytes for SyncGroup."""
    topics = _grouped(assignment.partitions)
    return _written(
        ConsumerProtocolAssignment(assigned_partitions=topics, user_data=assignment.user_data)
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """Decode an assignment from the leader of the group, which may use any client.

    Empty bytes mean no partitions. Raises ProtocolError for bytes that do not follow the format
    and for negative partition numbers.
    """
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
    # A newer version has more fields at the end, which are ignored, as in Java's client.
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
