"""Tests of Fetch: limits, waiting, leaders and followers, epochs, and transactions."""

import uuid

import pytest

from aiokclient import errors
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
def leader(wire):
    return wire.leader()


def filled(cluster, count=10, size=100, topic="orders"):
    """Produce this number of batches with one record each, and return the size of one batch."""
    for number in range(count):
        cluster.produce(topic, [b"%d" % number + bytes(size - len(str(number)))])
    return size + 70


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_returns_the_records(cluster, wire, leader, version):
    cluster.produce("orders", [b"a", b"b"])
    topic = cluster.topic_id("orders") if version >= 13 else "orders"
    answer = leader.fetch(topic, version=version)
    assert wire.values(answer) == [b"a", b"b"]
    assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
    assert answer.log_start_offset == (0 if version >= 5 else -1)


def test_a_batch_is_returned_completely_when_the_offset_is_inside(cluster, wire, leader):
    cluster.produce("orders", [b"a", b"b", b"c"])
    cluster.produce("orders", [b"d"])
    assert wire.values(leader.fetch("orders", offset=1)) == [b"a", b"b", b"c", b"d"]
    assert wire.values(leader.fetch("orders", offset=3)) == [b"d"]
    assert wire.values(leader.fetch("orders", offset=4)) == []


class TestLimits:
    def test_the_first_batch_is_complete_despite_the_limits(self, cluster, wire, leader):
        size = filled(cluster)
        answer = leader.fetch("orders", max_bytes=1, partition_max_bytes=1)
        assert len(answer.records) == pytest.approx(size, abs=10)
        assert len(wire.values(answer)) == 1

    def test_the_last_batch_may_be_cut_off(self, cluster, wire, leader):
        size = filled(cluster)
        answer = leader.fetch("orders", partition_max_bytes=size * 3)
        assert len(answer.records) == size * 3
        assert len(wire.values(answer)) == 3
        answer = leader.fetch("orders", max_bytes=size * 2)
        assert len(answer.records) == size * 2

    def test_max_bytes_limits_all_partitions_together(self, cluster, wire):
        cluster.create_topic("three", 3, replication=1)
        leader = cluster.leader("three", 0)
        for partition in range(3):
            cluster.move_leader("three", partition, to=leader)
            cluster.produce("three", [bytes(1000)], partition)
        request = wire.fetch_request("three", partitions=[0, 1, 2], max_bytes=1500)
        response = wire.to(leader).request(request, 12)
        sizes = [len(each.records) for each in response.responses[0].partitions]
        assert sizes[0] > 1000
        assert sizes[1:] == [0, 0]

    def test_all_records_are_returned_without_limits(self, cluster, wire, leader):
        filled(cluster, 1000)
        assert len(wire.values(leader.fetch("orders"))) == 1000


class TestWaiting:
    def test_a_fetch_waits_for_the_first_byte(self, cluster, wire, leader):
        leader.send(wire.fetch_request("orders", wait_ms=60_000), 12)
        cluster.wait_for(lambda: cluster.requests)
        assert leader.silent()
        cluster.produce("orders", [b"v"])
        assert wire.values(leader.receive().responses[0].partitions[0]) == [b"v"]

    def test_a_fetch_waits_for_min_bytes(self, cluster, wire, leader):
        leader.send(wire.fetch_request("orders", wait_ms=60_000, min_bytes=1000), 12)
        cluster.wait_for(lambda: cluster.requests)
        for number in range(5):
            assert leader.silent(), number
            cluster.produce("orders", [bytes(150)])
        assert len(wire.values(leader.receive().responses[0].partitions[0])) == 5

    def test_a_fetch_waits_no_longer_than_max_wait(self, cluster, wire, leader):
        cluster.produce("orders", [b"v"])
        answer = leader.fetch("orders", wait_ms=20, min_bytes=1000)
        assert wire.values(answer) == [b"v"]

    def test_a_fetch_waits_for_replicas(self, cluster, wire, leader):
        with cluster.hold_replication("orders", 0):
            cluster.produce("orders", [b"v"])
            leader.send(wire.fetch_request("orders", wait_ms=60_000), 12)
            cluster.wait_for(lambda: cluster.requests)
            assert leader.silent()
        assert wire.values(leader.receive().responses[0].partitions[0]) == [b"v"]

    @pytest.mark.parametrize("how", ["move", "delete", "bump"])
    def test_a_waiting_fetch_ends_when_the_leader_or_the_topic_disappears(
        self, cluster, wire, leader, how
    ):
        request = wire.fetch_request("orders", wait_ms=60_000, epoch=0)
        leader.send(request, 10)
        cluster.wait_for(lambda: cluster.requests)
        expected = {
            "move": errors.FencedLeaderEpochError,
            "delete": errors.UnknownTopicOrPartitionError,
            "bump": errors.FencedLeaderEpochError,
        }[how]
        if how == "move":
            cluster.move_leader("orders", 0)
        elif how == "delete":
            cluster.delete_topic("orders")
        else:
            cluster.bump_epoch("orders", 0)
        assert leader.receive().responses[0].partitions[0].error_code == expected.code

    def test_a_waiting_fetch_ends_when_records_are_deleted(self, cluster, wire, leader):
        filled(cluster, 5)
        leader.send(wire.fetch_request("orders", offset=5, wait_ms=60_000), 12)
        cluster.wait_for(lambda: cluster.requests)
        cluster.delete_records("orders", 0, before=5)
        assert leader.silent()
        cluster.produce("orders", [b"v"])
        assert leader.receive().responses[0].partitions[0].log_start_offset == 5


