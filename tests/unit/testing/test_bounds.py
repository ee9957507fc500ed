"""Tests that clients cost a cluster limited memory, and never block other clients."""

import asyncio
import contextlib
import gc
import socket
import tracemalloc

import pytest
from broker_connection import FakeTransport, connection_of, feed, frame

from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages import sync_group
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.record.batch import Compression
from aiokclient.record.header import seal_crc
from aiokclient.testing import EmbeddedCluster

MIB = 1 << 20
KEPT = 32 * MIB


@contextlib.contextmanager
def traced():
    """Yield a function that returns how many bytes were allocated since its creation.

    Memory that was freed again does not count.
    """
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def large_sync(size):
    """Return a SyncGroup request with one field of this size in bytes."""
    assignment = sync_group.SyncGroupRequestAssignment(member_id="m", assignment=bytes(size))
    return messages.SyncGroupRequest(
        group_id="g", protocol_type="consumer", protocol_name="range", assignments=[assignment]
    )


# -- requests kept for tests ---------------------------------------------------------------


def test_requests_take_bounded_memory_when_they_are_large(cluster, wire):
    connection, request = wire.to(1), large_sync(MIB)
    for _ in range(40):
        connection.request(request)
    assert cluster.requests_total == 40
    kept = cluster.requests
    assert 20 < len(kept) < 40
    assert sum(each.size for each in kept) <= KEPT
    assert kept[-1].message == request


def test_fetches_take_little_memory_when_they_have_many_partitions(cluster, wire):
    connection = wire.to(1)
    request = wire.fetch_request("orders", partitions=range(3, 503))
    connection.request(request, 12)
    size = len(frame(request, 12))
    with traced() as allocated:
        for _ in range(40):
            connection.request(request, 12)
        gc.collect()
        assert allocated() < 80 * size
    assert len(cluster.requests[-1].message.topics[0].partitions) == 500


def test_messages_stay_in_bounded_memory_when_all_are_read(cluster, wire):
    connection = wire.to(1)
    request = wire.fetch_request("orders", partitions=range(3, 503))
    for _ in range(100):
        connection.request(request, 12)
    assert len([len(each.message.topics) for each in cluster.requests]) == 100
    assert cluster._state.requests._messages._bytes <= MIB


def test_a_message_is_the_same_object_when_it_is_read_again(cluster, wire):
    wire.to(1).request(messages.MetadataRequest(topics=[]))
    assert cluster.requests[0].message is cluster.requests[0].message
    assert cluster.requests[0] is cluster.requests[0]


def test_a_request_over_the_limit_is_kept_without_its_message(cluster, wire):
    wire.to(1).request(large_sync(KEPT + MIB))
    (request,) = cluster.requests
    assert (request.api, request.message) == (ApiKey.SYNC_GROUP, None)


def test_a_produce_request_over_the_limit_keeps_batch_headers(wire_to):
    with EmbeddedCluster(configs={"message.max.bytes": 100 * MIB}, topics=["orders"]) as cluster:
        wire = wire_to(cluster)
        wire.to(1).produce("orders", wire.batch(bytes(KEPT + MIB)))
        (request,) = cluster.requests
        assert len(request.message.topic_data[0].partition_data[0].records) == 61
        assert request.message.acks == -1


# -- what a connection may hold ------------------------------------------------------------


def produce_frames(wire_batch, count):
    data = TopicProduceData(
        name="orders", partition_data=[PartitionProduceData(index=0, records=wire_batch)]
    )
    request = messages.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    return frame(request, 12, count)


async def test_reading_stops_when_queued_frames_take_four_mib(wire_to):
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        wire = wire_to(cluster)
        protocol, transport = connection_of(cluster), FakeTransport()
        protocol.connection_made(transport)
        cluster.pause(1)
        frames = produce_frames(wire.batch(bytes(900_000)), 60)
        taken = feed(protocol, frames)
        assert 4 * MIB <= taken <= 6 * MIB
        cluster.resume(1)
        assert transport.reading
        while taken < len(frames):
            taken += feed(protocol, frames[taken:])
            await cluster.until(lambda: transport.reading)
        await cluster.until(lambda: len(transport.written) == 60)
        protocol.connection_lost(None)


async def test_reading_stops_while_a_large_request_waits_for_replicas(wire_to):
    configs = {"message.max.bytes": 100 * MIB}
    async with EmbeddedCluster(2, topics=["orders"], configs=configs) as cluster:
        wire, leader = wire_to(cluster), cluster._state.brokers[cluster.leader("orders")]
        protocol, transport = connection_of(cluster, leader.node_id), FakeTransport()
        protocol.connection_made(transport)
        with cluster.hold_replication("orders"):
            frames = produce_frames(wire.batch(bytes(10 * MIB)), 2)
            taken = feed(protocol, frames)
            assert taken < 11 * MIB
            await cluster.until(
                lambda: cluster._state.find_partition("orders", 0).log.end_offset == 1
            )
            assert not transport.reading
        await cluster.until(lambda: transport.reading)
        assert feed(protocol, frames[taken:]) == len(frames) - taken
        await cluster.until(lambda: len(transport.written) == 2)
        protocol.connection_lost(None)


