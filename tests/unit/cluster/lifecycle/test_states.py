"""Tests of each row of the table of lifecycle phases, and of what holds for all phases."""

from __future__ import annotations

import random
from collections import deque

import pytest

from aiokclient.cluster.lifecycle.states import (
    ENDING,
    SHOWN,
    TABLE,
    USABLE,
    Effect,
    LifecycleEvent,
    LifecyclePhase,
)
from aiokclient.types import State

E, P = LifecycleEvent, LifecyclePhase


def walk(
    events: list[LifecycleEvent], phase: LifecyclePhase = P.NEW
) -> tuple[LifecyclePhase, list[Effect]]:
    """Return the phase after these events, with all effects of the transitions."""
    done: list[Effect] = []
    for event in events:
        row = TABLE.get((phase, event))
        if row is not None:
            phase, effects = row
            done += effects
    return phase, done


def ways() -> dict[LifecyclePhase, list[LifecycleEvent]]:
    """Return the shortest sequence of events from NEW to each phase."""
    found: dict[LifecyclePhase, list[LifecycleEvent]] = {P.NEW: []}
    queue = deque([P.NEW])
    while queue:
        phase = queue.popleft()
        for (start, event), row in TABLE.items():
            if start is phase and row.phase not in found:
                found[row.phase] = [*found[phase], event]
                queue.append(row.phase)
    return found


def test_every_phase_can_be_reached_and_has_a_state() -> None:
    assert set(ways()) == set(LifecyclePhase) == set(SHOWN)


@pytest.mark.parametrize(("phase", "event"), TABLE, ids=lambda each: each.name)
def test_every_row_can_be_reached_from_the_first_phase(
    phase: LifecyclePhase, event: LifecycleEvent
) -> None:
    way = ways()[phase]
    assert walk(way)[0] is phase
    assert walk([*way, event])[0] is TABLE[phase, event].phase


@pytest.mark.parametrize("phase", [each for each in LifecyclePhase if each is not P.CLOSED])
def test_every_phase_can_be_closed(phase: LifecyclePhase) -> None:
    """A start that is in progress ends before its close does.

    Every order of the steps leads to CLOSED.
    """
    for start in ([], [E.START_FAILED, E.UNDONE], [E.READY, E.START_FAILED, E.UNDONE]):
        for before in range(len(start) + 1):
            events = [E.CLOSE, *start[:before], E.ENDING_BEGINS, *start[before:], E.ENDED]
            if P.STARTING is phase and not start:
                continue
            assert walk(events, phase)[0] is P.CLOSED, events


def test_no_event_leads_out_of_closed() -> None:
    assert [event for phase, event in TABLE if phase is P.CLOSED] == []


def test_a_close_begins_once_and_its_work_is_done_once() -> None:
    for phase, event in TABLE:
        effects = TABLE[phase, event].effects
        begins = phase not in ENDING and TABLE[phase, event].phase in ENDING
        assert (Effect.BEGIN_CLOSE in effects) is begins, (phase, event)
    _, done = walk([E.START, E.READY, E.CLOSE, E.CLOSE, E.ENDING_BEGINS, E.ENDED, E.CLOSE])
    assert done == [
        Effect.BEGIN_START,
        Effect.BEGIN_CLOSE,
        Effect.SHUT_DOWN,
    ]


def test_a_start_is_cancelled_at_most_once() -> None:
    rng = random.Random(7)
    for _ in range(2_000):
        phase, cancelled = P.NEW, 0
        for event in rng.choices(list(LifecycleEvent), k=30):
            row = TABLE.get((phase, event))
            if row is None:
                continue
            if Effect.BEGIN_START in row.effects:
                cancelled = 0
            cancelled += Effect.CANCEL_START in row.effects
            assert cancelled <= 1
            phase = row.phase


def test_a_cancelled_caller_undoes_only_a_start_without_other_callers() -> None:
    for event in (E.ABANDONED, E.UNANSWERED):
        for phase in (P.RUNNING, P.FAILED, P.UNDOING, P.CLOSED, *ENDING):
            assert (phase, event) not in TABLE
    assert walk([E.START, E.READY, E.UNANSWERED, E.UNDONE]) == (
        P.NEW,
        [Effect.BEGIN_START, Effect.UNDO_STARTED],
    )
    assert walk([E.START, E.READY, E.ANSWERED, E.UNANSWERED])[0] is P.RUNNING


def test_a_close_before_the_start_has_run_refuses_the_start() -> None:
    """With `asyncio.eager_task_factory`, start and close may be called before their tasks run."""
    phase, done = walk([E.START, E.CLOSE, E.READY])
    assert (phase, done[-1]) == (P.ENDING_START, Effect.REFUSE_START)
    phase, done = walk([E.START, E.CLOSE, E.READY, E.START_FAILED, E.ENDING_BEGINS])
    assert Effect.CANCEL_START not in done
    assert done[-1] is Effect.AWAIT_START


def test_calls_are_accepted_only_while_it_is_shown_as_running() -> None:
    assert {SHOWN[phase] for phase in USABLE} == {State.RUNNING}
    assert USABLE.isdisjoint(ENDING)
    assert {SHOWN[phase] for phase in LifecyclePhase} == set(State) - {State.DEGRADED}


def test_a_failure_changes_only_phases_that_are_shown_as_running() -> None:
    changed = {phase for phase, event in TABLE if event is E.FAILED}
    assert changed == {phase for phase in LifecyclePhase if SHOWN[phase] is State.RUNNING}
