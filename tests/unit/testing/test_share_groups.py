"""Tests of share groups of the embedded cluster that need control over brokers or leaders."""

import pytest
from share_raw import ACCEPT, RELEASE, ShareGroup

from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages import alter_client_quotas, update_features
from aiokclient.protocol.messages.share_fetch import FetchPartition, FetchTopic
from aiokclient.testing import EmbeddedCluster

NOTHING = ("ok", "ok", None, [], 0)


@pytest.fixture
def group_of(scenario_broker, wire_to):
    """Return a function that makes a group of a cluster with a topic of ten records."""

    def make(cluster, **configs):
        broker = scenario_broker(wire_to(cluster), cluster.address(1))
        group = ShareGroup(broker, 1, **configs)
        if cluster.leader(group.names[0]) != 1:
            cluster.move_leader(group.names[0], to=1)
        cluster.move_coordinator(group.id, to=1)
        broker.produced(group.names[0], *[b"v"] * 10)
        group.enter("joined")
        return group

    return make


@pytest.fixture
def group(group_of):
    with EmbeddedCluster(brokers=1) as small:
        yield group_of(small)


def wait_for_fetches(group, count):
    """Wait until a broker has received so many ShareFetch requests."""
    cluster = group.broker.wire.cluster
    cluster.wait_for(
        lambda: sum(each.api == ApiKey.SHARE_FETCH for each in cluster.requests) == count
    )


def ranges_of(answer):
    return answer.partitions.get(0, NOTHING)[3]


def test_locks_end_when_the_leader_moves_and_what_was_settled_stays(scenario_broker, wire_to):
    with EmbeddedCluster(brokers=2, replication=2) as cluster:
        wire = wire_to(cluster)
        broker = scenario_broker(wire, cluster.address(1))
        cluster.create_topic("orders", 1)
        cluster.move_leader("orders", to=1)
        cluster.produce("orders", [b"v"] * 10)
        group = ShareGroup(broker)
        cluster.move_coordinator(group.id, to=1)
        group.names, group.topics = ["orders"], [("orders", cluster.topic_id("orders"))]
        group.enter("joined")
        a = group.member("a")
        assert ranges_of(a.fetch()) == [(0, 9, 1)]
        assert a.settle(0, 1, ACCEPT) == ("ok", None)
        assert a.settle(2, 3, RELEASE) == ("ok", None)
        assert ranges_of(a.fetch(max_records=1)) == [(2, 3, 2)]
        a.send_fetch(max_wait_ms=300)
        wait_for_fetches(group, 3)
        cluster.move_leader("orders", to=2)
        # A waiting fetch is not told of the move. The next one is.
        assert a.receive_fetch().partitions == {}
        assert a.fetch().partitions == {0: ("NOT_LEADER_OR_FOLLOWER", "ok", None, [], 0)}
        code, _ = a.settle(4, 4, ACCEPT)
        assert code == "UNKNOWN_TOPIC_OR_PARTITION"
        # What was acquired is delivered by the new leader with the counts that were persisted.
        broker.address = cluster.address(2)
        b = group.member("b")
        assert ranges_of(b.fetch()) == [(2, 3, 2), (4, 9, 1)]
        assert b.settle(2, 9, ACCEPT) == ("ok", None)


def test_refused_fetch_names_the_leader_and_its_address(cluster, group_of):
    group = group_of(cluster)
    cluster.move_leader(group.names[0], to=2)
    request = messages.ShareFetchRequest(
        group_id=group.id,
        member_id="m",
        max_wait_ms=60_000,
        max_records=1,
        topics=[
            FetchTopic(topic_id=group.topics[0][1], partitions=[FetchPartition(partition_index=0)])
        ],
    )
    answer = group.broker.request(request)
    (partition,) = answer.responses[0].partitions
    leader = partition.current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, cluster.leader_epoch(group.names[0]))
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [
        (2, cluster.address(2)[1])
    ]


