"""How a failed assignment reaches the members. SyncGroup has no field for it. Without IO.

The leader gives every member, instead of its assignment, a payload of this form:

    MAGIC, the name of the error in UTF-8, a newline, its text in UTF-8

In groups of protocol type `consumer` it is the user data of an assignment without partitions
(version 0), so that members of other libraries see an empty assignment; in all other groups it is
the whole assignment. Assignments that did not fail are passed on byte for byte.
"""

from __future__ import annotations

from aiokclient.errors import AssignmentFailedError, ProtocolError
from aiokclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

__all__ = ["CONSUMER", "MAGIC", "failure_in", "failure_payload"]

MAGIC = b"\x00\xffaiokclient assignment failed\n"
"""Bytes with which no assignment begins."""

CONSUMER = "consumer"
"""The protocol type of consumers."""

LONGEST = 2000
"""Number of characters of an error's text that are sent."""


def failure_payload(protocol_type: str, error: BaseException) -> bytes:
    """Return what is sent instead of an assignment that `error` prevented."""
    name, text = type(error).__name__, str(error)[:LONGEST]
    payload = MAGIC + f"{name}\n{text}".encode(errors="replace")
    if protocol_type != CONSUMER:
        return payload
    empty = ConsumerProtocolAssignment(user_data=payload)
    return b"\x00\x00" + b"".join(empty.encode(0))


def failure_in(protocol_type: str, assignment: bytes) -> AssignmentFailedError | None:
    """Return the failure that was sent instead of an assignment; None for an assignment."""
    payload = _user_data(assignment) if protocol_type == CONSUMER else assignment
    if payload is None or not payload.startswith(MAGIC):
        return None
    said = payload[len(MAGIC) :].decode(errors="replace")
    name, _, text = said.partition("\n")
    return AssignmentFailedError(f"{name}: {text}" if text else name)


def _user_data(assignment: bytes) -> bytes | None:
    # The magic first: almost every assignment has none, and needs no decoding here.
    if MAGIC not in assignment:
        return None
    try:
        return ConsumerProtocolAssignment.decode(memoryview(assignment)[2:], 0).user_data
    except ProtocolError:
        return None
