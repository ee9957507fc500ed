"""Tests of sessions, timers, and coordinators of KIP-848 groups on the embedded cluster."""

import pytest
from kip848_raw import Classic, Group, assignment, subscription
from parity import named

from aiokclient.errors import CoordinatorLoadInProgressError, GroupAuthorizationError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

LONG_MS = 600_000


class Coordinator:
    """The coordinator of group "g", with methods that create topics."""

    def __init__(self, cluster, wire, node=None):
        self.cluster = cluster
        node = cluster.coordinator("g") if node is None else node
        self.request = wire.to(node).request

    def topic(self, partitions):
        name = f"t{len(self.cluster.topics)}"
        return name, self.cluster.create_topic(name, partitions)


@pytest.fixture
def make(wire_to):
    """Return `make(*sizes, **options)`, which starts a cluster with topics.

    `sizes` are the partition counts of the topics. `make` returns the cluster and a group on it.
    """
    entered = []

    def made(*sizes, brokers=1, configs=(), **options):
        configs = {f"group.consumer.{name}": value for name, value in dict(configs).items()}
        cluster = EmbeddedCluster(brokers=brokers, configs=configs, **options)
        entered.append(cluster)
        cluster.__enter__()
        wire = wire_to(cluster)
        group = Group(Coordinator(cluster, wire), *sizes, group_id="g")
        group.wire = wire
        return cluster, group

    yield made
    for cluster in entered:
        cluster.__exit__(None, None, None)


def view(cluster):
    return cluster.groups["g"]


def test_a_silent_member_is_removed_when_its_session_ends(make):
    cluster, group = make(4)
    group.join("a")
    assert list(view(cluster).members) == ["a"]
    configure(group, "consumer.session.timeout.ms", "60")
    assert group.beat("a", 2).code == "ok"
    cluster.wait_for(lambda: not view(cluster).members)
    assert view(cluster).state == "Empty"
    assert group.beat("a", 2).code == "UNKNOWN_MEMBER_ID"
    assert group.join("a").given == [(0, [0, 1, 2, 3])]


def test_a_member_that_does_not_revoke_in_time_is_removed(make):
    cluster, group = make(4)
    group.join("a")
    group.join("b")
    assert group.beat("b", 3).given is None
    assert group.beat("a", 2, rebalance_timeout_ms=60).given == [(0, [0, 1])]
    cluster.wait_for(lambda: list(view(cluster).members) == ["b"])
    assert group.beat("b", 3).given == [(0, [0, 1, 2, 3])]


def test_a_classic_member_that_does_not_join_again_is_removed(make):
    cluster, group = make(4)
    group.join("new")
    for _ in range(2):
        answer = group.broker.request(
            messages.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60,
                member_id="old",
                protocol_type="consumer",
                protocols=[
                    messages.join_group.JoinGroupRequestProtocol(
                        name="range", metadata=subscription(group.names[0])
                    )
                ],
            )
        )
        assert named(answer.error_code) == "ok"
    # The broker removes the old member, which has not sent its SyncGroup.
    cluster.wait_for(lambda: list(view(cluster).members) == ["new"])


def test_the_session_of_a_static_member_continues_after_it_left(make):
    cluster, group = make(2)
    group.join("a", instance_id="i")
    configure(group, "consumer.session.timeout.ms", "60")
    connection = group.wire.to(cluster.coordinator("g"))
    request = messages.ConsumerGroupHeartbeatRequest
    known = {"group_id": "g", "member_id": "a", "instance_id": "i"}
    # The requests are sent in one write, so that the session does not end between them.
    connection.send_all(*(request(**known, member_epoch=epoch) for epoch in (2, -2)))
    assert [connection.receive().member_epoch for _ in range(2)] == [2, -2]
    cluster.wait_for(lambda: not view(cluster).members)


def test_a_new_coordinator_knows_members_and_targets(make):
    cluster, group = make(4, brokers=2, configs={"session.timeout.ms": LONG_MS})
    group.join("a")
    group.join("b")
    a = group.beat("a", 2)
    old = group.broker
    node = cluster.move_coordinator("g")
    assert group.beat("a", 2).code == "NOT_COORDINATOR"
    assert group.describe() == ("", 0, 0, "", [])
    group.broker = Coordinator(cluster, group.wire, node)
    assert group.beat("a", 2, owned={0: a.given[0][1]}).epoch == 3
    assert group.beat("b", 3).given == [(0, [2, 3])]
    assert group.describe()[:3] == ("Stable", 3, 3)
    group.broker = old
    assert group.beat("b", 3).code == "NOT_COORDINATOR"


def test_sessions_restart_with_a_new_coordinator(make):
    cluster, group = make(4, brokers=2, configs={"session.timeout.ms": 60})
    group.join("a")
    cluster.move_coordinator("g")
    cluster.wait_for(lambda: not view(cluster).members)


def test_members_join_again_when_the_coordinator_has_no_state(make):
    cluster, group = make(4, brokers=2, persist_groups=False)
    group.join("a")
    group.broker = Coordinator(cluster, group.wire, cluster.move_coordinator("g"))
    assert group.beat("a", 2).code == "GROUP_ID_NOT_FOUND"
    assert group.join("a") == ("ok", 2, [(0, [0, 1, 2, 3])])


