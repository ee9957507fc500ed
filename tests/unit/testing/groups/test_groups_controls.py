"""Tests of how a test inspects and disturbs groups: views, faults, and deleted topics."""

import asyncio

import pytest

from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster
from aiokclient.types import OffsetAndMetadata, TopicPartition

LIST = messages.ListGroupsRequest()


class TestLooking:
    def test_groups_shows_the_members_and_their_assignments(self, cluster, peers):
        assert cluster.groups == {}
        a, b = peers(), peers(instance="i", protocols={"range": b"b", "other": b""})
        peers.settle(a, b)
        group = cluster.groups["g"]
        assert (group.group_id, group.kind.value, group.state) == ("g", "classic", "Stable")
        assert (group.generation, group.protocol_type, group.protocol) == (2, "consumer", "range")
        assert group.leader in group.members
        assert list(group.members) == [a.member_id, b.member_id]
        member = group.members[b.member_id]
        assert (member.instance_id, member.client_id) == ("i", "raw")
        assert (member.metadata, member.assignment) == (b"b", b"1")

    def test_committed_returns_the_offsets_of_a_group(self, cluster, peers):
        assert cluster.committed("g") == {}
        member = peers()
        member.commit("orders", 5, 0, metadata="m")
        tp = TopicPartition("orders", 0)
        assert cluster.committed("g")[tp] == OffsetAndMetadata(5, "m", None)
        assert len(cluster.committed("g")) == 2

    def test_deleting_a_topic_deletes_its_offsets(self, cluster, peers):
        cluster.create_topic("other")
        member = peers()
        member.commit("orders", 5)
        member.commit("other", 6)
        cluster.delete_topic("orders")
        cluster.create_topic("orders")
        assert member.fetch(None) == ("ok", [(0, 6, "", "ok")])
        assert member.fetch(cluster.topic_id("orders"), 0) == ("ok", [(0, -1, "", "ok")])

    def test_each_broker_lists_the_groups_that_it_coordinates(self, cluster, wire, peers_of):
        names = [f"g{number}" for number in range(12)]
        for name in names:
            peers_of(cluster, name)().commit("orders", 1)
        found = {
            broker: [each.group_id for each in wire.to(broker).request(LIST).groups]
            for broker in cluster.brokers
        }
        assert sorted(name for there in found.values() for name in there) == sorted(names)
        for broker, there in found.items():
            assert there
            assert {cluster.coordinator(name) for name in there} == {broker}
        cluster.stop(1)
        assert {cluster.coordinator(name) for name in names} == {2, 3}
        (second, third) = (wire.to(each).request(LIST).groups for each in (2, 3))
        assert sorted(each.group_id for each in [*second, *third]) == sorted(names)

    def test_one_request_returns_the_offsets_of_several_groups(self, cluster, wire, peers_of):
        names = [f"g{number}" for number in range(6)]
        for number, name in enumerate(names):
            peers_of(cluster, name)().commit("orders", number)
        here = cluster.coordinator("g0")
        asked = [
            messages.offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=topics)
            for name, topics in [*((each, None) for each in names), ("none", []), ("", None)]
        ]
        answer = wire.to(here).request(messages.OffsetFetchRequest(groups=asked))
        assert [each.group_id for each in answer.groups] == [each.group_id for each in asked]
        for group in answer.groups:
            mine = cluster.coordinator(group.group_id) == here
            assert group.error_code == (0 if mine else 16)
            offsets = [each.committed_offset for topic in group.topics for each in topic.partitions]
            known = group.group_id in names
            assert offsets == ([int(group.group_id[1:])] if mine and known else [])

    def test_group_controls_work_in_the_clusters_loop_and_from_threads(self):
        async def use():
            async with EmbeddedCluster() as cluster:
                return cluster.groups, cluster.committed("g")

        assert asyncio.run(use()) == ({}, {})


class TestFaults:
    """Requests that the broker holds are dropped, delayed, and refused like all others."""

    def test_a_join_dropped_before_its_execution_has_no_effect(self, cluster, peers):
        a, b = peers(), peers()
        peers.settle(a)
        with cluster.drop(ApiKey.JOIN_GROUP, when="before", where=lambda each: each.member_id):
            b.start_join()
            with pytest.raises(EOFError):
                b.joined()
        assert cluster.groups["g"].state == "Stable"
        b.moved()
        peers.settle(b, old=(a,))

    def test_a_join_dropped_after_its_execution_has_its_effect(self, cluster, peers):
        member = peers()
        with cluster.drop(ApiKey.JOIN_GROUP, when="after", where=lambda each: each.member_id):
            member.start_join()
            with pytest.raises(EOFError):
                member.joined()
        # The member has joined. It learns its generation when it sends the request again.
        assert cluster.groups["g"].generation == 1
        member.moved()
        assert member.join().generation_id == 1
        with cluster.drop(ApiKey.SYNC_GROUP, when="after"), pytest.raises(EOFError):
            member.sync({member: b"1"})
        assert cluster.groups["g"].state == "Stable"
        member.moved()
        assert member.sync() == ("ok", b"1")
        with cluster.drop(ApiKey.OFFSET_COMMIT, when="after"), pytest.raises(EOFError):
            member.commit("orders", 9)
        assert cluster.committed("g")[TopicPartition("orders", 0)].offset == 9

    def test_a_client_that_hangs_up_while_it_waits_stays_a_member(self, cluster, peers):
        a, b = peers(), peers()
        peers.settle(a)
        b.start_join()
        a.until("PreparingRebalance", 2)
        b.waiting.socket.close()
        b.moved()
        a.start_join()
        assert a.joined().generation_id == 2
        assert b.beat() == "ILLEGAL_GENERATION"
        assert b.join().generation_id == 2

    def test_offset_requests_can_be_refused_for_one_partition(self, cluster, peers):
        member = peers()
        peers.settle(member)
        with cluster.fail(ApiKey.OFFSET_COMMIT, 28, topic="orders", partition=1):
            assert member.commit("orders", 1, 1) == ["ok", "INVALID_COMMIT_OFFSET_SIZE"]
        with cluster.fail(ApiKey.OFFSET_FETCH, 88, topic="orders", partition=1) as fault:
            assert member.fetch("orders", 0, 1) == (
                "ok",
                [(0, 1, "", "ok"), (1, -1, "", "UNSTABLE_OFFSET_COMMIT")],
            )
            assert fault.hits == 1
        with cluster.fail(ApiKey.OFFSET_FETCH, 30):
            assert member.fetch("orders", 0) == ("GROUP_AUTHORIZATION_FAILED", [])

    def test_requests_of_a_member_can_be_delayed(self, cluster, peers):
        member = peers()
        peers.settle(member)
        with cluster.delay(ApiKey.HEARTBEAT, 0.01):
            assert member.beat() == "ok"
        with cluster.delay(ApiKey.SYNC_GROUP, 3600, when="after"):
            member.start_sync()
            assert member.beat() == "ok"
            assert member.waiting.silent()


class TestOffsetsOfOldVersions:
    @pytest.mark.parametrize("version", [1, 2, 7])
    def test_old_versions_repeat_the_error_of_a_group_for_each_partition(
        self, cluster, wire, version
    ):
        asked = messages.offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        request = messages.OffsetFetchRequest(group_id="g", topics=[asked])
        broker = next(each for each in cluster.brokers if each != cluster.coordinator("g"))
        answer = wire.to(broker).request(request, version)
        told = [each.error_code for topic in answer.topics for each in topic.partitions]
        assert (answer.error_code, told) == ((0, [16]) if version == 1 else (16, []))