def test_killed_broker_forgets_sessions_and_locks(group_of):
    with EmbeddedCluster(brokers=1) as cluster:
        group = group_of(cluster)
        a = group.member("a")
        assert ranges_of(a.fetch()) == [(0, 9, 1)]
        cluster.stop(1)
        cluster.start(1)
        a = group.member("a")
        assert a.settle(0, 0, ACCEPT, epoch=1) == "SHARE_SESSION_NOT_FOUND"
        assert ranges_of(a.fetch()) == [(0, 9, 1)]


def test_members_and_targets_survive_a_move_of_the_coordinator(cluster, group_of):
    group = group_of(cluster)
    cluster.move_coordinator(group.id, to=2)
    assert group.beat("joined", 3).code == "NOT_COORDINATOR"
    group.broker.request = group.broker.wire.to(2).request
    assert group.describe() == ("ok", "Stable", 3, 3, "simple", [("joined", 3, 1, 1)])
    assert group.beat("joined", 3) == ("ok", 3, None)


def test_second_request_of_a_session_ends_the_one_that_waits(group):
    a = group.member("a")
    a.fetch()
    assert a.fetch(max_wait_ms=0).partitions == {}
    a.send_fetch(max_wait_ms=60_000)
    wait_for_fetches(group, 3)
    assert group.member("a").settle(0, 0, ACCEPT, epoch=3) == ("ok", None)
    group.broker.produced(group.names[0], b"v")
    assert a.receive_fetch().code == "INVALID_SHARE_SESSION_EPOCH"
    # What it acquired stays locked.
    assert group.member("b").fetch().partitions == {0: NOTHING}


def test_released_records_wake_no_waiting_fetch(group):
    a, b = group.member("a"), group.member("b")
    a.fetch()
    b.send_fetch(max_wait_ms=700)
    wait_for_fetches(group, 2)
    assert a.settle(0, 9, RELEASE) == ("ok", None)
    assert a.settle(0, 0, ACCEPT)[0] == "INVALID_RECORD_STATE"
    assert b.connection.silent()
    assert ranges_of(b.receive_fetch()) == [(0, 9, 2)]


def test_start_offset_that_moves_wakes_a_waiting_fetch(group_of):
    with EmbeddedCluster(brokers=1) as cluster:
        group = group_of(cluster, **{"share.partition.max.record.locks": 100})
        for _ in range(10):
            group.broker.produced(group.names[0], *[b"v"] * 10)
        a, b = group.member("a"), group.member("b")
        assert ranges_of(a.fetch()) == [(0, 99, 1)]
        b.send_fetch(max_wait_ms=60_000)
        wait_for_fetches(group, 2)
        assert a.settle(0, 9, ACCEPT) == ("ok", None)
        assert ranges_of(b.receive_fetch()) == [(100, 109, 1)]


def test_sessions_and_members_are_limited(group_of):
    configs = {"group.share.max.share.sessions": 1, "group.share.max.size": 2}
    with EmbeddedCluster(brokers=1, configs=configs) as cluster:
        group = group_of(cluster)
        assert group.member("a").fetch(max_records=1).code == "ok"
        assert group.member("b").fetch(max_wait_ms=20).code == "SHARE_SESSION_LIMIT_REACHED"
        assert group.join("second").code == "ok"
        assert group.join("third").code == "GROUP_MAX_SIZE_REACHED"
        assert group.join("joined").code == "ok"


def test_disabled_share_groups_are_refused():
    with EmbeddedCluster(brokers=1, share_version=0, topics=["orders"]) as cluster:
        assert cluster.bootstrap_servers
    with pytest.raises(ValueError, match="share_version=3 is not valid"):
        EmbeddedCluster(share_version=3)


