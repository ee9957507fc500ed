"""Tests of Produce: sequences, duplicates, epochs, checks, and acks."""

import uuid

import pytest

from aiokclient import errors
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.record.batch import Compression, walk, with_offset
from aiokclient.record.control import control_batch
from aiokclient.record.crc import crc32c


@pytest.fixture
def leader(wire):
    return wire.leader()


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_appends_records(cluster, wire, leader, version):
    for offset in (0, 2):
        answer = leader.produce("orders", wire.batch(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, offset)
    assert [record.offset for record in cluster.records("orders", 0)] == [0, 1, 2, 3]
    assert [record.value for record in cluster.records("orders", 0)] == [b"a", b"b"] * 2


def test_records_are_appended_by_topic_id(cluster, wire, leader):
    answer = leader.produce(cluster.topic_id("orders"), wire.batch(b"v"))
    assert answer.error_code == 0
    answer = leader.produce(uuid.uuid4(), wire.batch(b"v"))
    assert answer.error_code == errors.UnknownTopicIdError.code


@pytest.mark.parametrize("codec", Compression)
def test_batches_are_stored_unchanged(cluster, wire, leader, codec):
    batch = wire.batch(*[b"value"] * 100, compression=codec)
    leader.produce("orders", wire.batch(b"first"))
    leader.produce("orders", batch)
    answer = leader.fetch("orders", offset=1)
    assert b"".join([bytes(answer.records)]) == with_offset(batch, 1, 0)


def test_records_for_unknown_topics_and_partitions_are_refused(wire, leader):
    for topic, partition in (("nothing", 0), ("orders", 3), ("orders", -1)):
        answer = leader.produce(topic, wire.batch(b"v"), partition)
        assert answer.error_code == errors.UnknownTopicOrPartitionError.code


def test_a_follower_names_the_leader(cluster, wire):
    cluster.move_leader("orders", 0, to=3)
    follower = wire.to(1)
    follower.send(produce_request(wire.batch(b"v")), 12)
    response = follower.receive()
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == errors.NotLeaderOrFollowerError.code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (3, 1)
    (named,) = response.node_endpoints
    assert (named.node_id, (named.host, named.port)) == (3, cluster.address(3))
    assert follower.produce("orders", wire.batch(b"v"), version=9).error_code == answer.error_code


def produce_request(batch, acks=-1):
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="orders", partition_data=[data])
    return messages.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


class TestSequences:
    def send(self, wire, leader, epoch, sequence, count=2, producer=5):
        batch = wire.batch(*[b"v"] * count, producer=(producer, epoch, sequence))
        answer = leader.produce("orders", batch)
        return answer.error_code, answer.base_offset

    def test_sequences_in_order_are_accepted(self, wire, leader):
        assert [self.send(wire, leader, 0, each)[1] for each in (0, 2, 4)] == [0, 2, 4]

    def test_a_duplicate_gets_its_first_offset(self, cluster, wire, leader):
        for sequence in range(0, 14, 2):
            assert self.send(wire, leader, 0, sequence) == (0, sequence)
        for sequence in range(4, 14, 2):
            assert self.send(wire, leader, 0, sequence) == (0, sequence)
        # The leader remembers the last five batches. An older one looks like a gap.
        out_of_order = errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 0, 2) == (out_of_order, -1)
        assert cluster.offsets("orders", 0) == (0, 14)

    def test_a_gap_in_sequences_is_refused(self, wire, leader):
        self.send(wire, leader, 0, 0)
        assert self.send(wire, leader, 0, 4)[0] == errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 0, 1)[0] == errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 0, 2) == (0, 2)

    def test_an_unknown_producer_may_begin_with_any_sequence(self, cluster, wire, leader):
        assert self.send(wire, leader, 0, 1000) == (0, 0)
        cluster.forget_producers("orders", 0)
        assert self.send(wire, leader, 0, 77) == (0, 2)

    def test_a_new_epoch_begins_at_0(self, wire, leader):
        self.send(wire, leader, 0, 0)
        assert self.send(wire, leader, 1, 2)[0] == errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 1, 0) == (0, 2)
        assert self.send(wire, leader, 0, 2)[0] == errors.InvalidProducerEpochError.code

    def test_the_embedded_broker_accepts_sequences_that_wrap(self, wire, leader):
        last = (1 << 31) - 2
        assert self.send(wire, leader, 0, last) == (0, 0)
        assert self.send(wire, leader, 0, 0) == (0, 2)
        assert self.send(wire, leader, 0, last, count=3)[0] == errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 0, last) == (0, 0)

    def test_producers_have_independent_sequences(self, wire, leader):
        assert self.send(wire, leader, 0, 0, producer=1) == (0, 0)
        assert self.send(wire, leader, 0, 0, producer=2) == (0, 2)
        assert self.send(wire, leader, 0, 2, producer=1) == (0, 4)

    def test_truncation_restores_earlier_sequences(self, cluster, wire, leader):
        for sequence in (0, 2, 4):
            self.send(wire, leader, 0, sequence)
        cluster.truncate("orders", 0, to=2)
        assert self.send(wire, leader, 0, 4)[0] == errors.OutOfOrderSequenceError.code
        assert self.send(wire, leader, 0, 0) == (0, 0)
        assert self.send(wire, leader, 0, 2) == (0, 2)

    def test_sequences_survive_a_new_leader(self, cluster, wire, leader):
        self.send(wire, leader, 0, 0)
        cluster.move_leader("orders", 0)
        leader = wire.leader()
        assert self.send(wire, leader, 0, 0) == (0, 0)
        assert self.send(wire, leader, 0, 2) == (0, 2)


