"""The table of the reporter's states."""

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.telemetry.states import (
    CODES,
    TABLE,
    ReporterEffect,
    ReporterEvent,
    ReporterState,
    event_of,
)

REQUESTS = {ReporterEffect.ASK, ReporterEffect.PUSH}
RESPONSES = {
    ReporterState.ASKING: ReporterEffect.ASK,
    ReporterState.ASKING_AGAIN: ReporterEffect.ASK,
    ReporterState.PUSHING: ReporterEffect.PUSH,
}


def test_every_state_of_the_reporter_can_be_reached_and_left() -> None:
    reached, fresh = set[ReporterState](), {ReporterState.SEARCHING}
    while fresh:
        reached |= fresh
        fresh = {row.state for (state, _), row in TABLE.items() if state in reached} - reached
    assert reached == set(ReporterState)
    for state in ReporterState:
        leads_to = {row.state for (begin, _), row in TABLE.items() if begin is state}
        assert bool(leads_to) == (state is not ReporterState.CLOSED)


@pytest.mark.parametrize("state", RESPONSES)
def test_request_is_the_last_effect_of_the_transitions_to_its_state(state: ReporterState) -> None:
    rows = [row for row in TABLE.values() if row.state is state]
    assert rows
    for row in rows:
        assert row.effects[-1] is RESPONSES[state]
        assert not REQUESTS.intersection(row.effects[:-1])


def test_every_refusal_has_a_row_in_every_state_with_a_request() -> None:
    refusals = {event_of(code) for code in (*ERRORS_BY_CODE, 999)}
    refusals |= {ReporterEvent.LOST, ReporterEvent.MISSING}
    for state in RESPONSES:
        for event in refusals:
            assert (state, event) in TABLE
    assert {event_of(code) for code in CODES if code is not None} < refusals


def test_no_chain_of_responses_leads_to_requests_without_a_wait_between_them() -> None:
    """After an unknown subscription id, one request is sent at once. Other requests wait first."""
    following = {
        (state, row.state)
        for (state, event), row in TABLE.items()
        if state in RESPONSES and row.state in RESPONSES
    }
    assert following == {
        (ReporterState.PUSHING, ReporterState.ASKING_AGAIN),
        (ReporterState.ASKING, ReporterState.PUSHING),
    }


def test_closing_pushes_for_the_last_time_in_every_state() -> None:
    for state in ReporterState:
        row = TABLE.get((state, ReporterEvent.CLOSING))
        if state in (ReporterState.TERMINATING, ReporterState.CLOSED):
            assert row is None
        else:
            assert row == (ReporterState.TERMINATING, (ReporterEffect.TERMINATE,))
