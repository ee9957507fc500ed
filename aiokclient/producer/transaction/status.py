"""The state of a transactional producer, with its current transaction and its errors. Sans-IO.

Every part of the producer that needs to know whether it may send, or that has an error to report,
uses this object. `TransactionManager` reacts to its changes.
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import TYPE_CHECKING, Final

from aiokclient.errors import (
    IllegalStateError,
    KafkaError,
    TransactionAbortableError,
    TransactionFailedError,
)
from aiokclient.policy import (
    Decision,
    Scope,
    as_commit_error,
    as_transaction_error,
    classify,
)
from aiokclient.producer.transaction.states import (
    BROKEN,
    CALLS,
    EVENTS,
    SEVERITY,
    TABLE,
    TransactionEvent,
    TransactionState,
    TransitionError,
)
from aiokclient.types import TopicPartition, public_in
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.producer.transaction.manager import TransactionManager


@public_in("aiokclient")
class TransactionOutcome(Enum):
    """The outcome of a transaction that has ended, as far as the producer knows."""

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function, which is slower.

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The coordinator did not answer, or another producer has taken over. The transaction may have
    been committed or aborted."""


_OPEN = frozenset({None, TransactionOutcome.UNKNOWN})
OPEN = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING,
        TransactionState.DETACHING,
        TransactionState.ABORTING,
        TransactionState.ABORTABLE_ERROR,
    }
)
"""The states in which a coordinator may have a part of a transaction."""
FAILING = OPEN | {TransactionState.FATAL_ERROR}
"""The states in which the errors of a transaction's requests are events."""
SENDING = frozenset(
    {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING,
        TransactionState.DETACHING,
    }
)
"""The states in which batches are sent."""


class ProducerIdentity(NamedTuple):
    """The producer id and the epoch with which the coordinator knows the producer."""

    producer_id: int = -1
    epoch: int = -1


NO_IDENTITY: Final = ProducerIdentity()


