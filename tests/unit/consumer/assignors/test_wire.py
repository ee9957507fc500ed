"""Tests of subscriptions and assignments as bytes: every version, other clients, and damage."""

import contextlib
import struct

import pytest
from assignment import AssignorOracle
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient import MemberAssignment, MemberSubscription, TopicPartition, errors
from aiokclient.consumer.assignors.holdings import (
    Holding,
    generation_data,
    read_generation,
    read_holding,
    sticky_data,
)
from aiokclient.consumer.assignors.wire import (
    decode_assignment,
    decode_members,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = st.text("abc._-\u00e4\U0001f600", min_size=1, max_size=5)
PARTITION = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
PARTITIONS = st.lists(PARTITION, max_size=6, unique=True).map(lambda found: tuple(sorted(found)))
USER_DATA = st.none() | st.binary(max_size=20)
SUBSCRIPTION = st.builds(
    MemberSubscription,
    topics=st.lists(TOPICS, max_size=5, unique=True).map(lambda found: tuple(sorted(found))),
    user_data=USER_DATA,
    owned=PARTITIONS,
    generation_id=st.integers(-1, 2**31 - 1),
    rack=st.none() | st.text("rack-", min_size=1, max_size=5),
    instance_id=st.none(),
)
ASSIGNMENT = st.builds(MemberAssignment, PARTITIONS, USER_DATA)
LOOSE = settings(deadline=None)

TOPICS_AB = b"\0\0\0\2\0\1a\0\1b"
DATA = b"\0\0\0\3\1\2\3"
OWNED = b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\4\0\0\0\7"
GENERATION = b"\0\0\0\x09"
RACK = b"\0\1r"
OWNS = (TopicPartition("a", 4), TopicPartition("a", 7))


@LOOSE
@given(subscription=SUBSCRIPTION)
def test_a_subscription_is_encoded_and_decoded(subscription: MemberSubscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@LOOSE
@given(assignment=ASSIGNMENT)
def test_an_assignment_is_encoded_and_decoded(assignment: MemberAssignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (0, TOPICS_AB + DATA, MemberSubscription(("a", "b"), b"\1\2\3")),
        (1, TOPICS_AB + DATA + OWNED, MemberSubscription(("a", "b"), b"\1\2\3", OWNS)),
        (
            2,
            TOPICS_AB + DATA + OWNED + GENERATION,
            MemberSubscription(("a", "b"), b"\1\2\3", OWNS, 9),
        ),
        (
            3,
            TOPICS_AB + DATA + OWNED + GENERATION + RACK,
            MemberSubscription(("a", "b"), b"\1\2\3", OWNS, 9, "r"),
        ),
    ],
)
def test_every_version_is_decoded(
    version: int, fields: bytes, expected: MemberSubscription
) -> None:
    data = struct.pack(">h", version) + fields
    assert decode_subscription(data) == expected
    assert decode_subscription(data, "i-1") == expected._replace(instance_id="i-1")


def test_of_a_newer_version_the_known_fields_are_read() -> None:
    newest = encode_subscription(MemberSubscription(("a",), b"x", OWNS, 5, "r"))
    assert newest[:2] == b"\0\3"
    newer = b"\0\x63" + newest[2:] + b"what comes after"
    assert decode_subscription(newer) == decode_subscription(newest)
    assignment = encode_assignment(MemberAssignment(OWNS))
    newer = b"\0\x63" + assignment[2:] + b"what comes after"
    assert decode_assignment(newer) == MemberAssignment(OWNS)


def test_empty_bytes_mean_no_partitions() -> None:
    empty = b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xf0\0\0"
    assert decode_subscription(empty) == MemberSubscription(())
    assert decode_assignment(b"") == MemberAssignment()


def test_duplicates_count_once() -> None:
    twice = b"\0\0\0\0\0\2\0\1a\0\1a\xff\xff\xff\xff"
    assert decode_subscription(twice) == MemberSubscription(("a",))
    given_twice = b"\0\0\0\0\0\1\0\1a\0\0\0\2\0\0\0\4\0\0\0\4\xff\xff\xff\xff"
    assert decode_assignment(given_twice).partitions == OWNS[:1]


@LOOSE
@given(data=st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: b"\0\3" + data))
def test_any_bytes_are_a_subscription_or_a_typed_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(errors.ProtocolError):
            decode(data)


