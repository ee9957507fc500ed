"""Tests that large requests are handled in slices, between which other connections are served."""

import asyncio

import pytest
from broker_connection import FakeTransport, connection_of, feed, frame
from loop_time import check_held, held_times, measured

from aiokclient import _native
from aiokclient.protocol import messages
from aiokclient.protocol.messages import (
    alter_configs,
    create_topics,
    describe_configs,
    fetch,
    metadata,
    offset_commit,
    offset_fetch,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.handlers import describe_configs as describe
from aiokclient.testing.broker.topics.log import PartitionLog

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
        large, other = connection_of(cluster), connection_of(cluster)
        for each in (large, other):
            each.connection_made(FakeTransport())
        feed(large, frame(request, version))
        ping, turns = frame(messages.MetadataRequest(topics=[]), 12), 0
        while not large._transport.written:
            feed(other, ping)
            turns += 1
            await asyncio.sleep(0)  # The large request may have taken the turn of this iteration.
            assert len(other._transport.written) == turns
        assert turns >= MANY // 100
        for each in (large, other):
            each.connection_lost(None)


async def iterations(condition):
    """Let the event loop run until the condition holds."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_others_are_answered_while_a_waiting_fetch_is_read_again(monkeypatch):
    count, reads, read = 3_000, [], PartitionLog.read_range

    def counted(log, *args, **options):
        reads.append(log)
        return read(log, *args, **options)

    async with EmbeddedCluster(topics={"wide": count}) as cluster:
        large, other = connection_of(cluster), connection_of(cluster)
        for each in (large, other):
            each.connection_made(FakeTransport())
        partitions = [
            fetch.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1_000)
            for n in range(count)
        ]
        topics = [fetch.FetchTopic(topic="wide", partitions=partitions)]
        request = messages.FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics)
        feed(large, frame(request, 12))
        watched = cluster._state.find_partition("wide", count - 1)
        await iterations(lambda: large._awaited is not None and watched._watchers)
        monkeypatch.setattr(PartitionLog, "read_range", counted)
        cluster.produce("wide", [b"v"], 7)
        assert len(reads) <= 200
        ping, turns = frame(messages.MetadataRequest(topics=[]), 12), 0
        while not large._transport.written:
            before = len(reads)
            feed(other, ping)
            turns += 1
            await asyncio.sleep(0)  # The large request may have taken the turn of this iteration.
            assert len(other._transport.written) == turns
            assert len(reads) - before <= 200
        assert len(reads) == count
        for each in (large, other):
            each.connection_lost(None)


@measured
@pytest.mark.parametrize("end", ["answered", "lost"])
async def test_a_large_fetch_is_freed_without_holding_the_loop(end):
    count = 200_000
    partitions = [fetch.FetchPartition(partition=n, fetch_offset=0) for n in range(count)]
    topics = [fetch.FetchTopic(topic="orders", partitions=partitions)]
    sent = frame(messages.FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 12)
    del partitions, topics
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        protocol, transport = (
            connection_of(cluster),
            FakeTransport(),
        )
        protocol.connection_made(transport)
        feed(protocol, sent)
        # Without native modules, the garbage collector is disabled: it would visit many more
        # objects.
        with held_times(collecting=_native.in_use()) as times:
            if end == "answered":
                await iterations(lambda: transport.written and not protocol._busy)
            else:
                await iterations(lambda: protocol._handling is not None)
                for _ in range(3_000):
                    await asyncio.sleep(0)
                assert not transport.written
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)
            for _ in range(100):
                await asyncio.sleep(0)
        check_held(times)


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
        large = connection_of(cluster)
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
