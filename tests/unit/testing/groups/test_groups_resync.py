"""Tests of `resync=True`, which lets the leader change assignments within a generation.

Kafka does not have this.
"""

import pytest

from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
def cluster():
    with EmbeddedCluster(3, {"orders": 3}, seed=7, resync=True) as cluster:
        yield cluster


@pytest.fixture
def settled(peers):
    """Return the leader of a stable group, and its two other members."""
    members = [peers() for _ in range(3)]
    leader = peers.settle(*members)
    return leader, *(each for each in members if each is not leader)


def features(connection):
    request = messages.ApiVersionsRequest()
    request.client_software_name = request.client_software_version = "x"
    answer = connection.request(request)
    assert connection.request(messages.ApiVersionsRequest(), 2).error_code == 0
    supported = [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    finalized = [(each.name, each.max_version_level) for each in answer.finalized_features]
    return supported, finalized


def given(*members, data):
    return {each: data + b"%d" % number for number, each in enumerate(members)}


def test_resync_is_announced_as_a_feature(cluster, wire, wire_to):
    supported, finalized = features(wire.to(2))
    assert ("group.resync", 1, 1) in supported
    assert ("group.resync", 1) in finalized
    with EmbeddedCluster(1) as other:
        supported, finalized = features(wire_to(other).to(1))
        assert "group.resync" not in [name for name, *_ in supported + finalized]


def test_a_resync_changes_assignments_in_the_same_generation(cluster, settled):
    leader, one, two = settled
    generation = leader.generation
    new = given(*settled, data=b"new")
    leader.start_sync(new)
    leader.until("CompletingRebalance")
    # Members that have not synced again get an error, and may still commit what they revoke.
    assert [each.beat() for each in settled] == ["ok", *["REBALANCE_IN_PROGRESS"] * 2]
    assert one.commit("orders", 5) == ["ok"]
    assert leader.commit("orders", 5) == ["REBALANCE_IN_PROGRESS"]
    one.start_sync()
    cluster.wait_for(lambda: one.beat() == "ok")
    assert one.commit("orders", 6) == ["REBALANCE_IN_PROGRESS"]
    # No member gets a new assignment before all have revoked their old ones.
    assert leader.waiting.silent()
    assert one.waiting.silent()
    two.start_sync()
    assert [each.synced() for each in settled] == [("ok", data) for data in new.values()]
    assert cluster.groups["g"].generation == generation
    assert cluster.groups["g"].state == "Stable"
    assert [each.sync() for each in settled] == [("ok", data) for data in new.values()]


def test_a_repeated_sync_is_not_a_resync(settled):
    leader, one, _ = settled
    mine = leader.sync()
    same = {each: each.sync()[1] for each in settled}
    assert leader.sync(same) == mine
    assert one.sync(given(*settled, data=b"new")) == ("ok", same[one])
    assert [each.beat() for each in settled] == ["ok"] * 3


def test_a_client_without_resync_joins_again(settled):
    """Clients without support for `resync` react to REBALANCE_IN_PROGRESS with a JoinGroup."""
    leader, one, two = settled
    generation = leader.generation
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    for each in (one, two):
        assert each.join().generation_id == generation
        each.start_sync()
    assert [each.synced() for each in settled] == [("ok", b"new%d" % n) for n in range(3)]


def test_changed_metadata_begins_a_rebalance_during_a_resync(cluster, settled):
    leader, one, two = settled
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    one.protocols["range"] = b"changed"
    one.start_join()
    assert leader.synced()[0] == "REBALANCE_IN_PROGRESS"
    assert two.beat() == "REBALANCE_IN_PROGRESS"
    assert two.sync()[0] == "REBALANCE_IN_PROGRESS"
    for each in (leader, two):
        each.start_join()
    assert {each.joined().generation_id for each in settled} == {one.generation}


def test_a_leader_can_resync_again_during_a_resync(cluster, settled):
    leader, one, two = settled
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    leader.moved()
    asked = cluster.requests_total
    leader.start_sync(given(*settled, data=b"newer"))
    cluster.wait_for(lambda: cluster.requests_total > asked)
    for each in (one, two):
        each.start_sync()
    assert [each.synced() for each in settled] == [("ok", b"newer%d" % n) for n in range(3)]


def test_a_member_may_leave_during_a_resync(cluster, settled):
    leader, _, two = settled
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    two.leave()
    assert leader.synced()[0] == "REBALANCE_IN_PROGRESS"
    assert cluster.groups["g"].state == "PreparingRebalance"


def test_a_failover_during_a_resync_restores_the_old_assignments(cluster, settled):
    leader, *others = settled
    old = {each: each.sync()[1] for each in settled}
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    cluster.move_coordinator("g")
    assert leader.synced()[0] == "NOT_COORDINATOR"
    for each in settled:
        each.moved()
    # The new assignments were not persisted. The old ones are valid until the leader sends new
    # ones.
    assert [each.sync() for each in others] == [("ok", old[each]) for each in others]
    leader.start_sync(given(*settled, data=b"new"))
    leader.until("CompletingRebalance")
    for each in others:
        each.start_sync()
    assert [each.synced() for each in settled] == [("ok", b"new%d" % n) for n in range(3)]


def test_a_lone_leader_can_resync(cluster, peers):
    member = peers()
    peers.settle(member)
    assert member.sync({member: b"new"}) == ("ok", b"new")
    assert member.generation == cluster.groups["g"].generation == 1