@LOOSE
@given(subscription=SUBSCRIPTION, cut=st.integers(0, 60), flip=st.integers(0, 7))
def test_damaged_bytes_are_refused(subscription: MemberSubscription, cut: int, flip: int) -> None:
    data = bytearray(encode_subscription(subscription))
    data[cut % len(data)] ^= 1 << flip
    for damaged in (bytes(data), bytes(data[:cut])):
        with contextlib.suppress(errors.ProtocolError):
            decode_subscription(damaged)


def test_a_member_that_cannot_be_read_is_named() -> None:
    fine = encode_subscription(MemberSubscription(("a",), rack="r"))
    assert decode_members([("m-1", "i-1", fine)]) == {
        "m-1": MemberSubscription(("a",), rack="r", instance_id="i-1")
    }
    with pytest.raises(errors.AssignmentFailedError, match=r"'m-2'.*de ad.*Stop that member"):
        decode_members([("m-1", None, fine), ("m-2", None, b"\xde\xad")])


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(errors.ProtocolError, match="a--1"):
        decode_assignment(b"\0\0\0\0\0\1\0\1a\0\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff")


def test_bytes_of_librdkafka_are_decoded() -> None:
    """The bytes are from librdkafka 2.16: a cooperative-sticky subscription and a v0 assignment."""
    held = "00000002 0006 636c69636b73 00000001 00000003 0006 6f7264657273 00000001 00000000"
    subscription = decode_subscription(
        bytes.fromhex(
            "0003 00000002 0006 636c69636b73 0006 6f7264657273"
            f"00000028 {held} 00000004 {held} 00000004 0006 7261636b2d31"
        )
    )
    owned = (TopicPartition("clicks", 3), TopicPartition("orders", 0))
    assert subscription[2:] == (owned, 4, "rack-1", None)
    assert read_holding(subscription.user_data) == Holding(list(owned), 4)
    assert read_generation(subscription.user_data) == 4
    given = decode_assignment(bytes.fromhex(f"0000 {held} 00000000"))
    assert given == MemberAssignment(owned, b"")


class TestJava:
    """Comparisons with Kafka's own encoder and decoder."""

    pytestmark = pytest.mark.java

    @settings(deadline=None, max_examples=200)
    @given(subscription=SUBSCRIPTION)
    def test_subscriptions_equal_those_of_java(
        self, java_assignors: AssignorOracle, subscription: MemberSubscription
    ) -> None:
        ours = encode_subscription(subscription)
        assert ours == java_assignors.write_subscription(subscription)
        assert java_assignors.read_subscription(ours) == subscription

    @settings(deadline=None, max_examples=50)
    @given(subscription=SUBSCRIPTION, version=st.integers(0, 2))
    def test_older_subscriptions_of_java_are_decoded(
        self, java_assignors: AssignorOracle, subscription: MemberSubscription, version: int
    ) -> None:
        data = java_assignors.write_subscription(subscription, version)
        assert decode_subscription(data) == java_assignors.read_subscription(data)

    @settings(deadline=None, max_examples=200)
    @given(assignment=ASSIGNMENT)
    def test_encoded_assignments_equal_those_of_java(
        self, java_assignors: AssignorOracle, assignment: MemberAssignment
    ) -> None:
        ours = encode_assignment(assignment)
        assert ours == java_assignors.write_assignment(assignment)
        assert java_assignors.read_assignment(ours) == assignment

    @settings(deadline=None, max_examples=100)
    @given(partitions=PARTITIONS, generation=st.integers(-1, 2**31 - 1))
    def test_user_data_equals_that_of_java(
        self,
        java_assignors: AssignorOracle,
        partitions: tuple[TopicPartition, ...],
        generation: int,
    ) -> None:
        cooperative = java_assignors.user_data("cooperative-sticky", partitions, generation)
        assert generation_data(generation) == cooperative
        sticky = java_assignors.user_data("sticky", partitions, generation)
        ours = sticky_data(Holding(partitions, generation))
        # Java writes the topics in the order of a hash map.
        assert sticky is not None
        assert sorted(sticky) == sorted(ours)
        read = read_holding(sticky)
        assert (sorted(read.partitions), read.generation) == (list(partitions), generation)
