"""The table of a member under KIP-848."""

import pytest

from aiokclient.consumer.membership.kip848.states import (
    CODES,
    MEMBERS,
    TRANSITIONS,
    Event,
    State,
    after,
    meaning,
)

OVER = (State.FENCED, State.STALE, State.FAILED)


def test_every_state_can_be_reached():
    reached, more = set(), {State.OUT}
    while more:
        reached |= more
        more = {after(state, event) for state in reached for event in Event} - reached
    assert reached == set(State)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_has_no_meaning_changes_nothing(state, event):
    assert after(state, event) is TRANSITIONS.get((state, event), state)


@pytest.mark.parametrize("state", [each for each in State if each not in MEMBERS])
@pytest.mark.parametrize("event", [Event.TOLD, Event.SETTLED, Event.RECONCILED])
def test_an_answer_to_an_earlier_membership_is_void(state, event):
    assert after(state, event) is state


@pytest.mark.parametrize("state", MEMBERS)
def test_every_member_can_be_fenced_and_comes_back(state):
    fenced = after(state, Event.FENCED)
    assert fenced is State.FENCED
    assert after(fenced, Event.RELEASED) is State.JOINING


@pytest.mark.parametrize("state", MEMBERS)
def test_who_was_left_behind_stays_out_until_the_program_asks(state):
    stale = after(state, Event.LATE)
    assert stale is State.STALE
    for event in set(Event) - {Event.ASKED, Event.UNSUBSCRIBED}:
        assert after(stale, event) is State.STALE
    assert after(stale, Event.ASKED) is State.JOINING


@pytest.mark.parametrize("state", State)
def test_nobody_who_is_out_becomes_a_member_without_joining(state):
    for event in Event:
        to = after(state, event)
        if state not in MEMBERS and to in MEMBERS:
            assert to is State.JOINING


@pytest.mark.parametrize("state", State)
def test_a_failure_is_final(state):
    assert after(State.FAILED, Event.FAILED) is State.FAILED
    if state in OVER[:2]:
        assert after(state, Event.UNSUBSCRIBED) is State.OUT


def test_what_brokers_say_when_they_do_not_know_a_member():
    fenced = dict.fromkeys((110, 25, 69), Event.FENCED)
    assert dict(CODES) == {**fenced, 82: Event.FAILED}


@pytest.mark.parametrize("state", State)
def test_a_group_that_is_not_found_is_another_kind_of_group_to_who_joins(state):
    event = Event.FAILED if state is State.JOINING else Event.FENCED
    assert meaning(state, 69) is event
    assert meaning(state, 25) is Event.FENCED
    assert meaning(state, 7) is meaning(state, None) is None
