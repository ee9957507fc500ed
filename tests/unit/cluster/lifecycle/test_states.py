"""Tests of each row of the table of lifecycle phases, and of what holds for all phases."""

from __future__ import annotations

from collections import deque

import pytest

from aiokclient.cluster.lifecycle.states import ENDED, SHOWN, TABLE, LifecycleEvent, LifecyclePhase
from aiokclient.types import State

E, P = LifecycleEvent, LifecyclePhase


def walk(events: list[LifecycleEvent], phase: LifecyclePhase = P.NEW) -> LifecyclePhase:
    """Return the phase after these events."""
    for event in events:
        phase = TABLE.get((phase, event), phase)
    return phase


def ways() -> dict[LifecyclePhase, list[LifecycleEvent]]:
    """Return the shortest sequence of events from NEW to each phase."""
    found: dict[LifecyclePhase, list[LifecycleEvent]] = {P.NEW: []}
    queue = deque([P.NEW])
    while queue:
        phase = queue.popleft()
        for (start, event), following in TABLE.items():
            if start is phase and following not in found:
                found[following] = [*found[phase], event]
                queue.append(following)
    return found


def test_every_phase_can_be_reached_and_all_but_ending_have_a_state() -> None:
    assert set(ways()) == set(LifecyclePhase) == {*SHOWN, P.ENDING}
    assert set(SHOWN.values()) == set(State) - {State.DEGRADED}


@pytest.mark.parametrize(("phase", "event"), TABLE, ids=lambda each: each.name)
def test_every_row_can_be_reached_from_the_first_phase(
    phase: LifecyclePhase, event: LifecycleEvent
) -> None:
    way = ways()[phase]
    assert walk(way) is phase
    assert walk([*way, event]) is TABLE[phase, event]


@pytest.mark.parametrize("phase", [each for each in LifecyclePhase if each not in ENDED])
@pytest.mark.parametrize("start", [[], [E.UNDONE], [E.READY, E.UNDONE]])
def test_close_is_final_in_every_phase_whatever_the_start_does(
    phase: LifecyclePhase, start: list[LifecycleEvent]
) -> None:
    assert walk([E.CLOSE, *start], phase) is P.ENDING
    assert walk([E.CLOSE, *start, E.ENDED], phase) is P.CLOSED


def test_no_event_leads_out_of_closed() -> None:
    assert [event for phase, event in TABLE if phase is P.CLOSED] == []


def test_start_can_be_repeated_after_it_was_undone() -> None:
    assert walk([E.START, E.UNDONE]) is P.NEW


def test_start_that_succeeds_after_a_close_was_requested_does_not_run() -> None:
    assert walk([E.START, E.CLOSE, E.READY]) is P.ENDING


def test_failure_changes_only_the_phase_in_which_calls_are_accepted() -> None:
    assert [phase for phase, event in TABLE if event is E.FAILED] == [P.RUNNING]
