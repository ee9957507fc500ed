"""Tests of produce requests from templates and of their responses.

The bytes equal those of the codec.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import ProtocolError
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokclient.protocol.one_batch import COPIED, OneBatchRequest, Template, Written

VERSIONS = range(ProduceRequest.min_version, ProduceRequest.max_known_version + 1)
ID = UUID(int=0x1234567890)


def template(version: int, index: int = 7, name: str = "orders") -> Template:
    return Template(version, name, ID, index, -1, 30_000)


def response(**changes: Any) -> ProduceResponse:
    part = PartitionProduceResponse(index=7, base_offset=41, log_append_time_ms=-1)
    for field, value in changes.items():
        setattr(part, field, value)
    topic = TopicProduceResponse(name="orders", topic_id=ID, partition_responses=[part])
    return ProduceResponse(responses=[topic])


def read(answer: ProduceResponse, version: int, request: Any = None) -> Any:
    body = b"".join(answer.encode(version))
    made = OneBatchRequest(template(version), b"") if request is None else request
    found, end = made.read_response(b"head" + body, 4, version)
    assert end == 4 + len(body)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_000, COPIED - 1, COPIED, 200_000])
def test_a_request_from_a_template_equals_that_of_the_codec(version: int, size: int) -> None:
    batch = memoryview(bytes(size))
    data = [PartitionProduceData(index=7, records=batch)]
    topic = TopicProduceData(name="orders", topic_id=ID, partition_data=data)
    whole = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    made = OneBatchRequest(template(version), batch)
    frames = [
        b"".join(ClientPipeline("me").encode_request(request, version)[1])
        for request in (whole, made)
    ]
    assert frames[0] == frames[1]
    segments = ClientPipeline("me").encode_request(made, version)[1]
    assert any(segment is batch for segment in segments) is (size >= COPIED)


@given(
    version=st.sampled_from(VERSIONS),
    index=st.integers(0, 2**31 - 1),
    name=st.text("abc.-_", min_size=1, max_size=249),
    base=st.integers(-1, 2**63 - 1),
    append=st.integers(-1, 2**63 - 1),
    start=st.integers(-1, 2**63 - 1),
)
def test_a_successful_response_is_read_by_the_template(
    version: int, index: int, name: str, base: int, append: int, start: int
) -> None:
    answer = response(
        index=index, base_offset=base, log_append_time_ms=append, log_start_offset=start
    )
    answer.responses[0].name = name
    if version < 5:
        answer.responses[0].partition_responses[0].log_start_offset = start = -1
    request = OneBatchRequest(template(version, index, name), b"")
    assert read(answer, version, request) == Written(base, append, start)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "since"),
    [
        ({"error_code": 6}, 3),
        ({"index": 8}, 3),
        ({"error_code": 87, "error_message": "no"}, 8),
        ({"record_errors": [BatchIndexAndErrorMessage(batch_index=1)]}, 8),
        ({"error_code": 6, "current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=3)}, 10),
    ],
)
def test_other_responses_are_decoded_by_the_codec(
    version: int, changes: dict[str, Any], since: int
) -> None:
    if version < since:
        changes = {"error_code": 1}
    answer = response(**changes)
    found = read(answer, version)
    assert b"".join(found.encode(version)) == b"".join(answer.encode(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_with_throttling_or_other_topics_are_decoded_by_the_codec(version: int) -> None:
    slowed = response()
    slowed.throttle_time_ms = 5
    assert read(slowed, version).throttle_time_ms == 5
    other = response()
    other.responses[0].name = "orderz"
    other.responses[0].topic_id = UUID(int=9)
    assert isinstance(read(other, version), ProduceResponse)
    assert read(ProduceResponse(), version) == ProduceResponse()


@given(st.sampled_from(VERSIONS), st.data())
def test_damaged_responses_are_refused(version: int, data: st.DataObject) -> None:
    body = bytearray(b"".join(response().encode(version)))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(body)))
    frame = bytes(body[:cut])
    request = OneBatchRequest(template(version), b"")
    try:
        expected: Any = ProduceResponse.decode_from(frame, 0, version)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            request.read_response(frame, 0, version)
        return
    found, end = request.read_response(frame, 0, version)
    if isinstance(found, Written):
        part = expected[0].responses[0].partition_responses[0]
        read_part = part.base_offset, part.log_append_time_ms, part.log_start_offset
        assert (*read_part, part.error_code) == (*found, 0)
    assert end == expected[1] or isinstance(found, ProduceResponse)