class TestChecks:
    def test_the_embedded_broker_refuses_a_batch_with_an_unknown_codec(self, wire, leader):
        batch = bytearray(wire.batch(b"v"))
        batch[22] |= 5
        batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
        answer = leader.produce("orders", bytes(batch))
        assert answer.error_code == errors.UnknownServerError.code

    @pytest.mark.parametrize(
        ("spoil", "error"),
        [
            (lambda batch: batch[:-1] + b"?", errors.CorruptRecordError),
            (lambda batch: batch[:-1], errors.InvalidRecordError),
            (lambda batch: b"rubbish" * 20, errors.CorruptRecordError),
            (lambda batch: batch + batch, errors.InvalidRecordError),
            (lambda batch: b"", errors.InvalidRecordError),
            (lambda batch: None, errors.InvalidRecordError),
            (lambda batch: control_batch(1, b"", 0), errors.InvalidRecordError),
        ],
    )
    def test_bytes_that_are_no_batch_are_refused(self, cluster, wire, leader, spoil, error):
        answer = leader.produce("orders", spoil(wire.batch(b"v1", b"v2")))
        assert (answer.error_code, answer.base_offset) == (error.code, -1)
        assert cluster.offsets("orders", 0) == (0, 0)

    def test_zstd_needs_version_7(self, wire, leader):
        batch = wire.batch(bytes(1000), compression=Compression.ZSTD)
        answer = leader.produce("orders", batch, version=6)
        assert answer.error_code == errors.UnsupportedCompressionTypeError.code
        assert leader.produce("orders", batch, version=7).error_code == 0

    def test_limits_of_the_topic_are_applied(self, cluster, wire):
        limits = {
            "max.message.bytes": 500,
            "message.timestamp.before.max.ms": 3_600_000,
            "cleanup.policy": "compact",
        }
        cluster.create_topic("strict", configs=limits)
        leader = wire.leader("strict")
        now = cluster._state.clock.time_ms()

        def answer(**options):
            value = options.pop("value", b"v")
            return leader.produce("strict", wire.batch(value, **options)).error_code

        assert answer(timestamp=now, key=b"k") == 0
        assert answer(timestamp=now) == errors.InvalidRecordError.code
        assert answer(timestamp=now - 4_000_000, key=b"k") == errors.InvalidTimestampError.code
        assert answer(timestamp=now + 4_000_000, key=b"k") == errors.InvalidTimestampError.code
        too_large = answer(value=bytes(500), timestamp=now, key=b"k")
        assert too_large == errors.RecordTooLargeError.code

    def test_log_append_time_sets_the_timestamps(self, cluster, wire):
        cluster.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
        leader = wire.leader("stamped")
        batch = wire.batch(b"v", producer=(1, 0, 0))
        answer = leader.produce("stamped", batch)
        assert answer.log_append_time_ms > 1_000_000
        (record,) = cluster.records("stamped", 0)
        assert (record.timestamp, record.timestamp_type) == (answer.log_append_time_ms, 1)
        again = leader.produce("stamped", batch)
        assert again.log_append_time_ms == answer.log_append_time_ms


