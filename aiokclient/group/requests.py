"""The requests of a member, and the meaning of the responses. Without IO.

SyncGroup has no field for a failed assignment. So the leader reports it to all members by a payload
of this form, which it sends instead of their assignments:

    MAGIC, the name of the error in UTF-8, a newline, its text in UTF-8

In groups of protocol type `consumer` the payload is the user data of an assignment without
partitions (version 0), so that members of other libraries receive an empty assignment. In all other
groups it is the whole assignment. Successful assignments are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokclient.errors import (
    AssignmentFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    ProtocolError,
    error_for,
)
from aiokclient.group.handler import GroupSettings, MemberInfo
from aiokclient.group.states import CODES
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from aiokclient.protocol.messages.heartbeat import HeartbeatRequest
from aiokclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from aiokclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiokclient.types import GroupMetadata

REASON_CHARACTERS = 255
"""The length to which a reason is truncated (KIP-800). Brokers may refuse longer ones."""

MAGIC = b"\x00\xffaiokclient assignment failed\n"
"""The first bytes of a payload that reports a failure. No assignment begins with these bytes."""

CONSUMER = "consumer"
"""The protocol type of consumers."""

LONGEST_FAILURE = 2000
"""The largest number of characters of an error's text that is sent."""


def join(
    settings: GroupSettings,
    member_id: str,
    protocol_type: str,
    protocols: Sequence[tuple[str, bytes]],
    reason: str,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
        reason=reason[:REASON_CHARACTERS],
    )


def sync(
    member: GroupMetadata, protocol_type: str, protocol: str, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def heartbeat(member: GroupMetadata) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave(member: GroupMetadata, reason: str, *, batched: bool = True) -> LeaveGroupRequest:
    """Return a LeaveGroup. Brokers before 2.4 need the form for one member (not `batched`)."""
    if not batched:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    identity = MemberIdentity(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        reason=reason[:REASON_CHARACTERS],
    )
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])


def unexpected(response: Any) -> KafkaError | None:
    """Return the error of a response, unless its code is an event of the table."""
    code = response.error_code
    return None if code in CODES else error_for(code)


def left(response: LeaveGroupResponse) -> KafkaError | None:
    """Return the error of a LeaveGroup. It is no error if the group does not know the member."""
    codes = [response.error_code, *(member.error_code for member in response.members)]
    errors = [error_for(code) for code in codes if code not in CODES]
    return next((error for error in errors if error is not None), None)


def mismatch(response: Any, protocol_type: str, protocol: str | None) -> KafkaError | None:
    """Return an error if a response is for another protocol or type of group (KIP-559), or None.

    Before version 7 of JoinGroup and version 5 of SyncGroup, responses do not name them.
    """
    for mine, theirs in (
        (protocol_type, response.protocol_type),
        (protocol, response.protocol_name),
    ):
        if mine is not None and theirs is not None and mine != theirs:
            return InconsistentGroupProtocolError(
                f"The coordinator answered for {theirs!r}, but this member joined with {mine!r}."
            )
    return None


def checked(assigned: Mapping[str, bytes], members: Sequence[MemberInfo]) -> dict[str, bytes]:
    """Return the assignment of every member, with empty bytes for members without one.

    Raises ValueError for an id that is not a member's, and TypeError for an assignment that is not
    bytes.
    """
    if not isinstance(assigned, Mapping):
        raise TypeError(f"assign() returned {assigned!r}, not a mapping from member ids to bytes.")
    known = {member.member_id for member in members}
    for member_id, assignment in assigned.items():
        if member_id not in known:
            raise ValueError(
                f"assign() returned an assignment for {member_id!r}, which is not a member."
            )
        if not isinstance(assignment, bytes):
            raise TypeError(
                f"assign() returned {assignment!r} for member {member_id!r}, not bytes."
            )
    return {member.member_id: assigned.get(member.member_id, b"") for member in members}


def failure_payload(protocol_type: str, error: BaseException) -> bytes:
    """Return the payload that is sent instead of assignments when computing them has failed."""
    name, text = type(error).__name__, str(error)[:LONGEST_FAILURE]
    payload = MAGIC + f"{name}\n{text}".encode(errors="replace")
    if protocol_type != CONSUMER:
        return payload
    empty = ConsumerProtocolAssignment(user_data=payload)
    # Members read the version of the format first, here 0.
    return b"\x00\x00" + b"".join(empty.encode(0))


def failure_in(protocol_type: str, assignment: bytes) -> AssignmentFailedError | None:
    """Return the failure that was sent instead of an assignment, or None for an assignment."""
    payload = _user_data(assignment) if protocol_type == CONSUMER else assignment
    if payload is None or not payload.startswith(MAGIC):
        return None
    said = payload[len(MAGIC) :].decode(errors="replace")
    name, _, text = said.partition("\n")
    return AssignmentFailedError(f"{name}: {text}" if text else name)


def _user_data(assignment: bytes) -> bytes | None:
    # This check avoids decoding almost every assignment.
    if MAGIC not in assignment:
        return None
    try:
        return ConsumerProtocolAssignment.decode(memoryview(assignment)[2:], 0).user_data
    except ProtocolError:
        return None