@pytest.mark.parametrize("api", ["api versions", "fetch"])
async def test_requests_are_not_taken_when_the_client_reads_no_responses(wire_to, api):
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        wire, count = wire_to(cluster), 100_000
        cluster.produce("orders", [bytes(40_000)] * 5)
        cluster.produce("orders", [bytes(40_000)] * 5)
        if api == "fetch":
            request, count = wire.fetch_request("orders"), 5_000
        else:
            request = messages.ApiVersionsRequest(
                client_software_name="bounds", client_software_version="1"
            )
        sent = frame(request, 12 if api == "fetch" else 3, count)
        loop = asyncio.get_running_loop()
        client = socket.create_connection(cluster.address(1))
        client.setblocking(False)
        sending = asyncio.ensure_future(loop.sock_sendall(client, sent))
        await cluster.until(lambda: cluster.connections(1) == 1)
        (connection,) = cluster._state.brokers[1]._connections
        await cluster.until(lambda: not connection._reading or cluster.requests_total == count)
        assert cluster.requests_total < count
        assert connection._transport.get_write_buffer_size() < 4 * MIB
        sending.cancel()
        client.close()


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_an_idle_connection_takes_at_most_eight_kib(wire_to, used):
    with EmbeddedCluster(topics=["orders"]) as cluster:
        wire = wire_to(cluster)
        requests = frame(messages.MetadataRequest(), 12)
        if used:
            requests += produce_frames(wire.batch(bytes(300_000)), 3) + requests[:9]
        first = socket.create_connection(cluster.address(1))
        first.sendall(requests)
        cluster.wait_for(lambda: cluster.requests_total == (4 if used else 1))
        with traced() as allocated:
            opened = []
            for number in range(1, 101):
                opened.append(socket.create_connection(cluster.address(1)))
                opened[-1].sendall(requests)
                if used:
                    cluster.wait_for(lambda number=number: cluster.requests_total == 4 + 4 * number)
            cluster.wait_for(lambda: cluster.connections(1) == 101)
            cluster.wait_for(lambda: cluster.requests_total == (404 if used else 101))
            cluster.delete_topic("orders")
            cluster.reset()
            gc.collect()
            assert allocated() / len(opened) <= 8 * 1024
        for each in (first, *opened):
            each.close()


def test_a_deleted_topics_log_is_freed_without_a_garbage_collection():
    with EmbeddedCluster(topics=["orders"]) as cluster:
        gc.collect()
        gc.disable()
        try:
            with traced() as allocated:
                for _ in range(10):
                    cluster.produce("orders", [bytes(MIB)])
                assert allocated() > 10 * MIB
                cluster.delete_topic("orders")
                assert allocated() < MIB
        finally:
            gc.enable()


def test_records_are_freed_when_all_of_a_partition_are_deleted():
    with EmbeddedCluster(topics=["orders"]) as cluster:
        with traced() as allocated:
            for _ in range(10):
                cluster.produce("orders", [bytes(MIB)])
            cluster.delete_records("orders", before=10)
            assert allocated() < MIB
        cluster.produce("orders", [b"v"])
        assert [each.offset for each in cluster.records("orders", 0)] == [10]


def test_a_timestamp_is_found_in_little_memory_when_a_batch_decompresses_to_much(cluster, wire):
    values = [bytes(100)] * 100_000
    leader = wire.leader()
    batch = wire.batch(*values, compression=Compression.ZSTD)
    assert len(batch) < MIB
    assert leader.produce("orders", batch).error_code == 0
    assert leader.list_offset("orders", 1_000).offset == 0
    with traced() as allocated:
        found = leader.list_offset("orders", 1_000 + 99_999)
        assert (found.offset, found.error_code) == (99_999, 0)
        _, peak = tracemalloc.get_traced_memory()
        assert allocated() < MIB
        assert peak < 20 * MIB


def test_records_are_checked_in_little_memory_when_a_batch_decompresses_to_much(cluster, wire):
    cluster.create_topic("compact", configs={"cleanup.policy": "compact"})
    leader = wire.leader("compact")
    batch = wire.batch(*[bytes(100)] * 100_000, compression=Compression.ZSTD, key=b"k")
    with traced():
        assert leader.produce("compact", batch).error_code == 0
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 25 * MIB


def test_a_timestamp_is_refused_when_a_batch_cannot_be_read(cluster, wire):
    leader = wire.leader()
    batch = bytearray(wire.batch(b"a", b"b"))
    batch[61:] = b"\xff" * len(batch[61:])
    seal_crc(batch)
    assert leader.produce("orders", bytes(batch)).error_code == 0
    assert leader.list_offset("orders", 1_000).error_code == 2
    assert leader.list_offset("orders", -1).offset == 2