class TestAcks:
    def test_acks_0_has_no_response(self, cluster, wire, leader):
        leader.produce("orders", wire.batch(b"v"), acks=0)
        assert leader.request(messages.MetadataRequest(topics=[])).brokers
        assert cluster.offsets("orders", 0) == (0, 1)

    def test_an_error_with_acks_0_closes_the_connection(self, wire, leader):
        leader.produce("nothing", wire.batch(b"v"), acks=0)
        assert leader.closed()

    def test_other_acks_are_refused(self, wire, leader):
        answer = leader.produce("orders", wire.batch(b"v"), acks=5)
        assert answer.error_code == errors.InvalidRequiredAcksError.code

    def test_acks_all_waits_for_the_replicas(self, cluster, wire, leader):
        with cluster.hold_replication("orders", 0):
            assert leader.produce("orders", wire.batch(b"a"), acks=1).error_code == 0
            leader.produce("orders", wire.batch(b"b"), wait=False)
            cluster.wait_for(lambda: cluster.requests_total == 2)
            assert leader.silent()
            assert cluster.offsets("orders", 0) == (0, 0)
        answer = leader.receive().responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 1)

    def test_acks_all_times_out(self, cluster, wire, leader):
        with cluster.hold_replication("orders", 0):
            answer = leader.produce("orders", wire.batch(b"a"), timeout_ms=10)
            assert answer.error_code == errors.RequestTimedOutError.code
        # The batch was appended nevertheless.
        assert cluster.offsets("orders", 0) == (0, 1)

    def test_acks_all_fails_when_the_leader_moves(self, cluster, wire, leader):
        with cluster.hold_replication("orders", 0, broker=2):
            leader.produce("orders", wire.batch(b"a"), wait=False)
            cluster.wait_for(lambda: cluster.requests_total == 1)
            cluster.move_leader("orders", 0, to=2)
            answer = leader.receive().responses[0].partition_responses[0]
        assert answer.error_code == errors.NotLeaderOrFollowerError.code
        assert cluster.offsets("orders", 0) == (0, 0)

    def test_acks_all_is_refused_with_too_few_replicas_in_sync(self, cluster, wire):
        cluster.create_topic("safe", configs={"min.insync.replicas": 2})
        cluster.create_topic("alone", replication=1, configs={"min.insync.replicas": 2})
        leader = wire.leader("safe")
        batch = wire.batch(b"v")
        assert leader.produce("safe", batch).error_code == 0
        for broker in cluster.brokers:
            if broker != cluster.leader("safe"):
                cluster.stop(broker)
        assert leader.produce("safe", batch).error_code == errors.NotEnoughReplicasError.code
        assert leader.produce("safe", batch, acks=1).error_code == 0
        assert wire.leader("alone").produce("alone", batch).error_code == 0


def test_received_requests_can_be_inspected(cluster, wire, leader):
    leader.produce("orders", wire.batch(b"v", producer=(9, 1, 0)), version=11)
    (request,) = cluster.requests
    assert (request.api, request.version, request.broker) == (ApiKey.PRODUCE, 11, 1)
    assert request.client_id == "raw"
    (batch,) = walk(request.message.topic_data[0].partition_data[0].records)
    assert (batch.producer_id, batch.producer_epoch) == (9, 1)


def test_requests_are_kept_in_bounded_memory(cluster, wire, leader):
    batch = wire.batch(bytes(1_000_000))
    for _ in range(40):
        leader.produce("orders", batch, acks=1)
    sizes = [len(each.message.topic_data[0].partition_data[0].records) for each in cluster.requests]
    assert len(sizes) == 40
    assert sum(sizes) <= 34 << 20
    assert sizes[0] == 61
    assert sizes[-1] == len(batch)