class TestErrors:
    def test_fetches_of_unknown_topics_and_partitions_are_refused(self, cluster, leader):
        unknown = errors.UnknownTopicOrPartitionError.code
        assert leader.fetch("nothing").error_code == unknown
        assert leader.fetch("orders", partitions=[9]).error_code == unknown
        assert leader.fetch(uuid.uuid4()).error_code == errors.UnknownTopicIdError.code

    def test_a_recreated_topic_has_another_id(self, cluster, wire, leader):
        old = cluster.topic_id("orders")
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 3)
        assert leader.fetch(old).error_code == errors.UnknownTopicIdError.code
        assert wire.leader().fetch(cluster.topic_id("orders")).error_code == 0

    def test_offsets_out_of_range_are_refused(self, cluster, leader):
        filled(cluster, 5)
        cluster.delete_records("orders", 0, before=2)
        out_of_range = errors.OffsetOutOfRangeError.code
        assert leader.fetch("orders", offset=1).error_code == out_of_range
        assert leader.fetch("orders", offset=6).error_code == out_of_range
        assert leader.fetch("orders", offset=5).error_code == 0
        answer = leader.fetch("orders", offset=2)
        assert (answer.error_code, answer.log_start_offset) == (0, 2)

    def test_leader_epochs_are_checked(self, cluster, wire, leader):
        cluster.bump_epoch("orders", 0)
        assert leader.fetch("orders", epoch=0).error_code == errors.FencedLeaderEpochError.code
        assert leader.fetch("orders", epoch=2).error_code == errors.UnknownLeaderEpochError.code
        assert leader.fetch("orders", epoch=1).error_code == 0

    def test_a_broker_that_is_not_the_leader_names_the_leader(self, cluster, wire):
        cluster.create_topic("alone", replication=1)
        leader = cluster.leader("alone")
        other = wire.to(next(each for each in cluster.brokers if each != leader))
        response = other.request(wire.fetch_request(cluster.topic_id("alone")))
        (answer,) = response.responses[0].partitions
        assert answer.error_code == errors.NotLeaderOrFollowerError.code
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (leader, 0)
        assert [each.node_id for each in response.node_endpoints] == [leader]


class TestTruncation:
    def test_a_diverging_epoch_is_returned(self, cluster, wire, leader):
        filled(cluster, 5)
        cluster.truncate("orders", 0, to=3)
        cluster.produce("orders", [b"new"] * 4)
        answer = leader.fetch("orders", offset=5, last_epoch=0)
        assert (answer.error_code, answer.diverging_epoch.epoch) == (0, 0)
        assert answer.diverging_epoch.end_offset == 3
        assert not answer.records
        answer = leader.fetch("orders", offset=3, last_epoch=0)
        assert answer.diverging_epoch.end_offset == -1
        assert wire.values(answer) == [b"new"] * 4
        # The log has never had this epoch.
        answer = leader.fetch("orders", offset=3, last_epoch=9)
        assert answer.error_code == errors.OffsetOutOfRangeError.code

    def test_an_unclean_leader_truncates_the_log(self, cluster, wire, leader):
        filled(cluster, 2)
        with cluster.hold_replication("orders", 0, broker=2, in_sync=False):
            assert cluster.isr("orders", 0) == [1, 3]
            filled(cluster, 2)
            assert cluster.offsets("orders", 0) == (0, 4)
            cluster.move_leader("orders", 0, to=2)
        assert cluster.offsets("orders", 0) == (0, 2)
        assert cluster.leader_epoch("orders", 0) == 1
        assert cluster.isr("orders", 0) == [1, 2, 3]
        assert leader.fetch("orders", offset=4, epoch=1).error_code != 0


