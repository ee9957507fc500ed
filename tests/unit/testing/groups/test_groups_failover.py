"""Tests of what a new coordinator knows after a failover, at each step of a rebalance."""

from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster


def state_of(cluster):
    group = cluster.groups["g"]
    return group.state, group.generation


def resume(cluster, *members):
    """Connect the members to the new coordinator."""
    for each in members:
        each.moved()


class TestTheFourPoints:
    """The four points of a classic rebalance at which a coordinator can fail."""

    def test_failover_before_all_members_have_joined(self, cluster, peers):
        a, b = peers(), peers()
        peers.settle(a)
        b.start_join()
        a.until("PreparingRebalance", 2)
        cluster.move_coordinator("g")
        # The waiting member receives an error. The new coordinator has the previous generation.
        assert b.joined().error_code == 16
        assert a.beat() == "NOT_COORDINATOR"
        resume(cluster, a, b)
        assert state_of(cluster) == ("Stable", 1)
        assert (a.beat(), a.sync()) == ("ok", ("ok", b"0"))
        # A member id that was not persisted with a generation is unknown.
        assert b.join().error_code == 25
        b.member_id = ""
        peers.settle(b, old=(a,))
        assert state_of(cluster) == ("Stable", 2)

    def test_failover_after_the_generation_is_persisted(self, cluster, peers):
        a, b = peers(), peers()
        peers.settle(a, b)
        for each in (a, b):
            each.protocols["range"] = b"changed"
        b.start_join()
        a.until("PreparingRebalance")

        def of_b(request):
            return request.member_id == b.member_id

        b.moved()
        with cluster.drop(ApiKey.JOIN_GROUP, when="after", where=of_b):
            b.start_join()
            a.start_join()
            assert a.joined().generation_id == 3
            assert closed(b.waiting)
        cluster.move_coordinator("g")
        assert state_of(cluster) == ("CompletingRebalance", 3)
        resume(cluster, a, b)
        # A member without a response sends the request again and gets the same generation.
        assert a.beat() == "ok"
        assert b.join().generation_id == 3
        peers.assign(a, b)
        assert state_of(cluster) == ("Stable", 3)

    def test_a_changed_member_makes_all_join_again_after_a_failover(self, cluster, peers):
        a, b = peers(), peers()
        leader = peers.gather(a, b)
        other = b if leader is a else a
        cluster.move_coordinator("g")
        resume(cluster, a, b)
        leader.start_sync()
        leader.synced()
        other.protocols["range"] = b"changed"
        other.start_join()
        other.until("PreparingRebalance")
        assert leader.beat() == "REBALANCE_IN_PROGRESS"
        assert leader.join().generation_id == other.joined().generation_id == 3

    def test_failover_before_the_assignments_are_persisted(self, cluster, peers):
        a, b = peers(), peers()
        leader = peers.gather(a, b)
        other = b if leader is a else a
        other.start_sync()
        other.until("CompletingRebalance")
        cluster.wait_for(lambda: any(r.api == ApiKey.SYNC_GROUP for r in cluster.requests[-3:]))
        cluster.move_coordinator("g")
        assert other.synced() == ("NOT_COORDINATOR", b"")
        assert state_of(cluster) == ("CompletingRebalance", 2)
        resume(cluster, a, b)
        peers.assign(a, b)
        assert state_of(cluster) == ("Stable", 2)

    def test_failover_after_the_assignments_are_persisted(self, cluster, peers):
        a, b = peers(), peers()
        leader = peers.gather(a, b)
        other = b if leader is a else a
        with cluster.drop(ApiKey.SYNC_GROUP, when="after", times=2):
            other.start_sync()
            leader.start_sync({leader: b"l", other: b"o"})
            assert closed(leader.waiting)
            assert closed(other.waiting)
        cluster.move_coordinator("g")
        resume(cluster, a, b)
        assert state_of(cluster) == ("Stable", 2)
        # No member has to send anything again.
        assert other.sync() == ("ok", b"o")
        assert leader.sync() == ("ok", b"l")
        assert (leader.beat(), other.beat()) == ("ok", "ok")


def closed(connection):
    try:
        connection.receive()
    except EOFError:
        return True
    return False


