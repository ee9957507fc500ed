"""Descriptions of groups and their members, decoded from the responses of three APIs.

All functions are synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiokclient.admin.cluster import AclOperation, BrokerDescription, read_operations
from aiokclient.errors import ProtocolError
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from aiokclient.types import TopicPartition, public_in

CONSUMER = "consumer"
UNKNOWN_TYPE, CLASSIC_TYPE = -1, 0
"""Types of the members of consumer groups, in the protocol."""


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as `list_groups` returns it: type, state, and coordinator.

    The type is "classic", "consumer", "share", or "streams". `protocol_type` is the purpose of a
    classic group: "consumer", "connect", or a value that the application has defined. It is empty
    for a group that only stores offsets. `state` is empty if the broker is older than 2.6.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: BrokerDescription


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """A member of a group. `partitions` is its assignment if it is a consumer.

    `metadata` and `assignment` are the encoded data of a member of a classic group. `epoch`,
    `target`, `rack`, and `subscribed` are set for members of other groups. `target` has the
    partitions that the member will own when the current rebalance is complete. `classic` is whether
    a member of a consumer group still uses the classic protocol, or None if the broker does not say
    (before Kafka 4.0) or the group has another type.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    metadata: bytes = b""
    assignment: bytes = b""
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    rack: str | None = None
    subscribed: tuple[str, ...] = ()
    classic: bool | None = None

    def __setstate__(self, state: Sequence[object]) -> None:
        _restore_fields(self, state)


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. `protocol` is the assignor or other protocol that the group uses.

    `epoch` is set for all types except classic groups, and so is `assignment_epoch`, the epoch for
    which the members' targets were computed. `authorized_operations` is None unless the call
    requested it.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    protocol: str
    coordinator: BrokerDescription
    members: tuple[GroupMemberDescription, ...]
    epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None
    assignment_epoch: int | None = None

    def __setstate__(self, state: Sequence[object]) -> None:
        _restore_fields(self, state)


def _restore_fields(
    self: GroupDescription | GroupMemberDescription, state: Sequence[object]
) -> None:
    """Set the fields to those of a pickle. Pickles of an earlier version lack the last one."""
    missing = [None] * (len(self.__match_args__) - len(state))
    for name, value in zip(self.__match_args__, [*state, *missing], strict=True):
        object.__setattr__(self, name, value)


def read_classic_group(group: Any, coordinator: BrokerDescription) -> GroupDescription:
    """Return a description of a group in a DescribeGroups response."""
    return GroupDescription(
        group.group_id,
        "classic",
        group.protocol_type,
        group.group_state,
        group.protocol_data,
        coordinator,
        tuple(_read_classic_member(member, group.protocol_type) for member in group.members),
        None,
        read_operations(group.authorized_operations),
    )


def _read_classic_member(member: Any, protocol_type: str) -> GroupMemberDescription:
    assignment = bytes(member.member_assignment)
    return GroupMemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        _assigned(assignment) if protocol_type == CONSUMER else (),
        bytes(member.member_metadata),
        assignment,
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment; empty if it cannot be decoded."""
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.max_version)
    try:
        found = ConsumerProtocolAssignment.decode(memoryview(assignment)[2:], version)
    except ProtocolError:
        return ()
    return _read_partitions((topic.topic, topic.partitions) for topic in found.assigned_partitions)


def read_epoch_group(group: Any, kind: str, coordinator: BrokerDescription) -> GroupDescription:
    """Return a description of a group in a ConsumerGroupDescribe or ShareGroupDescribe response."""
    return GroupDescription(
        group.group_id,
        kind,
        kind,
        group.group_state,
        group.assignor_name,
        coordinator,
        tuple(map(_read_epoch_member, group.members)),
        group.group_epoch,
        read_operations(group.authorized_operations),
        group.assignment_epoch,
    )


def _read_epoch_member(member: Any) -> GroupMemberDescription:
    target = getattr(member, "target_assignment", None)
    kind = getattr(member, "member_type", UNKNOWN_TYPE)
    return GroupMemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        getattr(member, "instance_id", None),
        _named(member.assignment),
        epoch=member.member_epoch,
        target=None if target is None else _named(target),
        rack=member.rack_id,
        subscribed=tuple(member.subscribed_topic_names),
        classic=None if kind == UNKNOWN_TYPE else kind == CLASSIC_TYPE,
    )


def _named(assignment: Any) -> tuple[TopicPartition, ...]:
    return _read_partitions(
        (each.topic_name, each.partitions) for each in assignment.topic_partitions
    )


def _read_partitions(topics: Iterable[tuple[str, list[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic, index) for topic, indexes in topics for index in indexes)
    )
