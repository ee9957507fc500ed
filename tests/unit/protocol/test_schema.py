"""Tests of message classes as Python objects."""

import copy
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest

from aiokclient.errors import ProtocolError, UnsupportedVersionError
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.api import negotiate, request_class
from aiokclient.protocol.messages.alter_configs import AlterableConfig
from aiokclient.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from aiokclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.protocol.schema import Route

ODD: Any = "odd"


def produce(records: Any) -> messages.ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return messages.ProduceRequest(acks=-1, timeout_ms=30, topic_data=[topic])


def test_constructor_takes_keywords_and_gives_kafkas_defaults() -> None:
    request = messages.FetchRequest(max_wait_ms=500)
    assert request.max_wait_ms == 500
    assert request.max_bytes == 0x7FFFFFFF
    assert request.cluster_id is None
    assert request.replica_state.replica_id == -1
    assert request.topics == []
    assert PartitionData().records is None
    assert FetchTopic().topic_id == UUID(int=0)


def test_mutable_defaults_are_not_shared() -> None:
    first, second = messages.FetchRequest(), messages.FetchRequest()
    first.topics.append(FetchTopic())
    first.replica_state.replica_id = 7
    assert second.topics == []
    assert second.replica_state.replica_id == -1


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="max_wait"):
        messages.FetchRequest(max_wait=500)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        messages.FetchRequest().max_wait = 500  # type: ignore[attr-defined]


def test_equality_is_by_value_and_class() -> None:
    assert messages.HeartbeatRequest(group_id="g") == messages.HeartbeatRequest(group_id="g")
    assert messages.HeartbeatRequest(group_id="g") != messages.HeartbeatRequest(group_id="h")
    assert messages.HeartbeatRequest() != messages.SyncGroupRequest()
    tagged = FetchPartition()
    tagged.unknown_tags = {9: b"x"}
    assert tagged != FetchPartition()
    assert copy.deepcopy(tagged) == tagged


def test_repr_names_the_fields_and_shortens_bytes() -> None:
    assert repr(messages.HeartbeatRequest(group_id="g")).startswith(
        "HeartbeatRequest(group_id='g', generation_id=0"
    )
    assert "<1000 bytes>" in repr(produce(bytes(1000)))


def test_repr_hides_secrets() -> None:
    secret = b"s3cret"
    for shown in (
        messages.SaslAuthenticateRequest(auth_bytes=secret),
        messages.SaslAuthenticateResponse(auth_bytes=secret),
        messages.RenewDelegationTokenRequest(hmac=secret),
        messages.CreateDelegationTokenResponse(hmac=secret),
        ScramCredentialUpsertion(salt=secret, salted_password=secret),
        AlterableConfig(value=secret.decode()),
    ):
        assert "s3cret" not in repr(shown)
        assert "<hidden>" in repr(shown)


def test_records_are_segments_of_their_own_and_slices_of_the_frame() -> None:
    records = bytearray(b"batch of records")
    segments = produce(records).encode(9)
    assert any(segment is records for segment in segments)
    data = b"".join(segments)
    decoded = messages.ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is data
    assert decoded == records


def test_records_may_be_given_in_parts() -> None:
    parts = [b"one ", memoryview(b"two ")]
    segments = produce(parts).encode(9)
    assert b"".join(segments) == b"".join(produce(b"one two ").encode(9))
    assert segments[1] is parts[0]


