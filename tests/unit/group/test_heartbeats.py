"""Tests of the times of heartbeats, and of the parts of heartbeats that all members share."""

import math
import random
from typing import Any
from uuid import UUID

import pytest

from aiokclient.clock import SystemClock
from aiokclient.group.heartbeats import FREE, HeartbeatSchedule, make_member_id, partitions_of
from aiokclient.policy import Backoff
from aiokclient.protocol.messages import consumer_group_heartbeat, share_group_heartbeat

T, U = UUID(int=1), UUID(int=2)


class Linear(Backoff):
    """A backoff whose delays are the numbers of the attempts."""

    def compute_delay_s(self, attempt: int, rng: random.Random) -> float:
        return float(attempt)


LINEAR, CLOCK = Linear(0.1, 1.0), SystemClock()


def test_heartbeats_are_sent_at_the_interval_or_at_once_with_news() -> None:
    schedule = HeartbeatSchedule(3.0, 10.0, LINEAR, CLOCK)
    assert schedule.find_next_time(has_news=False) == -math.inf
    schedule.on_send(has_news=True)
    schedule.on_response(100.0, 2000)
    assert schedule.find_next_time(has_news=False) == 102.0
    assert schedule.find_next_time(has_news=True) == -math.inf
    schedule.delay_next_until(101.0)
    assert schedule.find_next_time(has_news=True) == 101.0


@pytest.mark.parametrize(("wanted", "interval"), [(0, 3.0), (-1, 3.0), (1, 0.1), (60_000, 5.0)])
def test_an_interval_that_no_coordinator_should_ask_for_is_bounded(
    wanted: int, interval: float
) -> None:
    schedule = HeartbeatSchedule(3.0, 10.0, LINEAR, CLOCK)
    schedule.on_response(100.0, wanted)
    assert schedule.find_next_time(has_news=False) == 100.0 + interval


def test_a_coordinator_that_always_asks_for_something_is_answered_ever_more_slowly() -> None:
    schedule = HeartbeatSchedule(3.0, 10.0, LINEAR, CLOCK)
    due = []
    for _ in range(FREE + 2):
        schedule.on_send(has_news=True)
        schedule.on_response(0.0, 1000)
        due.append(schedule.find_next_time(has_news=True))
    assert due == [-math.inf] * FREE + [1.0, 2.0]
    schedule.on_send(has_news=False)
    schedule.on_response(0.0, 1000)
    assert schedule.find_next_time(has_news=True) == -math.inf


def test_the_session_timeout_of_the_group_replaces_the_configured_one() -> None:
    schedule = HeartbeatSchedule(3.0, 10.0, LINEAR, CLOCK)
    assert not schedule.knows_session
    schedule.set_session(None)
    assert (schedule.knows_session, schedule.session_s) == (True, 10.0)
    schedule.set_session(6.0)
    assert schedule.session_s == 6.0
    assert schedule.find_timeout_s(30.0) == 3.0


def test_a_member_that_waits_for_an_assignment_sends_heartbeats_earlier() -> None:
    schedule = HeartbeatSchedule(3.0, 10.0, LINEAR, CLOCK)
    schedule.on_response(100.0, 5000, longest_s=1.0)
    assert schedule.find_next_time(has_news=False) == 101.0
    schedule.on_response(101.0, 500, longest_s=1.0)
    assert schedule.find_next_time(has_news=False) == 101.5
    schedule.on_response(101.5, 5000)
    assert schedule.find_next_time(has_news=False) == 106.5


def test_member_ids_are_different_and_have_at_most_36_characters() -> None:
    made = [make_member_id(CLOCK) for _ in range(100)]
    assert len(set(made)) == 100
    assert {len(each) for each in made} == {36}


@pytest.mark.parametrize("messages", [consumer_group_heartbeat, share_group_heartbeat])
def test_partitions_of_an_assignment_are_read_from_both_kinds_of_heartbeats(
    messages: Any,
) -> None:
    topics = [messages.TopicPartitions(topic_id=T, partitions=[0, 2])]
    topics.append(messages.TopicPartitions(topic_id=U, partitions=[1]))
    assert partitions_of(topics) == {(T, 0), (T, 2), (U, 1)}
