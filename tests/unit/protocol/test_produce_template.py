"""Tests of produce requests from templates and of their responses.

The bytes equal those of the codec.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient._native import in_use
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
from aiokclient.protocol.produce_template import (
    COPIED,
    IDS_FROM,
    Template,
    TemplateRequest,
)
from aiokclient.record.batch import Compression, RecordBatchBuilder

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
    made = TemplateRequest([template(version)], [b""]) if request is None else request
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
    made = TemplateRequest([template(version)], [batch])
    frames = [
        b"".join(ClientPipeline("me").encode_request(request, version)[1])
        for request in (whole, made)
    ]
    assert frames[0] == frames[1]
    segments = ClientPipeline("me").encode_request(made, version)[1]
    assert any(segment is batch for segment in segments) is (size >= COPIED)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 50, 56, 57, 16_000, 200_000])
@pytest.mark.parametrize("client_id", ["me", "x" * 200])
def test_a_request_with_one_batch_is_one_segment_where_there_is_room(
    version: int, size: int, client_id: str
) -> None:
    builder = RecordBatchBuilder(limit=1 << 20)
    builder.append(1, None, bytes(size))
    batch = builder.seal(1, 2, 3)
    data = [PartitionProduceData(index=7, records=bytes(batch))]
    topic = TopicProduceData(name="orders", topic_id=ID, partition_data=data)
    whole = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    expected = b"".join(ClientPipeline(client_id).encode_request(whole, version)[1])
    request = TemplateRequest([template(version)], [batch])
    frames = [ClientPipeline(client_id).encode_request(request, version)[1] for _ in range(2)]
    if in_use() and client_id == "me":
        assert len(frames[0]) == 1
    for frame in frames:  # The second is that of a repeated request, which has several segments.
        assert b"".join(frame) == expected
    again = TemplateRequest([template(version)], [builder.seal(1, 3, 0)])
    assert b"".join(ClientPipeline(client_id).encode_request(again, version)[1]) != expected
    assert b"".join(frames[0]) == expected


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
    request = TemplateRequest([template(version, index, name)], [b""])
    assert read(answer, version, request) == [(base, append, start)]


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
    request = TemplateRequest([template(version)], [b""])
    try:
        expected: Any = ProduceResponse.decode_from(frame, 0, version)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            request.read_response(frame, 0, version)
        return
    found, end = request.read_response(frame, 0, version)
    if isinstance(found, list):
        part = expected[0].responses[0].partition_responses[0]
        read_part = part.base_offset, part.log_append_time_ms, part.log_start_offset
        assert (*read_part, part.error_code) == (*found[0], 0)
    assert end == expected[1] or isinstance(found, ProduceResponse)


NAMES = {"orders": ID, "a" * 200: UUID(int=3), "b": UUID(int=4)}


@st.composite
def partitions(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Draw partitions of several topics, each of them once, in any order."""
    each = st.tuples(st.sampled_from(list(NAMES)), st.integers(0, 300))
    return draw(st.lists(each, min_size=2, max_size=8, unique=True))


def several(version: int, wanted: list[tuple[str, int]], sizes: list[int]) -> TemplateRequest:
    templates = [
        Template(version, name, NAMES[name], index, -1, 30_000, None) for name, index in wanted
    ]
    return TemplateRequest(templates, [memoryview(bytes(size)) for size in sizes])


def whole(wanted: list[tuple[str, int]], made: TemplateRequest) -> ProduceRequest:
    """Return the same request for the codec."""
    topics: dict[str, TopicProduceData] = {}
    for (name, index), batch in zip(wanted, made.batches, strict=True):
        topic = topics.setdefault(
            name, TopicProduceData(name=name, topic_id=NAMES[name], partition_data=[])
        )
        topic.partition_data.append(PartitionProduceData(index=index, records=batch))
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=list(topics.values()))


def answer_to(wanted: list[tuple[str, int]]) -> ProduceResponse:
    topics: dict[str, TopicProduceResponse] = {}
    for name, index in wanted:
        topic = topics.setdefault(
            name, TopicProduceResponse(name=name, topic_id=NAMES[name], partition_responses=[])
        )
        part = PartitionProduceResponse(index=index, base_offset=1_000 + index)
        topic.partition_responses.append(part)
    return ProduceResponse(responses=list(topics.values()))


