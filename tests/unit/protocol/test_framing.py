"""Tests of frames, correlation ids, and requests in flight, for clients and servers."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import ProtocolError, UnsupportedVersionError
from aiokclient.protocol import messages
from aiokclient.protocol.framing import (
    ClientPipeline,
    DecodedRequest,
    FrameReader,
    ServerFraming,
)
from aiokclient.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData

MIB = 1 << 20


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Pass bytes to a reader as a transport does: as many at a time as it has room for."""
    frames = []
    while data:
        room = reader.get_buffer()
        assert room
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        frames += [bytes(frame) for frame in reader.take_frames(count)]
    return frames


def receive(client: ClientPipeline, frame: Any) -> tuple[int, Any, Any]:
    """Return the number, the request, and the response of the frame of a response."""
    asked = client.match_response(frame)
    return asked.correlation_id, asked.request, asked.decode(frame)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def body(segments: Iterable[Any]) -> bytes:
    """Return a frame without its length, and check the length."""
    data = b"".join(segments)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("size", [0, 1, 100, 65531, 65532, 65533, 65536, 200_000, MIB])
@pytest.mark.parametrize("piece", [1 << 20, 65536, 1000])
def test_frames_of_any_size_are_read_completely(size: int, piece: int) -> None:
    payloads = [bytes([number]) * size for number in range(1, 4)]
    stream = b"".join(map(framed, payloads))
    reader = FrameReader(MIB)
    frames = []
    for start in range(0, len(stream), piece):
        frames += feed(reader, stream[start : start + piece])
    assert frames == payloads


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(0, 500), max_size=12))
def test_frames_do_not_depend_on_how_they_are_sliced(
    payloads: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(map(framed, payloads))
    boundaries = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    reader = FrameReader(100)
    frames = []
    for start, end in pairwise(boundaries):
        frames += feed(reader, stream[start:end])
    assert frames == payloads


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3000)), max_size=60))
def test_readers_that_take_turns_do_not_mix_their_frames(turns: list[tuple[int, int]]) -> None:
    """Readers share scratch buffers, but each one keeps its own part of an incomplete frame."""
    payloads = [[bytes([reader]) * size for size in (700, 0, 2000, 513)] for reader in range(3)]
    streams = [b"".join(map(framed, each)) for each in payloads]
    readers, found = [FrameReader(MIB) for _ in range(3)], [[], [], []]
    taken = [0, 0, 0]
    for which, count in [*turns, (0, 1 << 20), (1, 1 << 20), (2, 1 << 20)]:
        piece = streams[which][taken[which] : taken[which] + count]
        taken[which] += len(piece)
        found[which] += feed(readers[which], piece)
    assert found == payloads


def test_a_reader_keeps_no_buffer_when_it_has_no_incomplete_frame() -> None:
    readers = [FrameReader(MIB) for _ in range(50)]
    for reader in readers:
        feed(reader, framed(bytes(1000)) + framed(bytes(300))[:200])
    assert [reader._scratch for reader in readers] == [None] * 50
    assert [feed(reader, framed(bytes(300))[200:]) for reader in readers] == [[bytes(300)]] * 50


def test_a_frame_does_not_change_while_more_bytes_arrive() -> None:
    reader = FrameReader(MIB)
    kept = []
    for number in range(200):
        payload = framed(bytes([number]) * 1000)
        room = reader.get_buffer()
        room[: len(payload)] = payload
        kept += reader.take_frames(len(payload))
    assert [bytes(frame) for frame in kept] == [bytes([number]) * 1000 for number in range(200)]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 1001, (1 << 31) - 1])
def test_a_hostile_length_is_refused_before_memory_is_allocated(length: int) -> None:
    reader = FrameReader(1000)
    with pytest.raises(ProtocolError, match="At most 1000 bytes"):
        feed(reader, length.to_bytes(4, "big", signed=True))


def test_the_limit_may_be_raised_after_authentication() -> None:
    reader = FrameReader(10)
    reader.max_frame = 1000
    assert feed(reader, framed(bytes(500))) == [bytes(500)]


def test_requests_are_pipelined_and_answered_in_order() -> None:
    client, server = ClientPipeline("me"), ServerFraming()
    requests = [messages.HeartbeatRequest(group_id=f"g{n}") for n in range(3)]
    sent = [client.encode_request(request, 4) for request in requests]
    assert [number for number, _ in sent] == [0, 1, 2]
    assert len(client) == 3
    for number, segments in sent:
        received = server.decode_request(body(segments))
        assert received.header.client_id == "me"
        assert received.header.correlation_id == number
        assert received.request == requests[number]
        answer = messages.HeartbeatResponse(error_code=number)
        frame = body(server.encode_response(received, answer))
        assert receive(client, memoryview(frame)) == (number, requests[number], answer)
    assert len(client) == 0


def answer_to(segments: Iterable[Any]) -> bytes:
    received = ServerFraming().decode_request(body(segments))
    return body(ServerFraming().encode_response(received, messages.HeartbeatResponse()))


