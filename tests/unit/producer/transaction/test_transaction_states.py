"""Tests of each row of the table of a transactional producer, and that the table is complete."""

import pytest
from transaction_runs import SetClock

from aiokclient.errors import (
    ERRORS_BY_CODE,
    AbortableError,
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownServerError,
)
from aiokclient.policy import Decision, Scope, as_transaction_error
from aiokclient.producer.transaction.states import (
    CALLS,
    EVENTS,
    TABLE,
    TransactionEvent,
    TransactionState,
    TransitionError,
)
from aiokclient.producer.transaction.status import TransactionOutcome, TransactionStatus, repeated

# State, event, next state; each by the name of its member.
ROWS = """
UNINITIALIZED   INITIALIZE        INITIALIZING
INITIALIZING    INITIALIZED       READY
INITIALIZING    NOT_INITIALIZED   UNINITIALIZED
READY           BEGIN             IN_TRANSACTION
READY           INITIALIZE        INITIALIZING
IN_TRANSACTION  COMMIT            COMMITTING
IN_TRANSACTION  ABORT             ABORTING
IN_TRANSACTION  FAILED_ABORTABLE  ABORTABLE_ERROR
IN_TRANSACTION  FAILED_REFUSED    ABORTABLE_ERROR
IN_TRANSACTION  FAILED_FATAL      FATAL_ERROR
IN_TRANSACTION  RESTART           RESTARTING
IN_TRANSACTION  DETACH            DETACHING
DETACHING       DETACHED          DETACHED
DETACHING       NOT_DETACHED      IN_TRANSACTION
DETACHING       FAILED_ABORTABLE  ABORTABLE_ERROR
DETACHING       FAILED_REFUSED    ABORTABLE_ERROR
DETACHING       FAILED_FATAL      FATAL_ERROR
DETACHING       RESTART           RESTARTING
DETACHED        RESTART           RESTARTING
COMMITTING      COMMITTED         READY
COMMITTING      FAILED_ABORTABLE  ABORTABLE_ERROR
COMMITTING      FAILED_REFUSED    ABORTABLE_ERROR
COMMITTING      FAILED_FATAL      FATAL_ERROR
COMMITTING      RESTART           RESTARTING
ABORTING        ABORTED           READY
ABORTING        COMMITTED         READY
ABORTING        FAILED_ABORTABLE  ABORTING
ABORTING        FAILED_REFUSED    ABORTING
ABORTING        ABORT_REFUSED     ABORTABLE_ERROR
ABORTING        FAILED_FATAL      FATAL_ERROR
ABORTING        RESTART           RESTARTING
COMMITTING      ABORT             ABORTING
READY           RESTART           RESTARTING
UNINITIALIZED   RESTART           RESTARTING
INITIALIZING    NOT_RENEWED       READY
RESTARTING      INITIALIZED       READY
RESTARTING      NOT_INITIALIZED   UNINITIALIZED
RESTARTING      FAILED_ABORTABLE  RESTARTING
RESTARTING      FAILED_REFUSED    RESTARTING
RESTARTING      FAILED_FATAL      RESTARTING
READY           FAILED_FATAL      FATAL_ERROR
ABORTABLE_ERROR ABORT             ABORTING
ABORTABLE_ERROR FAILED_ABORTABLE  ABORTABLE_ERROR
ABORTABLE_ERROR FAILED_REFUSED    ABORTABLE_ERROR
ABORTABLE_ERROR FAILED_FATAL      FATAL_ERROR
ABORTABLE_ERROR RESTART           RESTARTING
FATAL_ERROR     FAILED_ABORTABLE  FATAL_ERROR
FATAL_ERROR     FAILED_REFUSED    FATAL_ERROR
FATAL_ERROR     FAILED_FATAL      FATAL_ERROR
FATAL_ERROR     RESTART           RESTARTING
"""


def rows() -> dict[tuple[TransactionState, TransactionEvent], TransactionState]:
    found = {}
    for line in ROWS.split("\n"):
        if line:
            state, event, after = line.split()
            key = TransactionState[state], TransactionEvent[event]
            found[key] = TransactionState[after]
    return found


def in_state(state: TransactionState) -> TransactionStatus:
    status = TransactionStatus("t-1", 60_000, SetClock(90.0))
    status.state = state
    return status


