"""Tests that requests of one connection are answered in order, one at a time, as in Kafka."""

import pytest

from aiokclient.protocol import ApiKey, messages


def connection_with_held_fetch(cluster, wire):
    """Return a connection on which a fetch waits for records."""
    connection = wire.leader()
    connection.send(wire.fetch_request("orders", wait_ms=60_000), 12)
    cluster.wait_for(lambda: any(each.api == ApiKey.FETCH for each in cluster.requests))
    return connection


def test_a_waiting_fetch_delays_later_requests(cluster, wire):
    connection = connection_with_held_fetch(cluster, wire)
    connection.send(messages.ApiVersionsRequest(), 0)
    other = wire.leader()
    # Another connection is served meanwhile. The request after the waiting fetch is not even read.
    assert other.request(messages.MetadataRequest(topics=[])).cluster_id == cluster.cluster_id
    assert connection.silent()
    assert [each.api for each in cluster.requests] == [ApiKey.FETCH, ApiKey.METADATA]

    other.produce("orders", wire.batch(b"v"))
    fetched = connection.receive()
    assert wire.values(fetched.responses[0].partitions[0]) == [b"v"]
    assert connection.receive().error_code == 0


def test_pipelined_requests_are_answered_in_order(cluster, wire):
    connection = wire.leader()
    for version in range(14):
        connection.send(messages.MetadataRequest(topics=[]), version)
    for _ in range(14):
        assert connection.receive().brokers
    assert [each.version for each in cluster.requests] == list(range(14))


def test_a_delayed_request_delays_later_requests(cluster, wire):
    connection = wire.leader()
    with cluster.delay(ApiKey.METADATA, 0.05):
        connection.send(messages.MetadataRequest(topics=[]))
        connection.send(messages.ApiVersionsRequest(), 0)
        assert connection.receive().brokers
        assert connection.receive().api_keys


def test_many_requests_in_one_write_are_answered(cluster, wire):
    connection = wire.leader()
    count = 500
    for _ in range(count):
        connection.send(messages.MetadataRequest(topics=[]))
    assert all(connection.receive().brokers for _ in range(count))


def test_frames_may_arrive_in_pieces(cluster, wire):
    connection = wire.leader()
    _, segments = connection.pipeline.encode_request(messages.MetadataRequest(topics=[]), 12)
    _, more = connection.pipeline.encode_request(messages.ApiVersionsRequest(), 0)
    for byte in b"".join([*segments, *more]):
        connection.socket.sendall(bytes([byte]))
    assert connection.receive().brokers
    assert connection.receive().api_keys


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x0a\x00\x03\x00\x0c\x00\x00\x00\x00\xff\xff",
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x00\xff\xff",
    ],
)
def test_a_malformed_request_closes_the_connection(wire, frame):
    connection = wire.leader()
    connection.socket.sendall(frame)
    assert connection.closed()


def test_an_api_or_version_that_is_not_announced_closes_the_connection(wire):
    connection = wire.leader()
    connection.send(messages.StreamsGroupDescribeRequest(), 0)
    assert connection.closed()
    connection = wire.leader()
    connection.send(messages.InitProducerIdRequest(), 6)
    assert connection.closed()


def test_a_lost_connection_ends_its_waiting_fetch(cluster, wire):
    connection = connection_with_held_fetch(cluster, wire)
    connection.socket.close()
    cluster.wait_for(lambda: cluster.connections() == 0)
    cluster.produce("orders", [b"v"])
