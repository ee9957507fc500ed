"""Tests of generations: which members are awaited or removed, the leader, and the protocol."""

import pytest

from aiokclient.testing import EmbeddedCluster


def rebalanced(cluster, peers, *members):
    """Begin the next generation with these members."""
    cluster.rebalance("g")
    for each in members:
        each.start_join()
    for each in members:
        assert each.joined().error_code == 0
    peers.assign(*members)


def drawn(peers_of, seed):
    """Return the successors of leaders that left, as indexes among seven members."""
    with EmbeddedCluster(1, {"orders": 1}, seed=seed) as cluster:
        peers = peers_of(cluster)
        members = [peers() for _ in range(7)]
        here, leaders = list(members), [peers.settle(*members)]
        while len(here) > 2:
            here.remove(leaders[-1])
            leaders[-1].leave()
            rebalanced(cluster, peers, *here)
            leaders += [each for each in here if each.leads]
        return [members.index(each) for each in leaders[1:]]


class TestGenerations:
    def test_the_leader_stays_the_same_while_it_joins_again(self, cluster, peers):
        members = [peers() for _ in range(5)]
        leader = peers.settle(*members)
        for _ in range(3):
            rebalanced(cluster, peers, *members)
            assert [each for each in members if each.leads] == [leader]

    def test_the_first_member_leads_a_new_group(self, peers_of):
        delay = {"group.initial.rebalance.delay.ms": 500}
        with EmbeddedCluster(1, {"orders": 1}, configs=delay) as cluster:
            peers = peers_of(cluster)
            first, second = peers(), peers()
            first.start_join()
            first.until("PreparingRebalance", 1)
            second.start_join()
            first.joined(), second.joined()
            assert (first.leads, second.leads) == (True, False)

    def test_the_successor_of_a_leader_that_left_is_chosen_at_random(self, peers_of):
        first = drawn(peers_of, 3)
        assert len(first) == 5
        assert drawn(peers_of, 3) == first
        assert drawn(peers_of, 4) != first

    def test_only_the_leader_gets_the_list_of_members(self, peers):
        a, b = peers(instance="one"), peers(protocols={"range": b"b"})
        peers.settle(a)
        b.start_join()
        a.until("PreparingRebalance", 2)
        a.start_join()
        answers = {each: each.joined() for each in (a, b)}
        leader = a if a.leads else b
        other = b if leader is a else a
        assert answers[other].members == []
        found = {
            each.member_id: (each.group_instance_id, each.metadata)
            for each in answers[leader].members
        }
        assert found == {a.member_id: ("one", b"metadata"), b.member_id: (None, b"b")}
        assert {each.leader for each in answers.values()} == {leader.member_id}

    def test_member_ids_contain_the_client_id(self, peers):
        a, b = peers(), peers(instance="shop-1")
        peers.settle(a, b)
        assert a.member_id.startswith("raw-")
        assert b.member_id.startswith("shop-1-")

    def test_a_new_protocol_is_used_when_the_last_member_offers_it(self, cluster, peers):
        members = [peers(protocols={"old": b""}) for _ in range(3)]
        peers.settle(*members)
        for number, each in enumerate(members):
            assert cluster.groups["g"].protocol == "old"
            each.protocols = {"new": b"", "old": b""}
            each.start_join()
            members[number - 1].until("PreparingRebalance")
            for other in members:
                if other is not each:
                    other.start_join()
            for other in members:
                other.joined()
            peers.assign(*members)
        assert cluster.groups["g"].protocol == "new"

    def test_an_empty_group_may_change_its_protocol_type(self, cluster, peers):
        consumer, other = peers(), peers(kind="leases", protocols={"leases": b"x"})
        peers.settle(consumer)
        generation = consumer.generation
        consumer.leave()
        peers.settle(other)
        assert other.generation > generation
        assert cluster.groups["g"].protocol_type == "leases"
        with_the_first = peers()
        assert with_the_first.side.request(with_the_first.join_request()).error_code == 23


class TestSize:
    def test_members_beyond_group_max_size_are_refused(self, cluster, peers):
        cluster._state.configs.apply_changes({"group.max.size": "2"})
        members, third = [peers(), peers()], peers()
        peers.settle(*members)
        assert third.side.request(third.join_request()).error_code == 81
        leader = next(each for each in members if each.leads)
        leader.start_join()
        leader.until("PreparingRebalance")
        # Up to the limit, the members that join first are accepted.
        third.get_id()
        third.start_join()
        cluster.wait_for(lambda: len(cluster.groups["g"].members) == 3)
        late = next(each for each in members if each is not leader)
        assert late.join().error_code == 81
        assert late.beat() == "UNKNOWN_MEMBER_ID"


class TestWaiting:
    def test_a_rebalance_does_not_wait_for_a_leader_that_left(self, peers):
        a, b = peers(), peers()
        leader = peers.gather(a, b)
        other = b if leader is a else a
        other.start_sync()
        leader.until("CompletingRebalance")
        leader.leave()
        assert other.synced()[0] in ("REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID")
        assert other.join().error_code == 0
        assert other.leads


class TestLeaving:
    def test_several_members_can_leave_in_one_request(self, cluster, peers):
        members = [peers(), peers(instance="a"), peers(instance="b"), peers()]
        peers.settle(*members)
        stays, *go = members
        who = [(each.member_id, each.instance) for each in go]
        assert stays.leave(*who) == ("ok", ["ok"] * 3)
        assert list(cluster.groups["g"].members) == [stays.member_id]
        assert stays.beat() == "REBALANCE_IN_PROGRESS"

    def test_waiting_members_get_an_error_when_they_are_removed(self, peers):
        a, b = peers(), peers()
        leader = peers.gather(a, b)
        other = b if leader is a else a
        other.start_sync()
        leader.until("CompletingRebalance")
        assert leader.leave((other.member_id, None)) == ("ok", ["ok"])
        assert other.synced()[0] == "UNKNOWN_MEMBER_ID"
        leader.start_join()
        assert leader.joined().error_code == 0

    def test_rebalance_makes_all_members_join_again(self, cluster, peers):
        member = peers()
        peers.settle(member)
        cluster.rebalance("g")
        assert member.beat() == "REBALANCE_IN_PROGRESS"
        cluster.rebalance("g")
        assert member.join().generation_id == member.generation == 2
        member.leave()
        cluster.rebalance("g")
        assert cluster.groups["g"].state == "Empty"
        with pytest.raises(ValueError, match=r"no group 'x'\. Groups: \['g'\]"):
            cluster.rebalance("x")
