"""Tests of followers and of a leader that stops and returns.

They run on the embedded cluster and on a real Kafka.
"""

import contextlib
import time
import uuid

from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import create_topics, offset_for_leader_epoch
from aiokclient.protocol.messages import delete_records as deletion
from aiokclient.protocol.messages.metadata import MetadataRequestTopic
from aiokclient.testing import EmbeddedCluster


class World:
    """Three brokers and a topic with replicas on 1, 2, and 3, in this order."""

    def __init__(self, wire, addresses, stop, start):
        self.wire, self.addresses, self.stop, self.start = wire, addresses, stop, start
        self.connections = {}
        self.name = f"replicas-{uuid.uuid4().hex[:6]}"
        topic = create_topics.CreatableTopic(
            name=self.name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
            ],
        )
        (made,) = self.to(1).request(messages.CreateTopicsRequest(topics=[topic])).topics
        self.topic_id = made.topic_id
        self.until(lambda: all(self.state(node)[1:] == (1, [1, 2, 3], []) for node in (1, 2, 3)))
        self.until(lambda: self.to(1).list_offset(self.name, -1).error_code == 0)
        self.until(lambda: self.to(2).fetch(self.topic_id).error_code == 0)

    def to(self, node):
        """Return the connection to a broker, or a new one after the broker was stopped."""
        if node not in self.connections:
            self.connections[node] = self.wire.at(self.addresses[node])
        return self.connections[node]

    def stopped(self, node):
        self.stop(node)
        self.connections.pop(node).socket.close()

    def until(self, predicate):
        deadline = time.monotonic() + 60
        while not predicate():
            assert time.monotonic() < deadline
            # A broker does not report changes by itself, so it must be asked again.
            time.sleep(0.02)

    def state(self, node):
        """Return what a broker reports: error, leader, in-sync replicas, and offline replicas."""
        asked = [MetadataRequestTopic(name=self.name)]
        request = messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response = self.to(node).request(request)
        if not response.topics[0].partitions:
            return named(response.topics[0].error_code), -1, [], []
        (found,) = response.topics[0].partitions
        return (
            named(found.error_code),
            found.leader_id,
            sorted(found.isr_nodes),
            found.offline_replicas,
        )

    def epoch(self, node):
        asked = [MetadataRequestTopic(name=self.name)]
        response = self.to(node).request(messages.MetadataRequest(topics=asked))
        return response.topics[0].partitions[0].leader_epoch

    def asked(self, node):
        """Return the broker's response to each kind of request about the partition."""
        connection, name, topic_id = self.to(node), self.name, self.topic_id
        batch = self.wire.batch(b"v")
        seen = []
        for version in (9, 10, 12):
            answer = connection.produce(name, batch, version=version)
            leader = answer.current_leader.leader_id
            seen.append((version, named(answer.error_code), leader))
        for version in (10, 11, 12, 16, 18):
            topic = topic_id if version >= 13 else name
            for offset in (0, 1, 9):
                answer = connection.fetch(topic, offset=offset, version=version)
                leader = answer.current_leader.leader_id
                values = len(self.wire.values(answer))
                seen.append((version, offset, named(answer.error_code), leader, values))
        request = self.wire.fetch_request(topic_id, epoch=77)
        response = connection.request(request)
        nodes = [each.node_id for each in response.node_endpoints]
        seen.append((named(response.responses[0].partitions[0].error_code), nodes))
        for version in (1, 4, 11):
            seen.append(named(connection.list_offset(name, -1, version=version).error_code))
        partition = deletion.DeleteRecordsPartition(partition_index=0, offset=0)
        topics = [deletion.DeleteRecordsTopic(name=name, partitions=[partition])]
        answer = connection.request(messages.DeleteRecordsRequest(topics=topics, timeout_ms=60_000))
        seen.append(named(answer.topics[0].partitions[0].error_code))
        wanted = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        asked = [offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        request = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=asked)
        answer = connection.request(request).topics[0].partitions[0]
        return [*seen, (named(answer.error_code), answer.leader_epoch)]


def run(world):
    seen = [world.state(2)]
    seen.append(world.to(1).produce(world.name, world.wire.batch(b"a", b"b")).base_offset)
    world.until(lambda: world.to(2).fetch(world.topic_id).high_watermark == 2)
    seen += world.asked(2)
    before = world.epoch(2)
    world.stopped(1)
    world.until(lambda: all(world.state(node)[1:3] == (2, [2, 3]) for node in (2, 3)))
    seen += [world.state(3), world.epoch(3) - before]
    world.until(lambda: world.to(2).list_offset(world.name, -1).error_code == 0)
    stale = world.to(2).fetch(world.topic_id, epoch=before)
    seen.append((named(stale.error_code), stale.current_leader.leader_id))
    answer = world.to(2).produce(world.name, world.wire.batch(b"c"))
    seen.append((named(answer.error_code), answer.base_offset))
    for epoch in (before, before + 1):
        wanted = world.to(2).fetch(world.topic_id, offset=3, last_epoch=epoch)
        seen.append((named(wanted.error_code), wanted.diverging_epoch.end_offset))
    world.start(1)
    world.until(lambda: all(world.state(node)[2] == [1, 2, 3] for node in (1, 2, 3)))
    world.until(lambda: world.to(1).fetch(world.topic_id).high_watermark == 3)
    seen += [world.state(1), world.epoch(1) - before]
    return seen + world.asked(1)


def write_without_time(world, held):
    """Write with acks of all replicas and no time for the followers to fetch."""
    seen, batch = [], world.wire.batch(b"v")
    with held:
        for timeout in (0, -1, -60_000):
            answer = world.to(1).produce(world.name, batch, timeout_ms=timeout)
            seen.append((named(answer.error_code), answer.base_offset, answer.log_start_offset))
        answer = world.to(1).produce(world.name, batch, timeout_ms=0, acks=1)
        seen.append((named(answer.error_code), answer.base_offset))
    world.until(lambda: world.to(1).fetch(world.topic_id).high_watermark == 4)
    return seen


def test_writes_time_out_immediately_when_their_timeout_is_not_positive(kafka3, wire_to):
    with EmbeddedCluster(3) as cluster:
        addresses = {node: cluster.address(node) for node in cluster.brokers}
        world = World(wire_to(cluster), addresses, cluster.stop, cluster.start)
        ours = write_without_time(world, cluster.hold_replication(world.name))
        addresses = dict(enumerate(kafka3.addresses(), 1))
        world = World(world.wire, addresses, kafka3.kill, kafka3.start)
        theirs = write_without_time(world, contextlib.nullcontext())
    assert ours == theirs


def test_followers_answer_as_in_kafka(kafka3, wire_to):
    with EmbeddedCluster(3) as cluster:
        addresses = {node: cluster.address(node) for node in cluster.brokers}
        wire = wire_to(cluster)
        ours = run(World(wire, addresses, cluster.stop, cluster.start))
    addresses = dict(enumerate(kafka3.addresses(), 1))
    theirs = run(World(wire, addresses, kafka3.kill, kafka3.start))
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