def test_lowering_the_feature_ends_sessions_and_refuses_requests(group):
    a = group.member("a")
    a.fetch()
    for level, kind in ((0, 2), (1, 1), (2, 1)):
        update = update_features.FeatureUpdateKey(
            feature="share.version", max_version_level=level, upgrade_type=kind
        )
        request = messages.UpdateFeaturesRequest(feature_updates=[update])
        assert group.broker.request(request).error_code == 0
        if not level:
            assert a.settle(0, 0, ACCEPT) == "UNSUPPORTED_VERSION"
            assert a.fetch(0).code == "UNSUPPORTED_VERSION"
            assert group.join("n").code == "UNSUPPORTED_VERSION"
            assert group.describe()[0] == "UNSUPPORTED_VERSION"
    assert a.settle(0, 0, ACCEPT, epoch=1) == "SHARE_SESSION_NOT_FOUND"
    assert ranges_of(a.fetch(0)) == [(0, 9, 1)]


def test_share_groups_are_switched_off_and_on_by_a_control(group):
    cluster, a = group.broker.wire.cluster, group.member("a")
    a.fetch()
    assert cluster.share_version == 2
    cluster.set_share_version(0)
    assert cluster.share_version == 0
    assert a.settle(0, 0, ACCEPT) == "UNSUPPORTED_VERSION"
    for level in (1, 2):
        cluster.set_share_version(level)
        # The group is still there, without sessions.
        assert group.describe()[:2] == ("ok", "Stable")
        assert a.settle(0, 0, ACCEPT, epoch=1) == "SHARE_SESSION_NOT_FOUND"
    assert ranges_of(a.fetch(0)) == [(0, 9, 1)]
    with pytest.raises(ValueError, match="share_version=3 is not valid"):
        cluster.set_share_version(3)


def test_throttled_fetch_acquires_and_sends_nothing(group):
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name="raw")
    change = alter_client_quotas.OpData(key="consumer_byte_rate", value=1.0)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[change])
    request = messages.AlterClientQuotasRequest(entries=[entry])
    assert group.broker.request(request).entries[0].error_code == 0
    a = group.member("a")
    assert a.fetch().partitions == {}
    # Another client is not throttled. The records are locked for the first one.
    b = group.member("b")
    b.connection.pipeline = type(b.connection.pipeline)("other")
    assert b.fetch().partitions == {0: NOTHING}


def test_older_brokers_have_no_renewal(group_of):
    with EmbeddedCluster(brokers=1, share_version=1) as cluster:
        group = group_of(cluster)
        cluster.limit_versions({ApiKey.SHARE_FETCH: (1, 1), ApiKey.SHARE_ACKNOWLEDGE: (1, 1)})
        a = group.member("a")
        assert ranges_of(a.fetch(version=1)) == [(0, 9, 1)]
        assert a.settle(0, 0, 4, version=1) == ("INVALID_REQUEST", None)
        assert a.settle(0, 0, ACCEPT, version=1) == ("ok", None)
        answer = group.broker.request(
            messages.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
        )
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        assert levels["share.version"] == 1


def test_member_without_heartbeats_is_removed_and_keeps_its_locks(group_of):
    with EmbeddedCluster(brokers=1) as cluster:
        group = group_of(cluster, **{"share.session.timeout.ms": 60})
        a = group.member("a")
        a.fetch()
        cluster.wait_for(lambda: cluster.groups[group.id].state == "Empty")
        assert a.settle(0, 9, ACCEPT) == ("ok", None)
        assert group.beat("joined", 3).code == "UNKNOWN_MEMBER_ID"


