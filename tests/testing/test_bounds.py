"""What clients do to a cluster costs it bounded memory, and stops no other client."""

import asyncio
import contextlib
import gc
import socket
import tracemalloc

import pytest

from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages import (
    alter_configs,
    create_topics,
    describe_configs,
    fetch,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.record.batch import Compression
from aiokclient.record.header import seal_crc
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.connection import BrokerProtocol
from aiokclient.testing.handlers import describe_configs as describe

MIB = 1 << 20
KEPT = 32 * MIB


@contextlib.contextmanager
def traced():
    """Give a function that returns how many bytes were allocated since, and are still in use."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def frame(request, version=None, correlation_ids=1):
    pipeline = ClientPipeline("bounds")
    version = request.max_version if version is None else version
    return b"".join(b"".join(pipeline.send(request, version)[1]) for _ in range(correlation_ids))


def large_metadata(size):
    """A metadata request of about so many bytes, with names of 250 characters."""
    topics = [metadata.MetadataRequestTopic(name=f"{n:0250}") for n in range(size // 270)]
    return messages.MetadataRequest(topics=topics)


def large_sync(size):
    """A request of so many bytes in one field."""
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


class FakeTransport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.reading, self.written, self.aborted = True, [], False

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return False

    def abort(self):
        self.aborted = True

    def write(self, data):
        self.written.append(bytes(data))


def feed(protocol, data):
    """Deliver bytes as a transport does; return how many were taken before reading stopped."""
    start = 0
    while start < len(data) and protocol._transport.reading:
        room = protocol.get_buffer(-1)
        count = min(len(room), len(data) - start)
        room[:count] = data[start : start + count]
        protocol.buffer_updated(count)
        start += count
    return start


def produce_frames(wire_batch, count):
    data = TopicProduceData(
        name="orders", partition_data=[PartitionProduceData(index=0, records=wire_batch)]
    )
    request = messages.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    return frame(request, 12, count)


async def test_reading_stops_when_queued_frames_take_four_mib(wire_to):
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        wire, broker = wire_to(cluster), cluster._state.brokers[1]
        protocol, transport = BrokerProtocol(broker), FakeTransport()
        protocol.connection_made(transport)
        cluster.pause(1)
        frames = produce_frames(wire.batch(bytes(900_000)), 60)
        taken = feed(protocol, frames)
        assert 4 * MIB <= taken <= 6 * MIB
        cluster.resume(1)
        assert transport.reading
        assert feed(protocol, frames[taken:]) == len(frames) - taken
        await cluster.until(lambda: len(transport.written) == 60)
        protocol.connection_lost(None)


async def test_reading_stops_while_a_large_request_waits_for_replicas(wire_to):
    configs = {"message.max.bytes": 100 * MIB}
    async with EmbeddedCluster(2, topics=["orders"], configs=configs) as cluster:
        wire, leader = wire_to(cluster), cluster._state.brokers[cluster.leader("orders")]
        protocol, transport = BrokerProtocol(leader), FakeTransport()
        protocol.connection_made(transport)
        with cluster.hold_replication("orders"):
            frames = produce_frames(wire.batch(bytes(10 * MIB)), 2)
            taken = feed(protocol, frames)
            assert taken < 11 * MIB
            await cluster.until(lambda: cluster._state.find("orders", 0).log.end_offset == 1)
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


# -- large requests ------------------------------------------------------------------------

MANY = 30_000


def _create():
    topics = [
        create_topics.CreatableTopic(name=f"n{n}", num_partitions=1, replication_factor=1)
        for n in range(MANY)
    ]
    return messages.CreateTopicsRequest(topics=topics), 7


def _alter():
    resources = [
        alter_configs.AlterConfigsResource(resource_type=2, resource_name=f"n{n}")
        for n in range(MANY)
    ]
    return messages.AlterConfigsRequest(resources=resources), 2


def _commit():
    partitions = [
        offset_commit.OffsetCommitRequestPartition(partition_index=n, committed_offset=1)
        for n in range(MANY)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    return messages.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=topics
    ), 8


def _offsets():
    asked = offset_fetch.OffsetFetchRequestTopics(
        name="orders", partition_indexes=list(range(MANY))
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[asked])
    return messages.OffsetFetchRequest(groups=[group]), 8


def _produce():
    partitions = [PartitionProduceData(index=n, records=b"x" * 20) for n in range(MANY)]
    data = TopicProduceData(name="orders", partition_data=partitions)
    return messages.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]), 12


def _fetch():
    partitions = [fetch.FetchPartition(partition=n, fetch_offset=0) for n in range(MANY)]
    topics = [fetch.FetchTopic(topic="orders", partitions=partitions)]
    return messages.FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 12


def _metadata():
    topics = [metadata.MetadataRequestTopic(name=f"n{n}") for n in range(MANY)]
    return messages.MetadataRequest(topics=topics), 12


@pytest.mark.parametrize("make", [_metadata, _create, _alter, _commit, _offsets, _produce, _fetch])
async def test_others_are_answered_while_a_large_request_is_handled(make):
    request, version = make()
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        broker = cluster._state.brokers[1]
        large, other = BrokerProtocol(broker), BrokerProtocol(broker)
        for each in (large, other):
            each.connection_made(FakeTransport())
        feed(large, frame(request, version))
        ping, turns = frame(messages.MetadataRequest(topics=[]), 12), 0
        while not large._transport.written:
            feed(other, ping)
            turns += 1
            assert len(other._transport.written) == turns
            await asyncio.sleep(0)
        assert turns >= MANY // 100
        for each in (large, other):
            each.connection_lost(None)


def test_a_fetch_of_many_partitions_is_answered_whole(cluster, wire):
    cluster.create_topic("wide", 1_000)
    for partition in (0, 500, 999):
        cluster.produce("wide", [b"v"], partition)
    connection = wire.at(cluster.address(cluster.leader("wide", 0)))
    leads = [n for n in range(1_000) if cluster.leader("wide", n) == cluster.leader("wide", 0)]
    request = wire.fetch_request("wide", partitions=leads, session=(0, 0))
    (topic,) = connection.request(request, 12).responses
    assert len(topic.partitions) == len(leads)
    found = [each.partition_index for each in topic.partitions if each.records]
    assert found == [n for n in (0, 500, 999) if n in leads]


def test_a_fetch_waits_and_is_answered_when_it_has_many_partitions(cluster, wire):
    cluster.create_topic("wide", 900)
    leader = cluster.leader("wide", 0)
    leads = [n for n in range(900) if cluster.leader("wide", n) == leader]
    connection = wire.to(leader)
    request = wire.fetch_request("wide", partitions=leads, wait_ms=60_000)
    connection.send(request, 12)
    cluster.wait_for(lambda: cluster.requests_total == 1)
    cluster.produce("wide", [b"v"], leads[5])
    (topic,) = connection.receive().responses
    assert [each.partition_index for each in topic.partitions if each.records] == [leads[5]]


async def test_a_cluster_ends_while_a_large_request_is_handled():
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        large = BrokerProtocol(cluster._state.brokers[1])
        large.connection_made(FakeTransport())
        feed(large, frame(*_commit()))
        for _ in range(1_000_000):
            await asyncio.sleep(0)
            if cluster.requests_total:
                break
        assert large._handling is not None
        cluster.stop(1)
        assert large._transport.aborted
        large.connection_lost(None)
        assert large._handling is None


def test_too_many_partitions_in_one_request_are_refused_for_all(cluster, wire):
    topics = [
        create_topics.CreatableTopic(name=name, num_partitions=6_000, replication_factor=1)
        for name in ("a", "b")
    ]
    response = wire.to(1).request(messages.CreateTopicsRequest(topics=topics))
    assert [(each.name, each.error_code) for each in response.topics] == [("a", 44), ("b", 44)]
    assert "a" not in cluster.topics


def test_a_resource_that_one_request_repeats_often_is_described_a_few_times(wire):
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=2, resource_name=name)
        for name in ["orders"] * 2_000 + ["missing"]
    ]
    request = messages.DescribeConfigsRequest(resources=resources, include_synonyms=True)
    results = wire.to(1).request(request).results
    assert len(results) == 2_001
    assert [bool(result.configs) for result in results].count(True) == describe.REPEATS
    assert results[0].configs
    assert results[-2].error_code == 42
    assert "more than 10 times" in results[-2].error_message
    assert results[-1].error_code == 3
