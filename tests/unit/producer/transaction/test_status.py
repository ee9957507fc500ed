"""The notes about one transaction, and what the status of its producer makes of them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from transaction_runs import SetClock

from aiokclient.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    SerializationError,
    TransactionAbortableError,
    TransactionFailedError,
)
from aiokclient.policy import Scope
from aiokclient.producer.transaction.states import TransactionEvent, TransactionState
from aiokclient.producer.transaction.status import (
    CurrentTransaction,
    ProducerIdentity,
    TransactionOutcome,
    TransactionStatus,
    abortable,
    repeated,
)
from aiokclient.types import TopicPartition

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
PARTITION = TopicPartition("t", 0)


Changes = list[tuple[TransactionState, TransactionState]]


class RecordingManager:
    """A stand-in for the manager, which records the changes of the state."""

    def __init__(self) -> None:
        self.changes: Changes = []

    def on_state_change(self, old: TransactionState, new: TransactionState) -> None:
        self.changes.append((old, new))


def recorded_changes(status: TransactionStatus) -> Changes:
    """Return a list that gets each change of the state."""
    manager = RecordingManager()
    status.manager = cast(Any, manager)
    return manager.changes


def begun(level: int = 2) -> CurrentTransaction:
    return CurrentTransaction(level, 5.0, ProducerIdentity(7, 3))


def status_in(state: TransactionState, now: float = 0.0) -> TransactionStatus:
    status = TransactionStatus("t-1", 60_000, SetClock(now))
    status.state = state
    return status


def test_a_transaction_begins_without_parts_errors_and_outcome() -> None:
    assert ProducerIdentity() == (-1, -1)
    current = CurrentTransaction(1, 5.0)
    assert (current.identity, current.level, current.begun_at) == ((-1, -1), 1, 5.0)
    assert begun().identity == (7, 3)
    flags = (
        current.is_lowered, current.was_refused, current.is_written, current.is_added,
        current.is_undecided, current.must_abort, current.is_given_up,
    )  # fmt: skip
    assert flags == (False,) * 7
    assert (current.refused_part, current.outcome, current.error, current.severity) == (
        None,
        None,
        None,
        0,
    )


@pytest.mark.parametrize(
    ("begun_at", "outcome", "is_open"),
    [
        (None, None, False),
        (0.0, None, True),
        (5.0, None, True),
        (5.0, UNKNOWN, True),
        (5.0, COMMITTED, False),
        (5.0, ABORTED, False),
    ],
)
def test_a_transaction_is_open_from_its_begin_to_its_final_outcome(
    begun_at: float | None, outcome: TransactionOutcome | None, is_open: bool
) -> None:
    current = CurrentTransaction(2, begun_at)
    current.outcome = outcome
    assert current.is_open is is_open


def test_notes_are_kept() -> None:
    current = begun()
    current.mark_written()
    current.mark_added()
    current.require_abort()
    assert current.is_written
    assert current.is_added
    assert current.must_abort
    assert not current.is_undecided
    current.mark_undecided()
    assert current.is_undecided
    current.mark_decided()
    assert not current.is_undecided
    assert not current.is_given_up
    current.mark_given_up()
    assert current.is_given_up
    assert current.outcome is UNKNOWN


@pytest.mark.parametrize("written", [True, False])
def test_another_process_can_commit_a_detached_transaction_unless_it_is_empty(
    written: bool,
) -> None:
    current = begun()
    if written:
        current.mark_written()
    current.mark_detached()
    assert current.is_undecided is written


@pytest.mark.parametrize(
    ("begun_at", "outcome", "undecided", "was_open", "then"),
    [
        (None, None, False, False, None),
        (5.0, None, False, True, ABORTED),
        (5.0, None, True, True, UNKNOWN),
        (5.0, UNKNOWN, True, False, UNKNOWN),
        (5.0, UNKNOWN, False, False, UNKNOWN),
        (5.0, COMMITTED, False, False, COMMITTED),
        (5.0, ABORTED, False, False, ABORTED),
    ],
)
def test_giving_up_a_transaction_decides_its_outcome_once(
    begun_at: float | None,
    outcome: TransactionOutcome | None,
    undecided: bool,
    was_open: bool,
    then: TransactionOutcome | None,
) -> None:
    current = CurrentTransaction(2, begun_at)
    current.outcome, current.is_undecided = outcome, undecided
    assert current.abandon_transaction() is was_open
    assert current.outcome is then


@pytest.mark.parametrize(
    ("level", "to", "then", "lowered"),
    [(2, 1, 1, True), (2, 0, 0, True), (1, 1, 1, False), (1, 2, 1, False), (0, 2, 0, False)],
)
def test_the_level_of_a_transaction_is_only_lowered(
    level: int, to: int, then: int, lowered: bool
) -> None:
    current = begun(level)
    current.lower_level(to)
    assert (current.level, current.is_lowered) == (then, lowered)


def test_a_refused_request_names_the_first_part() -> None:
    current = begun()
    current.mark_refused(None)
    assert current.was_refused
    assert current.refused_part is None
    current.mark_refused(PARTITION)
    current.mark_refused("group")
    assert current.refused_part == PARTITION
    current.mark_refused(None)
    assert current.refused_part == PARTITION


def test_the_first_of_the_most_severe_errors_is_kept() -> None:
    current = begun()
    errors = [KafkaError(str(number)) for number in range(4)]
    for error, severity in zip(errors, (1, 1, 2, 1), strict=True):
        current.store_error(error, severity)
    assert current.error is errors[2]
    assert current.severity == 2
    current = begun()
    current.store_error(errors[0], 1)
    current.store_error(errors[1], 1)
    assert current.error is errors[0]


@pytest.mark.parametrize(
    ("state", "left_open", "outcome"),
    [
        (TransactionState.IN_TRANSACTION, True, ABORTED),
        (TransactionState.COMMITTING, True, ABORTED),
        (TransactionState.DETACHED, False, None),
    ],
)
def test_closing_gives_up_a_transaction_that_is_not_detached(
    state: TransactionState, left_open: bool, outcome: TransactionOutcome | None
) -> None:
    status = status_in(state)
    status.current = begun()
    assert not status.is_closed
    assert status.mark_closed() is left_open
    assert status.is_closed
    assert status.current.outcome is outcome
    assert status.mark_closed() is False


@pytest.mark.parametrize("state", TransactionState)
def test_records_are_sent_only_in_an_open_transaction(state: TransactionState) -> None:
    sending = {
        TransactionState.IN_TRANSACTION, TransactionState.COMMITTING, TransactionState.DETACHING
    }  # fmt: skip
    assert status_in(state).may_send is (state in sending)


def test_a_begin_opens_a_transaction_with_the_identity_of_the_producer() -> None:
    status = status_in(TransactionState.READY)
    changes = recorded_changes(status)
    status.adopt_identity(ProducerIdentity(7, 3))
    assert not status.current.is_open
    current = status.begin_transaction(1, 5.0)
    assert status.current is current
    assert (current.identity, current.level, current.begun_at) == ((7, 3), 1, 5.0)
    assert changes == [(TransactionState.READY, TransactionState.IN_TRANSACTION)]
    status.adopt_identity(ProducerIdentity(7, 4))
    assert current.identity == (7, 3), "a transaction keeps the identity that it began with"
    status.handle_event(TransactionEvent.COMMIT)
    status.end_transaction(COMMITTED, TransactionEvent.COMMITTED)
    assert current.outcome is COMMITTED
    assert status.state is TransactionState.READY
    assert len(changes) == 3


def test_a_step_that_keeps_the_state_is_not_a_change() -> None:
    status = status_in(TransactionState.ABORTABLE_ERROR)
    changes = recorded_changes(status)
    status.handle_event(TransactionEvent.FAILED_ABORTABLE)
    assert changes == []


def test_the_first_fatal_error_is_kept_until_the_producer_has_recovered() -> None:
    status = status_in(TransactionState.READY)
    status.begin_transaction(2, 0.0)
    first = status.handle_error(ProducerFencedError("first"), Scope.TRANSACTION)
    status.handle_error(ProducerFencedError("second"), Scope.TRANSACTION)
    assert status.fatal is first
    assert status.failure is first
    assert status.state is TransactionState.FATAL_ERROR
    status.state = TransactionState.RESTARTING
    assert status.failure is None, "a restart is in progress"
    status.clear_fatal_error()
    status.state = TransactionState.READY
    assert status.fatal is None
    assert status.failure is None, "the error of a transaction is not that of its producer"
    status.require_restart()
    assert isinstance(status.failure, TransactionFailedError)


def test_an_abortable_error_is_not_fatal() -> None:
    status = status_in(TransactionState.READY)
    status.begin_transaction(2, 0.0)
    raised = status.handle_error(TransactionAbortableError("no"), Scope.TRANSACTION)
    assert status.fatal is None
    assert status.failure is raised
    assert status.state is TransactionState.ABORTABLE_ERROR


def test_a_closed_producer_ignores_errors() -> None:
    status = status_in(TransactionState.READY)
    status.begin_transaction(2, 0.0)
    status.is_closed = True
    status.handle_error(ProducerFencedError("late"), Scope.TRANSACTION)
    assert status.fatal is None
    assert status.current.error is None
    assert status.state is TransactionState.IN_TRANSACTION


@pytest.mark.parametrize(
    ("begun_at", "now", "explained"),
    [(0.0, 59.999, False), (0.0, 60.0, True), (30.0, 90.0, True), (30.0, 89.0, False)],
)
@pytest.mark.parametrize("error", [InvalidProducerEpochError, ProducerFencedError])
def test_a_fatal_error_after_the_timeout_of_the_transaction_is_explained(
    begun_at: float, now: float, explained: bool, error: type[KafkaError]
) -> None:
    status = status_in(TransactionState.READY, now)
    status.begin_transaction(2, begun_at)
    raised = status.handle_error(error(""), Scope.TRANSACTION)
    text = f"open for {now - begun_at:.1f} s, longer than transaction_timeout_ms (60000)"
    assert (text in str(raised)) is (explained and status.fatal is not None)


def test_an_error_is_not_explained_by_a_transaction_that_has_ended() -> None:
    status = status_in(TransactionState.READY, 100.0)
    assert "transaction_timeout_ms" not in str(
        status.handle_error(ProducerFencedError(""), Scope.TRANSACTION)
    )
    status = status_in(TransactionState.READY, 100.0)
    status.begin_transaction(2, 0.0)
    status.current.store_outcome(COMMITTED)
    error = status.handle_error(ProducerFencedError(""), Scope.TRANSACTION)
    assert "transaction_timeout_ms" not in str(error)
    status = status_in(TransactionState.READY, 100.0)
    status.begin_transaction(2, 0.0)
    own = ProducerFencedError("")
    own.code = None
    assert "transaction_timeout_ms" not in str(status.handle_error(own, Scope.TRANSACTION))


def test_a_call_raises_the_failure_or_names_the_allowed_calls() -> None:
    status = status_in(TransactionState.READY)
    status.require_state(TransactionState.READY, call="begin_transaction()")
    with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) is not allowed"):
        status.require_state(TransactionState.IN_TRANSACTION, call="commit_transaction()")
    status.begin_transaction(2, 0.0)
    fatal = status.handle_error(ProducerFencedError("first"), Scope.TRANSACTION)
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="first") as caught:
            status.require_state(TransactionState.READY, call="begin_transaction()")
        assert caught.value is not fatal
    assert fatal.__traceback__ is None


def test_a_repeated_error_keeps_its_cause_and_not_its_traceback() -> None:
    error = KafkaError("x")
    try:
        raise error from ValueError("cause")
    except KafkaError:
        pass
    copied = repeated(error)
    assert copied is not error
    assert isinstance(copied.__cause__, ValueError)
    assert copied.__suppress_context__
    assert copied.__traceback__ is None


def test_a_new_producer_has_no_identity_and_no_transaction() -> None:
    status = TransactionStatus("t-1", 60_000, SetClock(0.0))
    assert status.transactional_id == "t-1"
    assert status.state is TransactionState.UNINITIALIZED
    assert status.identity == (-1, -1)
    assert (status.current.level, status.current.begun_at) == (0, None)
    assert status.fatal is None


@pytest.mark.parametrize("lowered", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_an_epoch_is_not_used_again_after_a_lost_response_or_a_downgrade(
    lowered: bool, lost: bool
) -> None:
    current = begun(2)
    assert not current.is_epoch_unsafe
    if lowered:
        current.lower_level(1)
    if lost:
        current.mark_response_lost()
    assert current.is_epoch_unsafe is (lowered or lost)


def test_a_record_that_cannot_be_serialized_makes_the_transaction_abortable() -> None:
    status = status_in(TransactionState.READY)
    status.begin_transaction(2, 0.0)
    error = SerializationError("no")
    assert status.handle_error(error, Scope.TRANSACTION) is error
    assert isinstance(status.failure, TransactionAbortableError)
    assert status.state is TransactionState.ABORTABLE_ERROR


def test_an_abortable_error_of_the_client_has_no_code_and_names_its_cause() -> None:
    error = abortable("It is late.")
    assert (error.code, error.name, error.__cause__) == (None, None, None)
    assert "The last error" not in str(error)
    cause = ProducerFencedError("fenced")
    error = abortable("It is late.", cause)
    assert error.code is None
    assert error.__cause__ is cause
    assert f"It is late. The last error: {cause.brief}" in str(error)