def test_the_table_is_as_written_here() -> None:
    assert rows() == TABLE


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("event", TransactionEvent)
def test_a_pair_without_a_row_names_state_and_event(
    state: TransactionState, event: TransactionEvent
) -> None:
    status = in_state(state)
    if (state, event) in rows():
        status.handle_event(event)
        assert status.state is rows()[state, event]
        return
    with pytest.raises(TransitionError) as caught:
        status.handle_event(event)
    assert state.value in str(caught.value)
    assert event.value in str(caught.value)
    assert status.state is state


def test_every_state_can_be_left_and_names_its_calls() -> None:
    for state in TransactionState:
        assert any(old is state and new is not state for (old, _), new in TABLE.items())
        assert "close()" in CALLS[state]
    assert set(EVENTS) == set(Decision)


@pytest.mark.parametrize("state", TransactionState)
def test_a_wrong_call_names_the_state_and_the_allowed_calls(state: TransactionState) -> None:
    error = in_state(state).make_misuse_error("send()")
    assert isinstance(error, IllegalStateError)
    assert state.value in str(error)
    assert all(call in str(error) for call in CALLS[state])


class TestErrors:
    """Every error is raised in one of three categories, which agrees with the state after it."""

    SCOPES = (
        Scope.FIND_COORDINATOR,
        Scope.INIT_PRODUCER_ID,
        Scope.PRODUCE_TXN,
        Scope.TRANSACTION,
        Scope.TXN_OFFSET_COMMIT,
    )
    CATEGORIES = (AbortableError, InvalidConfigurationError, ApplicationRecoverableError)

    @pytest.mark.parametrize("scope", SCOPES)
    @pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE))
    def test_each_code_has_one_category(self, scope: Scope, code: int) -> None:
        error = ERRORS_BY_CODE[code]("detail", api="Produce", broker=1)
        raised = as_transaction_error(error, scope)
        assert sum(isinstance(raised, category) for category in self.CATEGORIES) == 1
        assert raised is error or raised.__cause__ is error
        assert error.name is not None
        assert error.name in str(raised)

    @pytest.mark.parametrize(
        ("error", "after"),
        [
            (NotLeaderOrFollowerError(), TransactionState.ABORTABLE_ERROR),
            (TransactionAbortableError(), TransactionState.ABORTABLE_ERROR),
            (TopicAuthorizationError(), TransactionState.ABORTABLE_ERROR),
            (InvalidProducerEpochError(), TransactionState.FATAL_ERROR),
            (UnknownServerError(), TransactionState.FATAL_ERROR),
        ],
    )
    def test_the_state_follows(self, error: Exception, after: TransactionState) -> None:
        status = in_state(TransactionState.IN_TRANSACTION)
        raised = status.handle_error(error, Scope.PRODUCE_TXN)  # type: ignore[arg-type]
        assert status.state is after
        assert status.current.error is raised
        with pytest.raises(type(raised)):
            status.require_state(TransactionState.IN_TRANSACTION, call="send()")

    def test_the_most_severe_error_is_kept(self) -> None:
        status = in_state(TransactionState.IN_TRANSACTION)
        errors = [
            status.handle_error(error, Scope.PRODUCE_TXN)
            for error in (
                NotLeaderOrFollowerError(),
                TopicAuthorizationError("first"),
                TopicAuthorizationError("second"),
                NotLeaderOrFollowerError(),
            )
        ]
        assert status.current.error is errors[1]
        fatal = status.handle_error(InvalidProducerEpochError(), Scope.PRODUCE_TXN)
        assert status.current.error is fatal
        assert status.fatal is fatal

    def test_a_transaction_that_took_too_long_says_so(self) -> None:
        status = in_state(TransactionState.READY)
        status.begin_transaction(2, 1.0)
        raised = status.handle_error(InvalidProducerEpochError(), Scope.PRODUCE_TXN)
        assert "open for 89.0 s, longer than transaction_timeout_ms (60000)" in str(raised)

    def test_a_repeated_error_is_a_copy_with_its_cause(self) -> None:
        error = as_transaction_error(NotLeaderOrFollowerError("why"), Scope.PRODUCE_TXN)
        copied = repeated(error)
        assert copied is not error
        assert (type(copied), str(copied)) == (type(error), str(error))
        assert copied.__cause__ is error.__cause__
        assert copied.__traceback__ is None


def test_a_transaction_has_no_outcome_while_it_is_open() -> None:
    status = in_state(TransactionState.READY)
    current = status.begin_transaction(2, 1.0)
    assert current.outcome is None
    assert current.is_open
    status.handle_event(TransactionEvent.COMMIT)
    status.end_transaction(TransactionOutcome.COMMITTED, TransactionEvent.COMMITTED)
    assert current.outcome is TransactionOutcome.COMMITTED
    assert not current.is_open