@pytest.mark.parametrize("value", [None, "text", 1 << 31, 1.5])
def test_a_number_that_does_not_fit_is_named(value: Any) -> None:
    request = messages.HeartbeatRequest(group_id="g", generation_id=value)
    with pytest.raises(
        ProtocolError, match=r"Request v3 .*: generation_id is .* fit the type int32"
    ):
        request.encode(3)


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        (None, "topics is None, not a list"),
        (["orders"], r"topics\[0\] is 'orders', not a FetchTopic"),
        (
            [FetchTopic(topic_id=ODD)],
            r"topics\[0\].topic_id is 'odd', which does not fit the type uuid",
        ),
        ([FetchTopic(), FetchTopic(partitions=[FetchPartition(partition=ODD)])], r"\[1\].*\[0\]"),
    ],
)
def test_a_nested_value_that_does_not_fit_is_named_with_its_path(topics: Any, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        messages.FetchRequest(topics=topics).encode(13)


@pytest.mark.parametrize("name", [7, b"bytes", "lone \ud800"])
def test_a_text_that_does_not_fit_is_named(name: Any) -> None:
    with pytest.raises(ProtocolError, match=r"group_id is .* which does not fit the type string"):
        messages.HeartbeatRequest(group_id=name).encode(3)


def test_a_string_that_kafka_cannot_read_is_not_written() -> None:
    with pytest.raises(ProtocolError, match=r"HeartbeatRequest.group_id .* 32768 bytes"):
        messages.HeartbeatRequest(group_id="x" * 0x8000).encode(4)
    messages.HeartbeatRequest(group_id="x" * 0x7FFF).encode(4)


def test_a_value_that_a_version_lacks_is_refused_unless_it_may_be_ignored() -> None:
    request = messages.JoinGroupRequest(group_id="g", group_instance_id="i", reason="why")
    with pytest.raises(UnsupportedVersionError, match=r"group_instance_id is set, but version 4"):
        request.encode(4)
    decoded = messages.JoinGroupRequest.decode(b"".join(request.encode(5)), 5)
    assert decoded.group_instance_id == "i"
    assert decoded.reason is None


def test_none_is_refused_in_versions_that_do_not_allow_it() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"topics is None, which version 0"):
        messages.MetadataRequest(topics=None).encode(0)
    assert messages.MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None


def test_versions_outside_of_the_declared_are_refused() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(UnsupportedVersionError, match="has versions 3 to 13"):
            messages.ProduceRequest().encode(version)
        with pytest.raises(UnsupportedVersionError):
            messages.ProduceRequest.decode(b"", version)


def test_unknown_tags_are_kept_in_order_and_need_a_flexible_version() -> None:
    request = messages.HeartbeatRequest(group_id="g")
    request.unknown_tags = {300: b"later", 7: b""}
    data = b"".join(request.encode(4))
    assert data.endswith(b"\x02\x07\x00\xac\x02\x05later")
    assert messages.HeartbeatRequest.decode(data, 4).unknown_tags == {7: b"", 300: b"later"}
    with pytest.raises(UnsupportedVersionError, match="unknown tagged fields"):
        request.encode(3)


def test_an_unknown_tag_must_not_be_a_known_one() -> None:
    partition = PartitionData()
    partition.current_leader.leader_id = 5
    partition.unknown_tags = {1: b"x"}
    response = messages.FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    with pytest.raises(ProtocolError, match="tagged field 1 has the tag of a known field"):
        response.encode(12)


def test_the_unstable_version_is_encoded_but_not_offered() -> None:
    cls = messages.InitProducerIdRequest
    assert (cls.max_version, cls.max_known_version) == (5, 6)
    assert negotiate(cls, (0, 6)) == 5
    request = cls(transactional_id="t", enable2_pc=True)
    assert cls.decode(b"".join(request.encode(6)), 6) == request


def test_negotiation_takes_the_latest_common_version() -> None:
    assert negotiate(messages.ProduceRequest, (0, 99)) == 13
    assert negotiate(messages.ProduceRequest, (0, 9)) == 9
    with pytest.raises(
        UnsupportedVersionError,
        match=r"broker supports versions 0 to 2\. This client supports versions 3",
    ):
        negotiate(messages.ProduceRequest, (0, 2))
    with pytest.raises(UnsupportedVersionError, match="broker supports versions 14 to 20"):
        negotiate(messages.ProduceRequest, (14, 20))
    with pytest.raises(UnsupportedVersionError, match="does not support the API Produce"):
        negotiate(messages.ProduceRequest, None)


def test_every_request_has_a_route() -> None:
    assert messages.ProduceRequest.route is Route.LEADER
    assert messages.CreateTopicsRequest.route is Route.CONTROLLER
    assert messages.JoinGroupRequest.route is Route.GROUP_COORDINATOR
    assert messages.EndTxnRequest.route is Route.TRANSACTION_COORDINATOR
    assert all(isinstance(request_class(key).route, Route) for key in ApiKey)


def test_an_unknown_key_or_name_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="key 7"):
        request_class(7)
    for name in ("FrobnicateRequest", "frobnicate", "Response"):
        with pytest.raises(AttributeError):
            getattr(messages, name)


def test_all_public_names_exist() -> None:
    for name in messages.__all__:
        assert getattr(messages, name).__name__ == name


def test_the_package_imports_no_message_until_it_is_used() -> None:
    code = (
        "import sys, aiokclient.protocol\n"
        "print([name for name in sys.modules if name.startswith('aiokclient.protocol.messages.')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
