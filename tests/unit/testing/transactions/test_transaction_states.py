"""Tests of the coordinator's table of transaction states."""

import pytest

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.transactions.states import (
    TABLE,
    CoordinatorTransactionEvent,
    CoordinatorTransactionState,
)

OF_REQUESTS = [
    event
    for event in CoordinatorTransactionEvent
    if event
    not in (
        CoordinatorTransactionEvent.REVOKE,
        CoordinatorTransactionEvent.MARKED,
        CoordinatorTransactionEvent.EXPIRE,
    )
]


@pytest.mark.parametrize(
    "state", [each for each in TABLE if each is not CoordinatorTransactionState.DEAD]
)
def test_every_request_has_a_result_in_every_state(state):
    assert set(OF_REQUESTS) <= set(TABLE[state])


def test_every_state_of_the_transaction_coordinator_can_be_reached():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert set(CoordinatorTransactionState) <= reached
    assert TABLE[CoordinatorTransactionState.DEAD] == {}


@pytest.mark.parametrize(
    "state", [CoordinatorTransactionState.PREPARE_COMMIT, CoordinatorTransactionState.PREPARE_ABORT]
)
def test_an_outcome_is_final(state):
    changes = {event for event, after in TABLE[state].items() if not isinstance(after, Code)}
    assert changes == {CoordinatorTransactionEvent.MARKED}
