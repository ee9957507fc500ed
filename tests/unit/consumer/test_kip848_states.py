"""The table of a member under KIP-848."""

import pytest

from aiokclient.consumer.membership.kip848.states import (
    CODES,
    MEMBERS,
    TRANSITIONS,
    Kip848Event,
    Kip848State,
    after,
    meaning,
)

OVER = (Kip848State.FENCED, Kip848State.STALE, Kip848State.FAILED)


def test_every_state_can_be_reached():
    reached, more = set(), {Kip848State.OUT}
    while more:
        reached |= more
        more = {after(state, event) for state in reached for event in Kip848Event} - reached
    assert reached == set(Kip848State)


@pytest.mark.parametrize("state", Kip848State)
@pytest.mark.parametrize("event", Kip848Event)
def test_what_has_no_meaning_changes_nothing(state, event):
    assert after(state, event) is TRANSITIONS.get((state, event), state)


@pytest.mark.parametrize("state", [each for each in Kip848State if each not in MEMBERS])
@pytest.mark.parametrize("event", [Kip848Event.TOLD, Kip848Event.SETTLED, Kip848Event.RECONCILED])
def test_an_answer_to_an_earlier_membership_is_void(state, event):
    assert after(state, event) is state


@pytest.mark.parametrize("state", MEMBERS)
def test_every_member_can_be_fenced_and_comes_back(state):
    fenced = after(state, Kip848Event.FENCED)
    assert fenced is Kip848State.FENCED
    assert after(fenced, Kip848Event.RELEASED) is Kip848State.JOINING


@pytest.mark.parametrize("state", MEMBERS)
def test_who_was_left_behind_stays_out_until_the_program_asks(state):
    stale = after(state, Kip848Event.LATE)
    assert stale is Kip848State.STALE
    for event in set(Kip848Event) - {Kip848Event.ASKED, Kip848Event.UNSUBSCRIBED}:
        assert after(stale, event) is Kip848State.STALE
    assert after(stale, Kip848Event.ASKED) is Kip848State.JOINING


@pytest.mark.parametrize("state", Kip848State)
def test_nobody_who_is_out_becomes_a_member_without_joining(state):
    for event in Kip848Event:
        to = after(state, event)
        if state not in MEMBERS and to in MEMBERS:
            assert to is Kip848State.JOINING


@pytest.mark.parametrize("state", Kip848State)
def test_a_failure_is_final(state):
    assert after(Kip848State.FAILED, Kip848Event.FAILED) is Kip848State.FAILED
    if state in OVER[:2]:
        assert after(state, Kip848Event.UNSUBSCRIBED) is Kip848State.OUT


def test_what_brokers_say_when_they_do_not_know_a_member():
    fenced = dict.fromkeys((110, 25, 69), Kip848Event.FENCED)
    assert dict(CODES) == {**fenced, 82: Kip848Event.FAILED}


@pytest.mark.parametrize("state", Kip848State)
def test_a_group_that_is_not_found_is_another_kind_of_group_to_who_joins(state):
    event = Kip848Event.FAILED if state is Kip848State.JOINING else Kip848Event.FENCED
    assert meaning(state, 69) is event
    assert meaning(state, 25) is Kip848Event.FENCED
    assert meaning(state, 7) is meaning(state, None) is None
