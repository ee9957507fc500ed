"""What the heartbeats of a member say, one after the other."""

import re
import uuid

import pytest

from aiokclient.consumer.membership.kip848.heartbeat import (
    Heartbeats,
    Place,
    Settings,
    Wanted,
    expression,
    places_of,
)
from aiokclient.types import GroupMetadata

T, U = sorted(uuid.UUID(int=each) for each in (1, 2))
NAMES = Wanted(("t", "u"))
SETTINGS = Settings("g", None, "r", 1000, "range")
OWNED = frozenset({Place(T, 1), Place(T, 0), Place(U, 5)})


def member(epoch):
    return GroupMetadata("g", epoch, "m")


def said(request):
    """Everything but who it is."""
    fields = ("rack_id", "rebalance_timeout_ms", "subscribed_topic_names")
    fields += ("subscribed_topic_regex", "server_assignor", "topic_partitions")
    found = {name: getattr(request, name) for name in fields}
    return {name: value for name, value in found.items() if value not in (None, -1)}


@pytest.fixture
def beats():
    return Heartbeats(SETTINGS)


def test_a_join_says_everything_and_owns_nothing(beats):
    request = beats.beat(member(0), NAMES, OWNED)
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", 0)
    assert said(request) == {
        "rack_id": "r",
        "rebalance_timeout_ms": 1000,
        "server_assignor": "range",
        "subscribed_topic_names": ["t", "u"],
        "topic_partitions": [],
    }


def test_then_only_what_changes(beats):
    beats.beat(member(0), NAMES, frozenset())
    assert said(beats.beat(member(1), NAMES, frozenset())) == {}
    request = beats.beat(member(1), NAMES, OWNED)
    assert list(said(request)) == ["topic_partitions"]
    assert places_of(request.topic_partitions) == OWNED
    assert [each.partitions for each in request.topic_partitions] == [[0, 1], [5]]
    assert said(beats.beat(member(1), NAMES, OWNED)) == {}
    assert said(beats.beat(member(1), Wanted(("t",)), OWNED)) == {"subscribed_topic_names": ["t"]}


def test_after_a_failure_everything_once(beats):
    beats.beat(member(0), NAMES, frozenset())
    beats.forget()
    assert not beats.said(NAMES, frozenset())
    assert len(said(beats.beat(member(3), NAMES, OWNED))) == 5
    assert beats.said(NAMES, OWNED)
    assert said(beats.beat(member(3), NAMES, OWNED)) == {}


def test_a_pattern_takes_the_place_of_names_and_is_taken_back(beats):
    beats.beat(member(0), NAMES, frozenset())
    request = beats.beat(member(1), Wanted(regex="a.*"), frozenset())
    assert said(request) == {"subscribed_topic_names": [], "subscribed_topic_regex": "a.*"}
    request = beats.beat(member(1), NAMES, frozenset())
    assert said(request) == {"subscribed_topic_names": ["t", "u"], "subscribed_topic_regex": ""}
    assert "subscribed_topic_regex" not in said(beats.beat(member(1), NAMES, frozenset()))


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_the_last_one(instance_id, epoch):
    beats = Heartbeats(SETTINGS._replace(instance_id=instance_id))
    beats.beat(member(0), NAMES, frozenset())
    request = beats.last("m")
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
    assert said(request) == {}
    assert not beats.said(NAMES, frozenset())


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
def test_patterns_as_brokers_take_them(pattern, text):
    assert expression(pattern) == text
