"""Tests that the payload for a failed assignment is recognized, and that no other payload is."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aiokclient.errors import AssignmentFailedError
from aiokclient.group.requests import LONGEST_FAILURE, MAGIC, failure_in, failure_payload
from aiokclient.log.texts import printable
from aiokclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
)


def told(protocol_type: str, error: Exception) -> str:
    failure = failure_in(protocol_type, failure_payload(protocol_type, error))
    assert isinstance(failure, AssignmentFailedError)
    return failure.message


@settings(deadline=None)
@given(st.text(max_size=50), st.sampled_from(["consumer", "leases"]))
def test_a_failed_assignment_is_described_to_the_members(text: str, protocol_type: str) -> None:
    expected = f"ValueError: {text}" if text else "ValueError"
    received = expected.encode(errors="replace").decode()
    assert told(protocol_type, ValueError(text)) == printable(received)


def test_the_description_of_a_failed_assignment_is_cut_when_it_is_long() -> None:
    assert len(told("leases", ValueError("x" * 100_000))) < LONGEST_FAILURE + 50


def test_consumers_of_other_libraries_see_an_empty_assignment() -> None:
    payload = failure_payload("consumer", KeyError("topic"))
    assert payload[:2] == b"\x00\x00"
    seen = ConsumerProtocolAssignment.decode(payload[2:], 0)
    assert seen.assigned_partitions == []
    assert seen.user_data == MAGIC + b"KeyError\n'topic'"


def test_the_failure_is_the_whole_assignment_in_other_groups() -> None:
    assert failure_payload("leases", KeyError(1)) == MAGIC + b"KeyError\n1"


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_an_assignment_with_other_bytes_is_not_a_failure(assignment: bytes) -> None:
    assume(not assignment.startswith(MAGIC))
    assert failure_in("consumer", assignment) is None
    assert failure_in("leases", assignment) is None
    assert failure_in("leases", assignment[:1] + b"x" + MAGIC) is None


def test_an_assignment_with_the_magic_elsewhere_is_not_a_failure() -> None:
    assigned = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=[1])], user_data=b"x" + MAGIC
    )
    assert failure_in("consumer", b"\x00\x00" + b"".join(assigned.encode(0))) is None
    assert failure_in("consumer", b"\x00\x00\xff" + MAGIC) is None
    assert failure_in("consumer", MAGIC) is None