def test_compacted_topic_is_read_over_its_gaps(scenario_broker, wire_to):
    with EmbeddedCluster(brokers=1) as cluster:
        broker = scenario_broker(wire_to(cluster), cluster.address(1))
        cluster.create_topic("prices", configs={"cleanup.policy": "compact"})
        for _ in range(2):
            cluster.produce("prices", [(b"tea", b"1"), (b"milk", b"2")])
        cluster.produce("prices", [(b"end", b"")])
        cluster.compact("prices")
        group = ShareGroup(broker)
        group.names, group.topics = ["prices"], [("prices", cluster.topic_id("prices"))]
        group.enter("joined")
        a = group.member("a")
        assert ranges_of(a.fetch(max_records=1)) == [(2, 3, 1)]
        assert ranges_of(a.fetch()) == [(4, 4, 1)]
        assert a.settle(2, 4, ACCEPT) == ("ok", None)
        assert [each[4] for each in group.list_offsets()[1]] == [0]


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("operation", "resource", "code"),
    [
        ("READ", "group", "GROUP_AUTHORIZATION_FAILED"),
        ("READ", "topic", "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_members_need_permissions_on_their_group_and_topics(group_of, operation, resource, code):
    configs = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with EmbeddedCluster(brokers=1, configs=configs) as cluster:
        group = group_of(cluster)
        a = group.member("a")
        assert ranges_of(a.fetch()) == [(0, 9, 1)]
        name = group.id if resource == "group" else group.names[0]
        cluster.deny("User:ANONYMOUS", operation, **{resource: name})
        if resource == "group":
            assert a.fetch().code == a.settle(0, 0, ACCEPT) == group.beat("joined", 3).code == code
        else:
            refused = (code, "ok", None, [], 0)
            assert a.fetch().partitions == {0: refused}
            assert a.settle(0, 0, ACCEPT) == (code, None)
            # Heartbeats need another permission.
            assert group.beat("joined", 3).code == "ok"


def test_members_need_to_describe_the_topics_that_they_name(group_of):
    configs = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with EmbeddedCluster(brokers=1, configs=configs) as cluster:
        group = group_of(cluster)
        cluster.deny("User:ANONYMOUS", "DESCRIBE", topic=group.names[0])
        assert group.join("second").code == "TOPIC_AUTHORIZATION_FAILED"
        assert group.beat("joined", 3).code == "ok"
        assert group.describe()[0] == "TOPIC_AUTHORIZATION_FAILED"
        assert group.list_offsets() == ("ok", [])


def test_refused_partition_has_an_error_of_its_own(group):
    cluster, a = group.broker.wire.cluster, group.member("a")
    assert ranges_of(a.fetch()) == [(0, 9, 1)]
    cluster.fail(ApiKey.SHARE_ACKNOWLEDGE, 7, topic=group.names[0], partition=0, times=1)
    assert a.settle(0, 0, ACCEPT) == ("REQUEST_TIMED_OUT", None)
    assert a.settle(0, 0, ACCEPT) == ("ok", None)
    cluster.fail(ApiKey.SHARE_FETCH, 7, topic=group.names[0], times=1)
    assert a.fetch().partitions == {0: ("REQUEST_TIMED_OUT", "ok", None, [], 0)}
    assert a.fetch(max_wait_ms=0) == ("ok", {})


def test_offsets_far_away_are_set_at_once(group):
    name = group.names[0]
    group.beat("joined", -1)
    assert group.alter_offsets({name: {0: 1 << 60}}) == (("ok", None), [(0, "ok", None)])
    assert group.member("a").fetch(max_wait_ms=0).partitions == {0: NOTHING}
    assert group.alter_offsets({name: {0: 2}}) == (("ok", None), [(0, "ok", None)])


def test_brokers_limit_the_configs_of_groups(scenario_broker, wire_to):
    configs = {
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.max.delivery.count.limit": 25,
    }
    with EmbeddedCluster(configs=configs) as cluster:
        group = ShareGroup(scenario_broker(wire_to(cluster), cluster.address(1)))
        assert group.configure("share.record.lock.duration.ms", 999) == (
            "INVALID_CONFIG",
            "share.record.lock.duration.ms must be in the range 1000 to 60000 inclusive.",
        )
        assert group.configure("share.record.lock.duration.ms", 1000) == ("ok", None)