class TestFollowers:
    def test_followers_answer_up_to_the_end_of_their_replica(self, cluster, wire):
        cluster.produce("orders", [b"a"])
        follower = wire.to(2)
        with cluster.hold_replication("orders", 0, broker=2, in_sync=False):
            cluster.produce("orders", [b"b"])
            answer = follower.fetch("orders")
            assert wire.values(answer) == [b"a"]
            assert answer.high_watermark == 1
            answer = follower.fetch("orders", offset=2)
            assert answer.error_code == errors.OffsetOutOfRangeError.code
        assert wire.values(follower.fetch("orders")) == [b"a", b"b"]

    def test_followers_refuse_old_clients(self, cluster, wire):
        answer = wire.to(2).fetch("orders", version=10)
        assert answer.error_code == errors.NotLeaderOrFollowerError.code

    def test_the_leader_names_the_replica_in_the_clients_rack(self, wire_to):
        with EmbeddedCluster(3, {"orders": 1}, racks=["a", "b", "b"]) as cluster:
            wire = wire_to(cluster)
            cluster.produce("orders", [b"v"])
            leader = wire.leader()
            answer = leader.fetch("orders", rack="b", wait_ms=60_000, offset=1)
            assert (answer.preferred_read_replica, answer.high_watermark) == (2, 1)
            assert not answer.records
            for rack in ("a", "c", ""):
                assert leader.fetch("orders", rack=rack).preferred_read_replica == -1
            with cluster.hold_replication("orders", 0, broker=2, in_sync=False):
                assert leader.fetch("orders", rack="b").preferred_read_replica == 3
            assert wire.values(wire.to(2).fetch("orders", rack="b")) == [b"v"]
            cluster.stop(2)
            cluster.stop(3)
            assert wire.values(leader.fetch("orders", rack="b")) == [b"v"]


class TestTransactions:
    def write(self, cluster, value, producer, sequence=0):
        cluster.produce(
            "orders", [value], producer_id=producer, base_sequence=sequence, transactional=True
        )

    def test_open_transactions_hide_later_records(self, cluster, wire, leader):
        cluster.produce("orders", [b"before"])
        self.write(cluster, b"inside", 1)
        cluster.produce("orders", [b"after"])
        answer = leader.fetch("orders", committed=True)
        assert wire.values(answer) == [b"before"]
        assert (answer.high_watermark, answer.last_stable_offset) == (3, 1)
        assert wire.values(leader.fetch("orders")) == [b"before", b"inside", b"after"]
        latest = leader.list_offset("orders", -1, isolation=1)
        assert latest.offset == 1

    def test_aborted_transactions_are_listed(self, cluster, wire, leader):
        self.write(cluster, b"a", 1)
        self.write(cluster, b"b", 2)
        self.write(cluster, b"a", 1, sequence=1)
        cluster.end_transaction("orders", producer_id=1, commit=False)
        assert leader.fetch("orders", committed=True).last_stable_offset == 1
        cluster.end_transaction("orders", producer_id=2, commit=True)
        self.write(cluster, b"c", 1, sequence=2)
        cluster.end_transaction("orders", producer_id=1, commit=False)
        answer = leader.fetch("orders", committed=True)
        named = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert named == [(1, 0), (1, 5)]
        assert wire.values(answer) == [b"a", b"b", b"a", b"c"]
        answer = leader.fetch("orders", offset=4, committed=True)
        named = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert named == [(1, 5)]
        assert leader.fetch("orders").aborted_transactions is None

    def test_a_marker_ends_a_waiting_fetch(self, cluster, wire, leader):
        self.write(cluster, b"v", 1)
        leader.send(wire.fetch_request("orders", committed=True, wait_ms=60_000), 12)
        cluster.wait_for(lambda: cluster.requests)
        assert leader.silent()
        cluster.end_transaction("orders", producer_id=1)
        assert wire.values(leader.receive().responses[0].partitions[0]) == [b"v"]


def test_end_offsets_of_leader_epochs_are_returned(cluster, wire, leader):
    filled(cluster, 2)
    cluster.bump_epoch("orders", 0)
    filled(cluster, 3)
    cluster.bump_epoch("orders", 0)

    def end(epoch, current=-1, version=None):
        from aiokclient.protocol.messages import offset_for_leader_epoch as parts

        asked = parts.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [parts.OffsetForLeaderTopic(topic="orders", partitions=[asked])]
        request = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        answer = leader.request(request, version).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    for version in (2, 3, 4):
        assert end(0, version=version) == (0, 0, 2)
    assert end(1) == (0, 1, 5)
    assert end(2) == (0, 2, 5)
    assert end(3) == (0, -1, -1)
    assert end(1, current=1)[0] == errors.FencedLeaderEpochError.code
    assert end(1, current=3)[0] == errors.UnknownLeaderEpochError.code
    with cluster.fail(ApiKey.OFFSET_FOR_LEADER_EPOCH, errors.NotLeaderOrFollowerError):
        assert end(1)[0] == errors.NotLeaderOrFollowerError.code
