"""Tests of the table of states."""

import pytest

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.transactions.states import (
    TABLE,
    TransactionEvent,
    TransactionState,
)

OF_REQUESTS = [
    event
    for event in TransactionEvent
    if event not in (TransactionEvent.REVOKE, TransactionEvent.MARKED, TransactionEvent.EXPIRE)
]


@pytest.mark.parametrize("state", [each for each in TABLE if each is not TransactionState.DEAD])
def test_every_request_has_a_result_in_every_state(state):
    assert set(OF_REQUESTS) <= set(TABLE[state])


def test_every_state_can_be_reached_and_left():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert set(TransactionState) <= reached
    assert TABLE[TransactionState.DEAD] == {}


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_an_outcome_is_final(state):
    changes = {event for event, after in TABLE[state].items() if not isinstance(after, Code)}
    assert changes == {TransactionEvent.MARKED}
