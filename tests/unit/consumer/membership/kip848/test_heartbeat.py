"""Tests of the content of a member's successive heartbeats."""

import re
import uuid

import pytest

from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.membership.kip848.membership import (
    HeartbeatBuilder,
    HeartbeatSubscription,
    expression,
)
from aiokclient.consumer.membership.kip848.states import Kip848Member
from aiokclient.group.heartbeats import TopicIdPartition, partitions_of

T, U = sorted(uuid.UUID(int=each) for each in (1, 2))
NAMES = HeartbeatSubscription(("t", "u"))
OPTIONS = {
    "bootstrap_servers": "localhost:9092",
    "group_id": "g",
    "group_protocol": "consumer",
    "client_rack": "r",
    "max_poll_interval_ms": 1000,
    "group_remote_assignor": "range",
}
OWNED = frozenset({TopicIdPartition(T, 1), TopicIdPartition(T, 0), TopicIdPartition(U, 5)})


def member(epoch):
    joined = Kip848Member("g", "m", None)
    joined.set_epoch(epoch)
    return joined


def said(request):
    """Return the fields that a heartbeat sets, without the member's identity."""
    fields = ("rack_id", "rebalance_timeout_ms", "subscribed_topic_names")
    fields += ("subscribed_topic_regex", "server_assignor", "topic_partitions")
    found = {name: getattr(request, name) for name in fields}
    return {name: value for name, value in found.items() if value not in (None, -1)}


@pytest.fixture
def beats():
    return HeartbeatBuilder(ConsumerConfig.build(OPTIONS))


def test_a_join_says_everything_and_owns_nothing(beats):
    request = beats.build_next(member(0), NAMES, OWNED)
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", 0)
    assert said(request) == {
        "rack_id": "r",
        "rebalance_timeout_ms": 1000,
        "server_assignor": "range",
        "subscribed_topic_names": ["t", "u"],
        "topic_partitions": [],
    }


def test_later_heartbeats_have_only_changes(beats):
    beats.build_next(member(0), NAMES, frozenset())
    assert said(beats.build_next(member(1), NAMES, frozenset())) == {}
    request = beats.build_next(member(1), NAMES, OWNED)
    assert list(said(request)) == ["topic_partitions"]
    assert partitions_of(request.topic_partitions) == OWNED
    assert [each.partitions for each in request.topic_partitions] == [[0, 1], [5]]
    assert said(beats.build_next(member(1), NAMES, OWNED)) == {}
    assert said(beats.build_next(member(1), HeartbeatSubscription(("t",)), OWNED)) == {
        "subscribed_topic_names": ["t"]
    }


def test_a_heartbeat_after_a_failure_has_the_full_state(beats):
    beats.build_next(member(0), NAMES, frozenset())
    beats.forget_sent()
    assert not beats.has_sent(NAMES, frozenset())
    assert len(said(beats.build_next(member(3), NAMES, OWNED))) == 5
    assert beats.has_sent(NAMES, OWNED)
    assert said(beats.build_next(member(3), NAMES, OWNED)) == {}


def test_a_pattern_replaces_names_and_is_removed_when_names_return(beats):
    beats.build_next(member(0), NAMES, frozenset())
    request = beats.build_next(member(1), HeartbeatSubscription(regex="a.*"), frozenset())
    assert said(request) == {"subscribed_topic_names": [], "subscribed_topic_regex": "a.*"}
    request = beats.build_next(member(1), NAMES, frozenset())
    assert said(request) == {"subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": ""}
    assert "subscribed_topic_regex" not in said(beats.build_next(member(1), NAMES, frozenset()))


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_the_leave_heartbeat_has_the_leave_epoch(instance_id, epoch):
    beats = HeartbeatBuilder(ConsumerConfig.build({**OPTIONS, "group_instance_id": instance_id}))
    beats.build_next(member(0), NAMES, frozenset())
    request = beats.build_last("m")
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
    assert said(request) == {}
    assert not beats.has_sent(NAMES, frozenset())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (re.compile("orders-.*"), "orders-.*"),
        (re.compile("a", re.IGNORECASE), "(?i)a"),
        (re.compile("a.b", re.IGNORECASE | re.DOTALL), "(?is)a.b"),
        (re.compile("(?i)a"), "(?i)a"),
        (re.compile(r"a\Z"), r"a\z"),
        (re.compile("a b", re.VERBOSE), None),
    ],
)
def test_patterns_are_sent_in_the_syntax_of_brokers(pattern, text):
    assert expression(pattern) == text