def test_requests_are_refused_while_the_coordinator_is_loading(make):
    cluster, group = make(4)
    group.join("a")
    with cluster.hold_loading("g"):
        assert group.beat("a", 2).code == "COORDINATOR_LOAD_IN_PROGRESS"
    assert group.beat("a", 2).code == "ok"


def test_a_test_can_refuse_heartbeats(make):
    cluster, group = make(4)
    with cluster.fail(ApiKey.CONSUMER_GROUP_HEARTBEAT, CoordinatorLoadInProgressError, times=1):
        assert group.join("a").code == "COORDINATOR_LOAD_IN_PROGRESS"
    with cluster.fail(ApiKey.CONSUMER_GROUP_DESCRIBE, GroupAuthorizationError, times=1):
        assert group.describe()[0] == ""
    assert group.join("a").code == "ok"


def test_targets_are_computed_once_per_assignment_interval(make):
    _, group = make(4, configs={"assignment.interval.ms": LONG_MS})
    configure(group, "consumer.assignment.interval.ms", None)
    assert group.join("a").given == [(0, [0, 1, 2, 3])]
    assert group.join("b") == ("ok", 2, [])
    assert group.describe()[:3] == ("Assigning", 3, 2)
    assert group.beat("a", 2).given is None
    # Partitions of topics that are not subscribed to any more must be revoked immediately.
    assert group.beat("a", 2, subscribed_topic_names=[]).given == []
    configure(group, "consumer.assignment.interval.ms", "0")
    assert group.beat("a", 2, owned={}) == ("ok", 4, None)
    assert group.beat("b", 2).given == [(0, [0, 1, 2, 3])]


def configure(group, name, value):
    operation = 1 if value is None else 0
    config = messages.incremental_alter_configs.AlterableConfig(
        name=name, config_operation=operation, value=value
    )
    resource = messages.incremental_alter_configs.AlterConfigsResource(
        resource_type=32, resource_name=group.id, configs=[config]
    )
    request = messages.IncrementalAlterConfigsRequest(resources=[resource])
    assert group.broker.request(request).responses[0].error_code == 0


def test_a_rebalance_without_a_change_moves_nothing(make):
    cluster, group = make(4)
    group.join("a")
    cluster.rebalance("g")
    assert group.beat("a", 2) == ("ok", 3, None)


def test_brokers_assign_member_ids_in_version_0(make):
    _, group = make(2)
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id="g",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=group.names,
        topic_partitions=[],
    )
    answer = group.broker.request(request, 0)
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    assert answer.member_id


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_a_migration_that_the_policy_forbids_is_refused(make, policy):
    cluster, group = make(2, configs={"migration.policy": policy})
    old, topic = Classic(group), group.names[0]
    old.join(subscription(topic))
    old.sync(assignment((topic, [0, 1])))
    up = group.join("new").code
    assert up == ("ok" if policy == "upgrade" else "GROUP_ID_NOT_FOUND")
    if up != "ok":
        assert old.heartbeat() == "ok"
        return
    assert group.beat("new", -1).code == "ok"
    assert view(cluster).kind.value == "consumer"


def test_a_group_can_be_converted_during_a_rebalance(make):
    """A classic member that waits for a response is told to join again."""
    cluster, group = make(2)
    topic = group.names[0]
    old = Classic(group)
    old.join(subscription(topic))
    sync = messages.SyncGroupRequest(
        group_id="g", generation_id=old.generation, member_id=old.member_id
    )
    other = group.wire.to(cluster.coordinator("g"))
    second = Classic(group)
    joining = messages.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[
            messages.join_group.JoinGroupRequestProtocol(name="range", metadata=subscription(topic))
        ],
    )
    other.send(joining, 3)
    cluster.wait_for(lambda: view(cluster).state == "PreparingRebalance")
    assert group.join("new").code == "ok"
    assert named(other.receive().error_code) == "REBALANCE_IN_PROGRESS"
    assert named(group.broker.request(sync, 4).error_code) == "REBALANCE_IN_PROGRESS"
    assert second.member_id == ""
    assert view(cluster).kind.value == "consumer"


def test_consumer_groups_are_listed_described_and_deleted(make):
    _, group = make(1)
    group.join("a")
    listed = group.broker.request(messages.ListGroupsRequest(types_filter=["consumer"])).groups
    assert [(each.group_id, each.group_type, each.group_state) for each in listed] == [
        ("g", "consumer", "Stable")
    ]
    delete = messages.DeleteGroupsRequest(groups_names=["g"])
    assert named(group.broker.request(delete).results[0].error_code) == "NON_EMPTY_GROUP"
    described = group.broker.request(messages.DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (named(described.error_code), described.group_state) == ("GROUP_ID_NOT_FOUND", "Dead")
    group.beat("a", -1)
    assert named(group.broker.request(delete).results[0].error_code) == "ok"
    assert group.beat("a", 2).code == "GROUP_ID_NOT_FOUND"


def test_deleted_topics_are_removed_from_assignments(make):
    cluster, group = make(2, 2)
    assert group.join("a").given == [(0, [0, 1]), (1, [0, 1])]
    cluster.delete_topic(group.names[0])
    assert group.beat("a", 2).given == [(1, [0, 1])]
    assert group.describe()[0] == "Reconciling"
    assert group.beat("a", 2, owned={1: [0, 1]}) == ("ok", 3, None)