class CurrentTransaction:
    """One transaction, from its begin to its outcome."""

    __slots__ = (
        "begun_at",
        "error",
        "identity",
        "is_added",
        "is_epoch_unsafe",
        "is_given_up",
        "is_lowered",
        "is_undecided",
        "is_written",
        "level",
        "must_abort",
        "outcome",
        "refused_part",
        "severity",
        "was_refused",
    )

    def __init__(
        self, level: int, begun: float | None, identity: ProducerIdentity = NO_IDENTITY
    ) -> None:
        self.identity = identity
        """The producer id and epoch of all requests of this transaction."""
        self.level = level
        """The level of `transaction.version` whose requests this transaction uses."""
        self.is_lowered = False
        """Whether the level was lowered, because the cluster was downgraded."""
        self.is_epoch_unsafe = False
        """Whether the next transaction must not have the same epoch: the level was lowered, or a
        request with offsets had no response, so that it may still arrive."""
        self.was_refused = False
        """Whether a request of a higher level was refused since the cluster was downgraded."""
        self.refused_part: TopicPartition | str | None = None
        """The partition or the group that the refused request would have added."""
        self.begun_at = begun
        """The monotonic time at which the transaction began; None before the first transaction."""
        self.outcome: TransactionOutcome | None = None
        self.error: KafkaError | None = None
        """The first of the transaction's most severe errors, as the application sees it."""
        self.severity = 0
        self.is_written = False
        """Whether the brokers may have a part of the transaction, so that it must be ended."""
        self.is_added = False
        """Whether the coordinator is known to have a part of the transaction (levels 0 and 1)."""
        self.is_undecided = False
        """Whether a commit was sent, or may be sent by another process, and was neither confirmed
        nor refused."""
        self.must_abort = False
        """Whether the commit was given up before it was sent."""
        self.is_given_up = False
        """Whether the caller of the commit has stopped waiting although EndTxn was sent."""

    @property
    def is_open(self) -> bool:
        """Whether the transaction has begun and has no final outcome yet."""
        return self.begun_at is not None and self.outcome in _OPEN

    def mark_response_lost(self) -> None:
        """Store that a request with offsets had no response."""
        self.is_epoch_unsafe = True

    def mark_written(self) -> None:
        """Store that a request of this transaction is about to be sent."""
        self.is_written = True

    def mark_added(self) -> None:
        """Store that the coordinator has added a partition or a group to the transaction."""
        self.is_added = True

    def mark_undecided(self) -> None:
        """Store that a commit is about to be sent, so that the transaction may be committed."""
        self.is_undecided = True

    def mark_detached(self) -> None:
        """Store that another process may commit the transaction, unless it is empty."""
        self.is_undecided = self.is_written

    def mark_decided(self) -> None:
        """Store that the coordinator confirmed or refused the commit."""
        self.is_undecided = False

    def require_abort(self) -> None:
        """Store that no commit may be sent any more, because it was given up before that."""
        self.must_abort = True

    def mark_given_up(self) -> None:
        """Record that the caller stopped waiting for a commit whose EndTxn was sent."""
        self.is_given_up = True
        self.store_outcome(TransactionOutcome.UNKNOWN)

    def store_error(self, error: KafkaError, severity: int) -> None:
        """Store an error, unless an earlier one is at least as severe."""
        if severity > self.severity:
            self.error, self.severity = error, severity

    def store_outcome(self, outcome: TransactionOutcome) -> None:
        """Store the outcome. An unknown outcome may be replaced later."""
        self.outcome = outcome

    def abandon_transaction(self) -> bool:
        """Store the outcome of a transaction that the producer cannot end any more.

        Return whether it was open.
        """
        if self.begun_at is None or self.outcome is not None:
            return False
        self.store_outcome(
            TransactionOutcome.UNKNOWN if self.is_undecided else TransactionOutcome.ABORTED
        )
        return True

    def lower_level(self, level: int) -> None:
        """Use the requests of a lower level, because the cluster was downgraded."""
        if level < self.level:
            self.level = level
            self.is_lowered = self.is_epoch_unsafe = True

    def mark_refused(self, part: TopicPartition | str | None) -> None:
        """Store that the downgraded cluster has refused a request of a higher level.

        `part` is the partition or the group that the request would have added.
        """
        self.was_refused, self.refused_part = True, self.refused_part or part


