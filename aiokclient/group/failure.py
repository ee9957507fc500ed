"""The report of a failed assignment to all members, for which SyncGroup has no field. Without IO.

The leader sends every member a payload of this form instead of its assignment:

    MAGIC, the name of the error in UTF-8, a newline, its text in UTF-8

In groups of protocol type `consumer` the payload is the user data of an assignment without
partitions (version 0), so that members of other libraries receive an empty assignment. In all other
groups it is the whole assignment. Successful assignments are sent unchanged.
"""

from __future__ import annotations

from aiokclient.errors import AssignmentFailedError, ProtocolError
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

__all__ = ["CONSUMER", "MAGIC", "failure_in", "failure_payload"]

MAGIC = b"\x00\xffaiokclient assignment failed\n"
"""The first bytes of a payload that reports a failure. No assignment begins with these bytes."""

CONSUMER = "consumer"
"""The protocol type of consumers."""

LONGEST = 2000
"""The largest number of characters of an error's text that is sent."""


def failure_payload(protocol_type: str, error: BaseException) -> bytes:
    """Return the payload that is sent instead of assignments when computing them has failed."""
    name, text = type(error).__name__, str(error)[:LONGEST]
    payload = MAGIC + f"{name}\n{text}".encode(errors="replace")
    if protocol_type != CONSUMER:
        return payload
    empty = ConsumerProtocolAssignment(user_data=payload)
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
