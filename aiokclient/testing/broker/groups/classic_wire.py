"""The messages that classic consumers exchange in JoinGroup and SyncGroup, decoded and encoded.

Brokers decode them only if a group is converted or has members of both protocols. Like all readers
of these messages, they ignore bytes after the fields that they know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokclient.errors import ProtocolError
from aiokclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.server_assignors import PartitionId, PartitionIds

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState

_VERSION = struct.Struct(">h")


def read_version(data: bytes) -> int:
    """Return the version at the start of an embedded message, limited to the highest known one."""
    if len(data) < _VERSION.size:
        raise _make_malformed_error("The data is too short.")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise _make_malformed_error("The version is negative.")
    return min(version, ConsumerProtocolSubscription.max_version)


def _make_malformed_error(why: str) -> Refused:
    return Refused(Code.GROUP_ID_NOT_FOUND, f"The embedded consumer protocol is malformed. {why}")


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return a member's subscription. Raises Refused if it cannot be decoded."""
    try:
        return ConsumerProtocolSubscription.decode_from(data, _VERSION.size, read_version(data))[0]
    except ProtocolError as error:
        raise _make_malformed_error(error.message) from None


def read_assignment(cluster: ClusterState, data: bytes) -> PartitionIds:
    """Return the existing partitions of an assignment. Empty bytes mean no partitions."""
    if not data:
        return frozenset()
    try:
        version = read_version(data)
        read, _ = ConsumerProtocolAssignment.decode_from(data, _VERSION.size, version)
    except ProtocolError as error:
        raise _make_malformed_error(error.message) from None
    return find_partition_ids(cluster, read.assigned_partitions)


def find_partition_ids(cluster: ClusterState, named: Iterable[TopicPartition]) -> PartitionIds:
    topics = cluster.topics
    return frozenset(
        PartitionId(topics[each.topic].topic_id, index)
        for each in named
        if each.topic in topics
        for index in each.partitions
    )


def encode_assignment(cluster: ClusterState, partitions: PartitionIds, version: int) -> bytes:
    """Encode an assignment as a leader would. Partitions of deleted topics are left out."""
    named: dict[str, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topic = cluster.topics_by_id.get(topic_id)
        if topic is not None:
            named.setdefault(topic.name, []).append(index)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in named.items()
        ]
    )
    return _VERSION.pack(version) + b"".join(message.encode(version))
