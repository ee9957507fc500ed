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
        found.on_attempt(now)
        found.on_failed_attempt(now + 20)
    assert found.due_at == 310.0
    assert not found.is_due(309.9)
    assert found.is_due(310.0)
    assert found.begin_rebootstrap(310.0) is Trigger.TIMEOUT


def test_response_clears_the_timer() -> None:
    found = recovery()
    found.on_attempt(10.0)
    found.on_answer(proven=True)
    assert found.due_at == math.inf
    found.on_attempt(200.0)
    assert found.due_at == 500.0


def test_trigger_time_of_zero_waits_for_a_failure() -> None:
    found = recovery(trigger_s=0.0)
    found.on_attempt(10.0)
    assert not found.is_due(50.0)
    found.on_failed_attempt(50.0)
    assert found.is_due(50.0)


@pytest.mark.parametrize("trigger", [Trigger.UNAVAILABLE, Trigger.REQUIRED])
def test_other_triggers_are_due_immediately(trigger: Trigger) -> None:
    found = recovery()
    found.on_attempt(10.0)
    if trigger is Trigger.UNAVAILABLE:
        found.on_brokers_unavailable()
    else:
        found.on_rebootstrap_required()
    assert found.is_due(10.0)
    assert found.begin_rebootstrap(10.0) is trigger
    assert found.state is RecoveryState.SEARCHING
    assert found.due_at == math.inf


def test_only_a_requirement_outlasts_a_response() -> None:
    found = recovery()
    found.on_brokers_unavailable()
    found.on_answer(proven=True)
    assert found.state is FOLLOWING
    found.on_rebootstrap_required()
    found.on_answer(proven=True)
    assert found.state is DUE
    found.on_brokers_unavailable()
    found.on_rebootstrap_required()
    assert found.begin_rebootstrap(1.0) is Trigger.REQUIRED


def test_rebootstraps_that_find_dead_brokers_back_off() -> None:
    found, now, pauses = recovery(), 0.0, []
    for _ in range(8):
        found.on_brokers_unavailable()
        began = max(now, found.due_at)
        pauses.append(began - now)
        assert found.is_due(began)
        found.begin_rebootstrap(began)
        found.on_answer(proven=False)
        now = began
    assert pauses[0] == 0
    assert all(0.08 <= pause <= 1.2 for pause in pauses[1:])
    assert sum(pauses[4:]) > 3
    found.on_answer(proven=True)
    found.on_brokers_unavailable()
    assert found.is_due(now)


@pytest.mark.parametrize("trigger", Trigger)
def test_strategy_none_only_notes_the_triggers(trigger: Trigger) -> None:
    found = recovery(enabled=False)
    found.on_attempt(0.0)
    if trigger is Trigger.UNAVAILABLE:
        found.on_brokers_unavailable()
    elif trigger is Trigger.REQUIRED:
        found.on_rebootstrap_required()
    found.on_failed_attempt(300.0 if trigger is Trigger.TIMEOUT else 1.0)
    assert list(found.missed) == [trigger]
    assert not found.is_due(1e9)
    assert found.due_at == math.inf
    found.on_answer(proven=True)
    assert not found.missed


def test_strategy_none_notes_the_trigger_time_while_an_attempt_is_in_progress() -> None:
    found = recovery(enabled=False)
    found.on_attempt(0.0)
    assert found.list_missed_triggers(299.9) == []
    assert found.list_missed_triggers(300.0) == [Trigger.TIMEOUT]
    found.on_rebootstrap_required()
    assert found.list_missed_triggers(400.0) == [Trigger.REQUIRED, Trigger.TIMEOUT]
    found.on_answer(proven=True)
    assert found.list_missed_triggers(400.0) == []


def test_strategy_rebootstrap_misses_nothing() -> None:
    found = recovery()
    found.on_attempt(0.0)
    assert found.list_missed_triggers(400.0) == []


def test_every_order_of_events_can_be_handled_and_ends_with_a_response() -> None:
    for events in itertools.product(RecoveryEvent, repeat=5):
        found = recovery(trigger_s=1.0)
        for now, event in enumerate(events):
            if event is RecoveryEvent.UNAVAILABLE:
                found.on_brokers_unavailable()
            elif event is RecoveryEvent.REQUIRED:
                found.on_rebootstrap_required()
            elif event is RecoveryEvent.TIMEOUT:
                found.on_attempt(float(now))
                found.on_failed_attempt(now + 1.0)
            elif event is RecoveryEvent.ANSWERED:
                found.on_answer(proven=True)
            elif found.is_due(now + 5.0):
                found.begin_rebootstrap(now + 5.0)
        if found.state is DUE:
            found.begin_rebootstrap(100.0)
        found.on_answer(proven=False)
        assert found.state is FOLLOWING