@given(st.sampled_from(VERSIONS), partitions(), st.data())
def test_a_request_with_several_batches_equals_that_of_the_codec(
    version: int, wanted: list[tuple[str, int]], data: st.DataObject
) -> None:
    sizes = [data.draw(st.sampled_from([1, 127, 128, COPIED - 1, COPIED])) for _ in wanted]
    made = several(version, wanted, sizes)
    frames = [
        ClientPipeline("me").encode_request(request, version)[1]
        for request in (whole(wanted, made), made)
    ]
    assert b"".join(frames[0]) == b"".join(frames[1])
    for batch in made.batches:
        copied = not any(segment is batch for segment in frames[1])
        assert copied is (len(batch) < COPIED)


@given(st.sampled_from(VERSIONS), partitions(), st.booleans())
def test_a_request_with_several_built_batches_is_one_segment_for_each(
    version: int, wanted: list[tuple[str, int]], compressed: bool
) -> None:
    made = several(version, wanted, [0] * len(wanted))
    builders = []
    for number in range(len(wanted)):
        codec = Compression.GZIP if compressed and number == 1 else Compression.NONE
        builder = RecordBatchBuilder(limit=1 << 20, compression=codec)
        builder.append(1, None, bytes(100 << number))
        builders.append(builder)
    made.batches = [builder.seal(1, 2, 3) for builder in builders]
    expected = b"".join(ClientPipeline("me").encode_request(whole(wanted, made), version)[1])
    frames = [ClientPipeline("me").encode_request(made, version)[1] for _ in range(2)]
    for frame in frames:  # The second is that of a repeated request, which has other segments.
        assert b"".join(frame) == expected
    if in_use() and not compressed:
        # Only the name of one of the topics is too long for the room before a batch.
        long = version < IDS_FROM and any(len(name) > 100 for name, _ in wanted)
        assert long or len(frames[0]) == len(wanted)
    again = [bytes(builder.seal(1, 2, 3)) for builder in builders]
    assert list(map(bytes, made.batches)) == again


@given(st.sampled_from(VERSIONS), partitions(), st.data())
def test_a_good_response_to_several_batches_is_read_in_any_order(
    version: int, wanted: list[tuple[str, int]], data: st.DataObject
) -> None:
    answer = answer_to(data.draw(st.permutations(wanted)))
    found = read(answer, version, several(version, wanted, [1] * len(wanted)))
    assert found == [(1_000 + index, -1, -1) for _, index in wanted]


@given(st.sampled_from(VERSIONS), partitions(), st.data())
def test_any_other_response_to_several_batches_is_decoded_by_the_codec(
    version: int, wanted: list[tuple[str, int]], data: st.DataObject
) -> None:
    answer = answer_to(wanted)
    parts = [part for topic in answer.responses for part in topic.partition_responses]
    part = data.draw(st.sampled_from(parts))
    change = data.draw(st.sampled_from(["code", "index", "missing", "twice", "throttled"]))
    if change == "code":
        part.error_code = 6
    elif change == "index":
        part.index = 301
    elif change == "missing":
        answer.responses.pop()
    elif change == "twice":
        answer.responses[-1].partition_responses *= 2
    else:
        answer.throttle_time_ms = 5
    request = several(version, wanted, [1] * len(wanted))
    assert b"".join(read(answer, version, request).encode(version)) == b"".join(
        answer.encode(version)
    )


@given(st.sampled_from(VERSIONS), partitions(), st.data())
def test_damaged_responses_to_several_batches_are_refused_or_decoded(
    version: int, wanted: list[tuple[str, int]], data: st.DataObject
) -> None:
    body = bytearray(b"".join(answer_to(wanted).encode(version)))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    frame = bytes(body[: data.draw(st.integers(0, len(body)))])
    request = several(version, wanted, [1] * len(wanted))
    try:
        expected: Any = ProduceResponse.decode_from(frame, 0, version)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            request.read_response(frame, 0, version)
        return
    found = request.read_response(frame, 0, version)[0]
    if isinstance(found, list):
        parts = [part for topic in expected[0].responses for part in topic.partition_responses]
        assert not any(part.error_code for part in parts)
        assert sorted(found) == sorted(
            (part.base_offset, part.log_append_time_ms, part.log_start_offset) for part in parts
        )