class TestMoves:
    def test_a_group_returns_to_its_restarted_broker(self, cluster, peers):
        member = peers(session_ms=10_000)
        peers.settle(member)
        assert member.commit("orders", 5) == ["ok"]
        home = cluster.coordinator("g")
        cluster.stop(home)
        member.moved()
        assert cluster.coordinator("g") != home
        assert (member.beat(), member.fetch("orders", 0)) == ("ok", ("ok", [(0, 5, "", "ok")]))
        member.protocols["range"] = b"changed"
        member.start_join()
        member.joined()
        cluster.start(home)
        # The group moves back to its first coordinator. The other one now knows nothing of it.
        assert cluster.coordinator("g") == home
        assert member.beat() == "NOT_COORDINATOR"
        member.moved()
        assert member.sync({member: b"1"}) == ("ok", b"1")

    def test_a_group_survives_the_stop_of_the_last_broker(self, peers_of):
        with EmbeddedCluster(1) as cluster:
            peers = peers_of(cluster)
            a, b = peers(), peers()
            peers.settle(a)
            b.start_join()
            a.until("PreparingRebalance", 2)
            cluster.stop(1)
            assert cluster.groups["g"].state == "loading"
            assert closed(b.waiting)
            cluster.start(1)
            a.moved()
            assert (a.beat(), a.sync()) == ("ok", ("ok", b"0"))

    def test_requests_to_a_former_coordinator_are_refused(self, cluster, peers):
        member = peers()
        peers.settle(member)
        other = next(each for each in cluster.brokers if each != cluster.coordinator("g"))
        cluster.move_coordinator("g", to=other)
        assert member.beat() == "NOT_COORDINATOR"
        assert member.sync()[0] == "NOT_COORDINATOR"
        assert member.join().error_code == 16
        assert member.leave() == ("NOT_COORDINATOR", [])
        assert member.leave(version=2) == "NOT_COORDINATOR"
        assert member.commit("orders", 1, 2) == ["NOT_COORDINATOR"] * 2
        assert member.fetch("orders", 0) == ("NOT_COORDINATOR", [])
        assert member.described().error_code == 16
        member.moved()
        assert member.beat() == "ok"

    def test_static_members_keep_their_assignments_after_a_failover(self, cluster, peers):
        a, b = peers(instance="a"), peers(instance="b")
        peers.settle(a, b)
        again = peers(instance="b")
        assert again.join().error_code == 0
        cluster.move_coordinator("g")
        resume(cluster, a, b, again)
        assert b.beat() == "FENCED_INSTANCE_ID"
        assert (again.beat(), again.sync()) == ("ok", ("ok", b"1"))

    def test_only_offsets_survive_a_failover_without_persistence(self, peers_of):
        with EmbeddedCluster(3, {"orders": 1}, persist_groups=False) as cluster:
            peers = peers_of(cluster)
            a, b, simple = peers(), peers(), peers_of(cluster, "simple")()
            peers.settle(a, b)
            a.commit("orders", 7)
            peers_of(cluster, "other").settle(third := peers_of(cluster, "other")())
            cluster.move_coordinator("g")
            cluster.move_coordinator("other")
            resume(cluster, a, b)
            # Only committed offsets are known to the new coordinator.
            assert state_of(cluster) == ("Empty", 0)
            assert list(cluster.groups) == ["g"]
            assert a.fetch("orders", 0) == ("ok", [(0, 7, "", "ok")])
            assert (a.beat(), b.sync()[0]) == ("UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID")
            assert b.join().error_code == 25
            assert simple.state == "Dead"
            for each in (a, b):
                each.member_id = ""
            peers.settle(a, b)
            assert third.beat() == "NOT_COORDINATOR"


class TestLoading:
    def test_requests_are_refused_while_a_group_is_loading(self, cluster, peers):
        a, b = peers(), peers()
        peers.settle(a)
        b.start_join()
        a.until("PreparingRebalance", 2)
        with cluster.hold_loading("g"):
            assert b.joined().error_code == 16
            assert cluster.groups["g"].state == "loading"
            # As in Kafka, a coordinator that still loads its groups accepts the heartbeats of their
            # members.
            assert a.beat() == "ok"
            assert b.join().error_code == 14
            assert a.sync()[0] == "COORDINATOR_LOAD_IN_PROGRESS"
            assert a.leave() == ("COORDINATOR_LOAD_IN_PROGRESS", [])
            assert a.commit("orders", 1) == ["COORDINATOR_LOAD_IN_PROGRESS"]
            assert a.fetch("orders", 0) == ("COORDINATOR_LOAD_IN_PROGRESS", [])
            assert a.described().error_code == 14
            assert a.side.request(messages.ListGroupsRequest()).error_code == 14
            cluster.move_coordinator("g")
            assert a.beat() == "NOT_COORDINATOR"
            a.moved()
            assert a.sync()[0] == "COORDINATOR_LOAD_IN_PROGRESS"
        assert a.sync() == ("ok", b"0")

    def test_a_group_created_while_loading_is_refused(self, cluster, peers):
        member = peers()
        with cluster.hold_loading("g"), cluster.hold_loading("g"):
            assert member.side.request(member.join_request()).error_code == 14
        peers.settle(member)

    def test_reset_ends_the_loading(self, cluster, peers):
        member = peers()
        peers.settle(member)
        with cluster.hold_loading("g"):
            cluster.reset()
            assert member.sync() == ("ok", b"0")
        assert member.sync() == ("ok", b"0")

    def test_fail_returns_load_in_progress_without_hold_loading(self, cluster, peers):
        member = peers()
        with cluster.fail(ApiKey.HEARTBEAT, 14):
            assert member.beat() == "COORDINATOR_LOAD_IN_PROGRESS"