def test_a_response_out_of_order_is_refused() -> None:
    client = ClientPipeline("me")
    client.encode_request(messages.HeartbeatRequest(), 3)
    _, second = client.encode_request(messages.HeartbeatRequest(), 3)
    with pytest.raises(
        ProtocolError, match=r"correlation id 1\. The next request in flight has 0\."
    ):
        receive(client, answer_to(second))


def test_a_response_without_a_request_is_refused() -> None:
    client = ClientPipeline("me")
    _, segments = client.encode_request(messages.HeartbeatRequest(), 3)
    answer = answer_to(segments)
    receive(client, answer)
    with pytest.raises(ProtocolError, match="no request is in flight"):
        receive(client, answer)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0" + bytes(5)])
def test_a_truncated_response_is_refused(frame: bytes) -> None:
    client = ClientPipeline("me")
    client.encode_request(messages.HeartbeatRequest(), 3)
    with pytest.raises(ProtocolError):
        receive(client, frame)


def test_bytes_after_a_response_are_ignored() -> None:
    """Some brokers send extra bytes after a response. Kafka's own client ignores them, too."""
    client = ClientPipeline("me")
    client.encode_request(messages.HeartbeatRequest(), 3)
    _, _, response = receive(client, bytes(4) + b"\0\0\0\7\0\x19" + b"\0")
    assert (response.throttle_time_ms, response.error_code) == (7, 25)


@pytest.mark.parametrize("version", [0, 4])
def test_bytes_after_a_request_are_ignored(version: int) -> None:
    """Some clients send extra bytes after a request. Kafka's brokers ignore them, too."""
    _, segments = ClientPipeline("me").encode_request(
        messages.HeartbeatRequest(group_id="g"), version
    )
    received = ServerFraming().decode_request(body(segments) + b"\1\0\0")
    assert received.request == messages.HeartbeatRequest(group_id="g")


def test_nothing_is_in_flight_after_a_request_that_cannot_be_encoded() -> None:
    client = ClientPipeline("me")
    with pytest.raises(UnsupportedVersionError):
        client.encode_request(messages.HeartbeatRequest(group_instance_id="i"), 0)
    assert len(client) == 0
    assert client.encode_request(messages.HeartbeatRequest(), 0)[0] == 0


def test_a_request_without_a_response_is_not_in_flight() -> None:
    client = ClientPipeline("me")
    client.encode_request(messages.ProduceRequest(acks=0), 9, expect_response=False)
    number, segments = client.encode_request(messages.HeartbeatRequest(), 3)
    assert receive(client, answer_to(segments))[0] == number == 1


def test_correlation_ids_start_again_after_the_last() -> None:
    client = ClientPipeline(None)
    client._next = 0x7FFFFFFF
    assert client.encode_request(messages.HeartbeatRequest(), 3)[0] == 0x7FFFFFFF
    assert client.encode_request(messages.HeartbeatRequest(), 3)[0] == 0


def test_records_are_not_copied_into_frames() -> None:
    records = bytearray(b"r" * 1000)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])
    segments = ClientPipeline("me").encode_request(messages.ProduceRequest(topic_data=[topic]), 9)[
        1
    ]
    assert any(segment is records for segment in segments)
    frame = memoryview(body(segments))
    received = ServerFraming().decode_request(frame).request
    assert isinstance(received, messages.ProduceRequest)
    got = received.topic_data[0].partition_data[0].records
    assert isinstance(got, memoryview)
    assert got.obj is frame.obj


def test_a_fetch_response_is_read_from_the_frame() -> None:
    client, server = ClientPipeline("me"), ServerFraming()
    _, segments = client.encode_request(messages.FetchRequest(), 12)
    response = messages.FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"x" * 100)])]
    )
    frame = memoryview(
        body(server.encode_response(server.decode_request(body(segments)), response))
    )
    _, _, got = receive(client, frame)
    assert got == response
    assert isinstance(got, messages.FetchResponse)
    view = got.responses[0].partitions[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame.obj


def test_a_broker_answers_an_unknown_version_of_api_versions_in_version_0() -> None:
    request = body(ClientPipeline("me").encode_request(messages.ApiVersionsRequest(), 4)[1])
    newer = request[:2] + (99).to_bytes(2, "big") + request[4:]
    server = ServerFraming()
    received = server.decode_request(newer)
    assert received.request is None
    assert received.header.request_api_version == 99
    assert received.header.client_id == "me"
    answer = server.encode_response(
        received, messages.ApiVersionsResponse(error_code=35), version=0
    )
    assert body(answer) == bytes(4) + b"\0\x23" + bytes(4)


def test_an_unknown_api_has_a_header_but_no_request() -> None:
    received = ServerFraming().decode_request(b"\x03\xe8\0\1\0\0\0\5\0\2me and whatever follows")
    assert isinstance(received, DecodedRequest)
    assert received.request is None
    assert (received.header.request_api_key, received.header.correlation_id) == (1000, 5)