class TransactionStatus:
    """The state of a transactional producer."""

    def __init__(self, transactional_id: str, timeout_ms: int, clock: Clock) -> None:
        """`timeout_ms` is `transaction_timeout_ms`."""
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self.state = TransactionState.UNINITIALIZED
        self.identity = ProducerIdentity()
        self.current = CurrentTransaction(0, None)
        """The open transaction, or the last one."""
        self.fatal: KafkaError | None = None
        """The error that made the producer unusable, until a restart."""
        self.is_closed = False
        self.manager: TransactionManager | None = None
        """The owner, which reacts to each change of the state."""

    def mark_closed(self) -> bool:
        """Ignore errors from now on, because the producer is being closed.

        Return whether a transaction that is not detached is left open.
        """
        self.is_closed = True
        return self.state is not TransactionState.DETACHED and self.current.abandon_transaction()

    # -- sending

    @property
    def may_send(self) -> bool:
        """Whether batches of the open transaction may be sent."""
        return self.state in SENDING

    def adopt_identity(self, identity: ProducerIdentity) -> None:
        """Use this producer id and epoch from now on."""
        self.identity = identity

    # -- events

    def handle_event(self, event: TransactionEvent) -> None:
        """Change the state after an event. Raise `TransitionError` for a pair without a row."""
        old = self.state
        new = TABLE.get((old, event))
        if new is None:
            raise TransitionError(old, event)
        if new is not old:
            self.state = new
            if self.manager is not None:
                self.manager.on_state_change(old, new)

    def begin_transaction(self, level: int, now: float) -> CurrentTransaction:
        """Open a transaction."""
        self.current = CurrentTransaction(level, now, self.identity)
        self.handle_event(TransactionEvent.BEGIN)
        return self.current

    def end_transaction(self, outcome: TransactionOutcome, event: TransactionEvent) -> None:
        """Store the outcome of the current transaction, and change the state after `event`."""
        self.current.store_outcome(outcome)
        self.handle_event(event)

    def handle_error(self, error: KafkaError, scope: Scope) -> KafkaError:
        """Handle a final error of a record or of a request. Return the error to raise for it."""
        self._explain_timeout(error)
        raised = as_transaction_error(error, scope)
        noted = as_commit_error(raised)
        event = EVENTS[classify(error if noted is raised else noted, scope)]
        if self.is_closed:
            return raised
        self.current.store_error(noted, SEVERITY[event])
        if event is TransactionEvent.FAILED_FATAL and self.fatal is None:
            self.fatal = raised
        self.handle_event(event)
        return raised

    def handle_request_error(
        self, error: KafkaError, scope: Scope, transaction: CurrentTransaction
    ) -> KafkaError:
        """Handle a final error of a request of a transaction. Return the error to raise."""
        if self.current is not transaction or self.state not in FAILING:
            return as_transaction_error(error, scope)
        return self.handle_error(error, scope)

    def _explain_timeout(self, error: KafkaError) -> None:
        """Extend the message of a broker's fatal error if the transaction exceeded its timeout."""
        current = self.current
        if current.begun_at is None or current.outcome is not None or error.code is None:
            return
        took_s = self._clock.monotonic() - current.begun_at
        fatal = classify(error, Scope.TRANSACTION) is Decision.RECOVER
        if fatal and took_s * 1000 >= self._timeout_ms:
            error.message = (
                f"{error.message} The transaction was open for {took_s:.1f} s, longer than "
                f"transaction_timeout_ms ({self._timeout_ms}), so the coordinator has aborted it."
            ).strip()

    def clear_fatal_error(self) -> None:
        """Forget the fatal error, because the producer has restarted."""
        self.fatal = None

    def require_restart(self) -> None:
        """Store that a restart failed or was cancelled, so that another one is needed."""
        self.fatal = TransactionFailedError(
            "The last restart() was not completed. Call restart() again."
        )

    # -- calls of the application

    def require_state(self, *states: TransactionState, call: str) -> None:
        """Raise an error unless the producer is in one of the states that allow the call.

        Raises the error that made the producer or its transaction unusable, if there is one, and
        IllegalStateError otherwise.
        """
        if self.state in states:
            return
        error = self.failure
        if error is not None:
            raise repeated(error)
        raise self.make_misuse_error(call)

    @property
    def failure(self) -> KafkaError | None:
        """The error because of which the transaction cannot be continued, or None."""
        if self.state is TransactionState.RESTARTING:
            return None
        return self.fatal or (self.current.error if self.state in BROKEN else None)

    def make_misuse_error(self, call: str) -> IllegalStateError:
        """Return the error for a call that the state does not allow."""
        allowed = ", ".join(CALLS[self.state])
        return IllegalStateError(
            f"{call} is not allowed while the producer is {self.state.value}. Allowed calls: "
            f"{allowed}."
        )


def abortable(text: str, cause: KafkaError | None = None) -> TransactionAbortableError:
    """Return an abortable error that no broker sent. `cause` is what the brokers said last."""
    error = TransactionAbortableError(
        text if cause is None else f"{text} The last error: {cause.brief}"
    )
    error.code = error.name = None
    error.__cause__ = cause
    return error


def repeated(error: KafkaError) -> KafkaError:
    """Return a copy of an error, because an exception collects the tracebacks of each raise."""
    copied = copy.copy(error)
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied.with_traceback(None)
