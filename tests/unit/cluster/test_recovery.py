"""The decision when to rebootstrap, event by event."""

import itertools
import math
import random

import pytest

from aiokclient.cluster.recovery import TABLE, Recovery, RecoveryEvent, RecoveryState, Trigger
from aiokclient.policy import Backoff

FOLLOWING, DUE, SEARCHING = RecoveryState


def recovery(*, enabled: bool = True, trigger_s: float = 300.0) -> Recovery:
    return Recovery(
        enabled=enabled, trigger_s=trigger_s, backoff=Backoff(0.1, 1.0), rng=random.Random(1)
    )


def test_table_has_a_way_out_of_each_state() -> None:
    for state in RecoveryState:
        assert {to for (start, _), to in TABLE.items() if start is state} - {state}


def test_no_metadata_request_means_no_timer() -> None:
    found = recovery()
    assert found.due_at == math.inf
    assert not found.is_due(1e9)


def test_timer_begins_at_the_first_attempt_and_not_at_the_first_failure() -> None:
    found = recovery()
    for now in (10.0, 40.0, 100.0):
        found.attempted(now)
        found.failed(now + 20)
    assert found.due_at == 310.0
    assert not found.is_due(309.9)
    assert found.is_due(310.0)
    assert found.begin(310.0) is Trigger.TIMEOUT


def test_response_clears_the_timer() -> None:
    found = recovery()
    found.attempted(10.0)
    found.answered(proven=True)
    assert found.due_at == math.inf
    found.attempted(200.0)
    assert found.due_at == 500.0


def test_trigger_time_of_zero_waits_for_a_failure() -> None:
    found = recovery(trigger_s=0.0)
    found.attempted(10.0)
    assert not found.is_due(50.0)
    found.failed(50.0)
    assert found.is_due(50.0)


@pytest.mark.parametrize("trigger", [Trigger.UNAVAILABLE, Trigger.REQUIRED])
def test_other_triggers_are_due_immediately(trigger: Trigger) -> None:
    found = recovery()
    found.attempted(10.0)
    found.unavailable() if trigger is Trigger.UNAVAILABLE else found.required()
    assert found.is_due(10.0)
    assert found.begin(10.0) is trigger
    assert found.state is RecoveryState.SEARCHING
    assert found.due_at == math.inf


def test_only_a_requirement_outlasts_a_response() -> None:
    found = recovery()
    found.unavailable()
    found.answered(proven=True)
    assert found.state is FOLLOWING
    found.required()
    found.answered(proven=True)
    assert found.state is DUE
    found.unavailable()
    found.required()
    assert found.begin(1.0) is Trigger.REQUIRED


def test_rebootstraps_that_find_dead_brokers_back_off() -> None:
    found, now, pauses = recovery(), 0.0, []
    for _ in range(8):
        found.unavailable()
        began = max(now, found.due_at)
        pauses.append(began - now)
        assert found.is_due(began)
        found.begin(began)
        found.answered(proven=False)
        now = began
    assert pauses[0] == 0
    assert all(0.08 <= pause <= 1.2 for pause in pauses[1:])
    assert sum(pauses[4:]) > 3
    found.answered(proven=True)
    found.unavailable()
    assert found.is_due(now)


@pytest.mark.parametrize("trigger", Trigger)
def test_strategy_none_only_notes_the_triggers(trigger: Trigger) -> None:
    found = recovery(enabled=False)
    found.attempted(0.0)
    if trigger is Trigger.UNAVAILABLE:
        found.unavailable()
    elif trigger is Trigger.REQUIRED:
        found.required()
    found.failed(300.0 if trigger is Trigger.TIMEOUT else 1.0)
    assert list(found.missed) == [trigger]
    assert not found.is_due(1e9)
    assert found.due_at == math.inf
    found.answered(proven=True)
    assert not found.missed


def test_strategy_none_notes_the_trigger_time_while_an_attempt_is_in_progress() -> None:
    found = recovery(enabled=False)
    found.attempted(0.0)
    assert found.missed_by(299.9) == []
    assert found.missed_by(300.0) == [Trigger.TIMEOUT]
    found.required()
    assert found.missed_by(400.0) == [Trigger.REQUIRED, Trigger.TIMEOUT]
    found.answered(proven=True)
    assert found.missed_by(400.0) == []


def test_strategy_rebootstrap_misses_nothing() -> None:
    found = recovery()
    found.attempted(0.0)
    assert found.missed_by(400.0) == []


def test_every_order_of_events_can_be_handled_and_ends_with_a_response() -> None:
    for events in itertools.product(RecoveryEvent, repeat=5):
        found = recovery(trigger_s=1.0)
        for now, event in enumerate(events):
            if event is RecoveryEvent.UNAVAILABLE:
                found.unavailable()
            elif event is RecoveryEvent.REQUIRED:
                found.required()
            elif event is RecoveryEvent.TIMEOUT:
                found.attempted(float(now))
                found.failed(now + 1.0)
            elif event is RecoveryEvent.ANSWERED:
                found.answered(proven=True)
            elif found.is_due(now + 5.0):
                found.begin(now + 5.0)
        if found.state is DUE:
            found.begin(100.0)
        found.answered(proven=False)
        assert found.state is FOLLOWING
