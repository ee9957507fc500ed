"""Tests of the state table of a member under KIP-848."""

import itertools

import pytest

from aiokclient.consumer.membership.kip848.states import (
    CODES,
    HEARTBEAT_STATES,
    MEMBER_STATES,
    TABLE,
    Kip848Effect,
    Kip848Event,
    Kip848Member,
    Kip848State,
    event_of,
)

END, LEAVE = Kip848Effect.END, Kip848Effect.LEAVE
OVER = (Kip848State.FENCED, Kip848State.STALE, Kip848State.FAILED)
EVENTS = {event.name: event for event in Kip848Event}


def after(state: Kip848State, event: Kip848Event) -> Kip848State:
    row = TABLE.get((state, event))
    return state if row is None else row.state


def path_to(state: Kip848State) -> tuple[Kip848Event, ...]:
    """Return a shortest sequence of events that leads from OUT to the state."""
    for length in range(len(Kip848Event)):
        for events in itertools.product(Kip848Event, repeat=length):
            at = Kip848State.OUT
            for event in events:
                at = after(at, event)
            if at is state:
                return events
    raise AssertionError(f"No sequence of events leads to {state}.")


def member_in(state: Kip848State) -> Kip848Member:
    member = Kip848Member("g", "m", None)
    for event in path_to(state):
        if event in (Kip848Event.ASSIGNED, Kip848Event.CONFIRMED):
            member.set_epoch(7)
        member.apply_event(event, 1.0)
    assert member.state is state
    return member


def test_every_state_can_be_reached():
    reached, more = set(), {Kip848State.OUT}
    while more:
        reached |= more
        more = {after(state, event) for state in reached for event in Kip848Event} - reached
    assert reached == set(Kip848State)


@pytest.mark.parametrize("state", Kip848State)
@pytest.mark.parametrize("event", Kip848Event)
def test_a_member_does_what_the_table_says(state, event):
    member = member_in(state)
    memberships, leaves, epoch = member.memberships, member.must_leave, member.epoch
    row = TABLE.get((state, event))
    effects = member.apply_event(event, 2.0, "why")
    if row is None:
        assert (member.state, effects) == (state, ())
        assert (member.memberships, member.must_leave, member.epoch) == (memberships, leaves, epoch)
        return
    assert (member.state, effects) == row
    assert member.memberships == memberships + (END in effects)
    assert member.epoch == (0 if END in effects else epoch)
    assert member.must_leave is (leaves or LEAVE in effects)
    assert member.lost_by == "why"


@pytest.mark.parametrize("state", Kip848State)
@pytest.mark.parametrize("event", Kip848Event)
def test_the_membership_ends_with_the_heartbeats(state, event):
    row = TABLE.get((state, event))
    if row is None:
        return
    ends = state in HEARTBEAT_STATES and row.state not in HEARTBEAT_STATES
    assert (END in row.effects) is (ends or row.state is Kip848State.CLOSED)
    assert row.effects == tuple(effect for effect in Kip848Effect if effect in row.effects)


@pytest.mark.parametrize("state", Kip848State)
def test_a_closed_member_stays_closed(state):
    assert after(state, Kip848Event.CLOSED) is Kip848State.CLOSED
    assert not any((Kip848State.CLOSED, event) in TABLE for event in Kip848Event)


@pytest.mark.parametrize("state", Kip848State)
def test_a_member_tells_the_coordinator_when_it_is_closed(state):
    row = TABLE.get((state, Kip848Event.CLOSED))
    assert (row is not None and LEAVE in row.effects) is (state in HEARTBEAT_STATES)


@pytest.mark.parametrize("state", [each for each in Kip848State if each not in MEMBER_STATES])
@pytest.mark.parametrize("event", ["ASSIGNED", "CONFIRMED", "RECONCILED"])
def test_an_answer_to_an_earlier_membership_is_void(state, event):
    assert after(state, EVENTS[event]) is state


@pytest.mark.parametrize("state", MEMBER_STATES)
def test_every_member_can_be_fenced_and_comes_back(state):
    fenced = after(state, Kip848Event.FENCED)
    assert fenced is Kip848State.FENCED
    assert after(fenced, Kip848Event.RELEASED) is Kip848State.JOINING


@pytest.mark.parametrize("state", MEMBER_STATES)
def test_an_overdue_member_stays_out_until_the_application_returns(state):
    row = TABLE[state, Kip848Event.OVERDUE]
    assert row == (Kip848State.STALE, (END, LEAVE))
    leads_away = {Kip848Event.RETURNED, Kip848Event.UNSUBSCRIBED, Kip848Event.CLOSED}
    for event in set(Kip848Event) - leads_away:
        assert after(row.state, event) is Kip848State.STALE
    assert after(row.state, Kip848Event.RETURNED) is Kip848State.JOINING


@pytest.mark.parametrize("state", Kip848State)
def test_no_state_becomes_a_member_without_joining(state):
    for event in Kip848Event:
        to = after(state, event)
        if state not in MEMBER_STATES and to in MEMBER_STATES:
            assert to is Kip848State.JOINING


@pytest.mark.parametrize("state", HEARTBEAT_STATES)
@pytest.mark.parametrize("event", [Kip848Event.REPLACED, Kip848Event.REFUSED])
def test_a_failure_is_final(state, event):
    """A refused member still has to leave the group. A fenced member must not."""
    row = TABLE[state, event]
    assert row.state is Kip848State.FAILED
    leaves = event is Kip848Event.REFUSED and state is not Kip848State.JOINING
    assert (LEAVE in row.effects) is leaves
    for event in set(Kip848Event) - {Kip848Event.CLOSED}:
        assert after(Kip848State.FAILED, event) is Kip848State.FAILED


@pytest.mark.parametrize("state", OVER[:2])
def test_a_former_member_is_out_when_nothing_is_subscribed(state):
    assert after(state, Kip848Event.UNSUBSCRIBED) is Kip848State.OUT


def test_what_brokers_say_when_they_do_not_know_a_member():
    fenced = dict.fromkeys((110, 25, 69), Kip848Event.FENCED)
    assert dict(CODES) == {**fenced, 82: Kip848Event.REPLACED}


@pytest.mark.parametrize("state", Kip848State)
def test_a_group_that_is_not_found_is_another_kind_of_group_to_a_member_that_joins(state):
    joins = state is Kip848State.JOINING
    assert event_of(state, 69) is (Kip848Event.REPLACED if joins else Kip848Event.FENCED)
    assert event_of(state, 25) is Kip848Event.FENCED
    assert event_of(state, 7) is event_of(state, None) is None


def test_a_member_waits_for_its_group_from_joining_to_stable():
    member = Kip848Member("g", "m", "i")
    assert member.rebalancing_since is None
    member.apply_event(Kip848Event.SUBSCRIBED, 1.0)
    member.set_epoch(3)
    member.apply_event(Kip848Event.ASSIGNED, 2.0)
    assert member.rebalancing_since == 1.0
    member.apply_event(Kip848Event.RECONCILED, 3.0)
    assert (member.rebalancing_since, member.is_settled) == (None, True)
    assert member.metadata == ("g", 3, "m", "i")
    member.apply_event(Kip848Event.FENCED, 4.0)
    assert member.metadata == ("g", -1, "", "i")
    assert member.rebalancing_since == 4.0
