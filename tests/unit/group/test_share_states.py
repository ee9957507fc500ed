"""Tests of the state table of a member of a share group."""

import itertools

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.group.share_states import (
    CODES,
    HEARTBEAT_STATES,
    JOIN_STATES,
    MEMBER_STATES,
    TABLE,
    Kip932Effect,
    Kip932Event,
    Kip932Member,
    Kip932State,
    event_of,
)

END, LEAVE, KEEP = Kip932Effect

TRANSITIONS = """
    out         subscribed    joining
    out         closed        closed
    joining     unsubscribed  out         END LEAVE
    joining     closed        closed      END LEAVE
    joining     assigned      stable
    joining     empty         unassigned
    joining     fenced        joining     END
    joining     full          full
    joining     refused       failed      END
    full        unsubscribed  out         END
    full        closed        closed      END
    full        assigned      stable
    full        empty         unassigned
    full        fenced        joining     END
    full        refused       failed      END
    unassigned  unsubscribed  out         END LEAVE
    unassigned  closed        closed      END LEAVE
    unassigned  assigned      stable
    unassigned  fenced        joining     END
    unassigned  withheld      unassigned  KEEP
    unassigned  refused       failed      END LEAVE
    stable      unsubscribed  out         END LEAVE
    stable      closed        closed      END LEAVE
    stable      empty         unassigned
    stable      fenced        joining     END
    stable      withheld      stable      KEEP
    stable      refused       failed      END LEAVE
    failed      closed        closed
"""
"""All transitions, written a second time: state, event, next state, effects."""

EXPECTED = {
    (Kip932State(words[0]), Kip932Event(words[1])): (
        Kip932State(words[2]),
        tuple(Kip932Effect[name] for name in words[3:]),
    )
    for line in TRANSITIONS.strip().splitlines()
    if (words := line.split())
}


def after(state: Kip932State, event: Kip932Event) -> Kip932State:
    row = TABLE.get((state, event))
    return state if row is None else row.state


def path_to(state: Kip932State) -> tuple[Kip932Event, ...]:
    """Return a shortest sequence of events that leads from OUT to the state."""
    for length in range(len(Kip932Event)):
        for events in itertools.product(Kip932Event, repeat=length):
            at = Kip932State.OUT
            for event in events:
                at = after(at, event)
            if at is state:
                return events
    raise AssertionError(f"No sequence of events leads to {state}.")


def member_in(state: Kip932State) -> Kip932Member:
    member = Kip932Member("m")
    for event in path_to(state):
        if event in (Kip932Event.ASSIGNED, Kip932Event.EMPTY):
            member.set_epoch(7)
        member.apply_event(event)
    assert member.state is state
    return member


@pytest.mark.parametrize("state", Kip932State)
@pytest.mark.parametrize("event", Kip932Event)
def test_a_share_member_does_what_the_table_says(state: Kip932State, event: Kip932Event) -> None:
    member = member_in(state)
    memberships, leaves, epoch = member.memberships, member.must_leave, member.epoch
    expected = EXPECTED.get((state, event))
    effects = member.apply_event(event)
    if expected is None:
        assert (member.state, effects) == (state, ())
        assert (member.memberships, member.must_leave, member.epoch) == (memberships, leaves, epoch)
        return
    assert (member.state, effects) == expected
    assert effects == tuple(effect for effect in Kip932Effect if effect in effects)
    assert member.memberships == memberships + (END in effects)
    assert member.epoch == (0 if END in effects else epoch)
    assert member.must_leave is (leaves or LEAVE in effects)
    assert member.must_keep is (KEEP in effects)
    assert member.member_id == "m"


def test_every_state_of_a_share_member_can_be_reached() -> None:
    reached: set[Kip932State] = set()
    more = {Kip932State.OUT}
    while more:
        reached |= more
        more = {after(state, event) for state in reached for event in Kip932Event} - reached
    assert reached == set(Kip932State)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Kip932State, Kip932Event)))
def test_a_share_membership_ends_with_the_heartbeats(
    state: Kip932State, event: Kip932Event
) -> None:
    row = TABLE.get((state, event))
    if row is None:
        return
    ends = state in HEARTBEAT_STATES and row.state not in HEARTBEAT_STATES
    assert (END in row.effects) is (ends or event is Kip932Event.FENCED)
    assert LEAVE not in row.effects or END in row.effects


@pytest.mark.parametrize("state", Kip932State)
def test_a_closed_share_member_stays_closed(state: Kip932State) -> None:
    assert after(state, Kip932Event.CLOSED) is Kip932State.CLOSED
    assert not any((Kip932State.CLOSED, event) in TABLE for event in Kip932Event)


@pytest.mark.parametrize("state", HEARTBEAT_STATES)
def test_every_member_that_is_fenced_joins_again_with_the_same_id(state: Kip932State) -> None:
    member = member_in(state)
    member.apply_event(Kip932Event.FENCED)
    assert (member.state, member.epoch, member.member_id) == (Kip932State.JOINING, 0, "m")
    assert not member.must_leave


@pytest.mark.parametrize("state", [each for each in Kip932State if each not in HEARTBEAT_STATES])
def test_an_answer_after_the_membership_changes_nothing(state: Kip932State) -> None:
    for event in set(Kip932Event) - {Kip932Event.SUBSCRIBED, Kip932Event.CLOSED}:
        assert after(state, event) is state


def test_each_code_has_the_event_of_its_meaning() -> None:
    fenced = dict.fromkeys((110, 25, 69), Kip932Event.FENCED)
    known = {**fenced, 81: Kip932Event.FULL, 29: Kip932Event.WITHHELD}
    assert dict(CODES) == known
    for state in Kip932State:
        for code in (None, *ERRORS_BY_CODE):
            expected = known.get(code) if code is not None else None
            if code == 69 and state in JOIN_STATES:
                expected = Kip932Event.REFUSED
            assert event_of(state, code) is expected, (state, code)


def test_a_member_sends_heartbeats_without_topics_until_it_was_answered() -> None:
    for state in MEMBER_STATES:
        member = member_in(state)
        member.apply_event(Kip932Event.WITHHELD)
        assert member.must_keep
        member.mark_kept()
        assert not member.must_keep
        member.apply_event(Kip932Event.WITHHELD)
        member.apply_event(Kip932Event.FENCED)
        assert not member.must_keep, "a member that joins must name its topics"
