"""The states of a transactional producer, as a table. Sans-IO (KIP-98, KIP-360, KIP-890, KIP-1050).

A transactional producer is in one of eleven states, of which these are the usual ones:

    UNINITIALIZED ──▶ INITIALIZING ──▶ READY ──begin──▶ IN_TRANSACTION ──commit──▶ COMMITTING
         ▲                 │             ▲                  │      │                 │    │
         └──── refused ────┘             │                  │      └───error────┐    │    │
                                         ├──── aborted ── ABORTING ◀──abort──┐  ▼    ▼    │
                                         │                                   ABORTABLE_ERROR
                                         └──────────────── committed ─────────────────────┘

- UNINITIALIZED: the producer has no producer id. InitProducerId was not sent, or was refused.
- INITIALIZING: InitProducerId was sent. It fences older producers with the same transactional id,
  and the coordinator ends their open transaction. The response has the producer id and the epoch.
- READY: no transaction is open. Nothing can be sent.
- IN_TRANSACTION: records and offsets belong to the open transaction.
- COMMITTING: the records are flushed, then EndTxn is sent. Records are still sent until then, but
  no new ones are accepted. If the commit is given up before EndTxn is sent, because its caller was
  cancelled and the time of its shield is up, it is aborted. After that, the commit goes on in the
  background, and its outcome is unknown until an abort, a begin, or a restart finds it out.
- ABORTING: records that were not sent are dropped, those in flight are awaited, then EndTxn is
  sent. An abort that is not answered in time continues in the background, in this state.
- ABORTABLE_ERROR: the transaction cannot be committed any more. Only an abort or a restart leads
  out of this state. A commit with an unknown outcome leads here, too: the abort finds it out.
- DETACHING: as COMMITTING, but no EndTxn follows: another process will end the transaction. A
  cancellation returns to IN_TRANSACTION.
- DETACHED: all records of the transaction are written, and its handle was returned. The producer
  can only be closed, which leaves the transaction open, or restarted, which aborts it.
- FATAL_ERROR: another producer has replaced this one at the coordinator, or the state of the
  transaction stays unknown. Only a restart leads out of this state.

An error of a request or of a record is an event: `policy.classify` decides which one, so that there
is no list of errors here. Errors that concern the configuration (REFUSED) end the transaction like
abortable errors: after an abort, the producer is usable.

A restart is allowed in every state but INITIALIZING, and leads to RESTARTING in its first step. It
fails the records without an outcome, finds out the outcome of a commit, and sends InitProducerId,
which begins a new epoch. Requests of the old epoch are refused from then on. During a restart,
another restart waits for the end of this one, and all other calls are refused.

A begin needs a new producer id or a new epoch if the client has moved to another cluster, or if the
cluster was upgraded. It is INITIALIZING then, and READY again if it gets none.

`TABLE` has the transitions. A pair of state and event without a row is a bug: `TransitionError`
names both and fails the producer, because continuing could lose or repeat a transaction. Calls of
the application are checked before that: `CALLS` has the calls that each state allows, and any other
call raises IllegalStateError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aiokclient.policy import Decision


class TransactionState(Enum):
    """A state of a transactional producer. The values are the names in error messages."""

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function, which is slower.

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    DETACHING = "being detached from its transaction"
    DETACHED = "detached from its transaction"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "unusable after a fatal error"
    RESTARTING = "restarting"


class TransactionEvent(Enum):
    """An event that changes the state of a transactional producer."""

    __hash__ = object.__hash__

    INITIALIZE = "initialize"
    """A start begins, or a begin that needs a new identity: InitProducerId is sent."""
    RESTART = "restart"
    """A restart begins."""
    INITIALIZED = "initialized"
    """The coordinator returned a producer id and an epoch."""
    NOT_INITIALIZED = "not initialized"
    """InitProducerId failed, or the start or restart was cancelled."""
    NOT_RENEWED = "not renewed"
    """A begin got no new identity, and keeps the one that it has."""
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    DETACH = "detach"
    DETACHED = "detached"
    """All records have their outcome, and another process may end the transaction."""
    NOT_DETACHED = "not detached"
    """`detach()` was cancelled, or the producer is being closed during it."""
    COMMITTED = "committed"
    """The coordinator has the commit, or there was nothing to commit."""
    ABORTED = "aborted"
    """The coordinator has the abort, or there was nothing to abort."""
    FAILED_ABORTABLE = "failed, abortable"
    """A record or a request failed, so that the transaction must be aborted."""
    FAILED_REFUSED = "failed, refused"
    """A record or a request failed because of the configuration or of a missing permission."""
    FAILED_FATAL = "failed, fatal"
    """A record or a request failed in a way that makes the producer unusable."""
    ABORT_REFUSED = "abort refused"
    """The coordinator refused the abort itself, because of a missing permission for example."""


_S, _E = TransactionState, TransactionEvent

TABLE: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.INITIALIZED): _S.READY,
    (_S.INITIALIZING, _E.NOT_INITIALIZED): _S.UNINITIALIZED,
    # The steps of one transaction.
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.COMMITTING, _E.COMMITTED): _S.READY,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.ABORTABLE_ERROR, _E.ABORT): _S.ABORTING,
    # The commit was given up before EndTxn was sent.
    (_S.COMMITTING, _E.ABORT): _S.ABORTING,
    (_S.ABORTING, _E.ABORTED): _S.READY,
    # The abort found that the commit before it was applied.
    (_S.ABORTING, _E.COMMITTED): _S.READY,
    # The transaction is left to another process.
    (_S.IN_TRANSACTION, _E.DETACH): _S.DETACHING,
    (_S.DETACHING, _E.DETACHED): _S.DETACHED,
    (_S.DETACHING, _E.NOT_DETACHED): _S.IN_TRANSACTION,
    # Errors of the open transaction.
    (_S.IN_TRANSACTION, _E.FAILED_ABORTABLE): _S.ABORTABLE_ERROR,
    (_S.IN_TRANSACTION, _E.FAILED_REFUSED): _S.ABORTABLE_ERROR,
    (_S.IN_TRANSACTION, _E.FAILED_FATAL): _S.FATAL_ERROR,
    (_S.COMMITTING, _E.FAILED_ABORTABLE): _S.ABORTABLE_ERROR,
    (_S.COMMITTING, _E.FAILED_REFUSED): _S.ABORTABLE_ERROR,
    (_S.COMMITTING, _E.FAILED_FATAL): _S.FATAL_ERROR,
    (_S.DETACHING, _E.FAILED_ABORTABLE): _S.ABORTABLE_ERROR,
    (_S.DETACHING, _E.FAILED_REFUSED): _S.ABORTABLE_ERROR,
    (_S.DETACHING, _E.FAILED_FATAL): _S.FATAL_ERROR,
    (_S.ABORTABLE_ERROR, _E.FAILED_ABORTABLE): _S.ABORTABLE_ERROR,
    (_S.ABORTABLE_ERROR, _E.FAILED_REFUSED): _S.ABORTABLE_ERROR,
    (_S.ABORTABLE_ERROR, _E.FAILED_FATAL): _S.FATAL_ERROR,
    # An abort drops records, and others may fail during it.
    (_S.ABORTING, _E.FAILED_ABORTABLE): _S.ABORTING,
    (_S.ABORTING, _E.FAILED_REFUSED): _S.ABORTING,
    (_S.ABORTING, _E.FAILED_FATAL): _S.FATAL_ERROR,
    # The abort may be tried again.
    (_S.ABORTING, _E.ABORT_REFUSED): _S.ABORTABLE_ERROR,
    # Records fail because the producer has failed, or because a restart drops them.
    (_S.FATAL_ERROR, _E.FAILED_ABORTABLE): _S.FATAL_ERROR,
    (_S.FATAL_ERROR, _E.FAILED_REFUSED): _S.FATAL_ERROR,
    (_S.FATAL_ERROR, _E.FAILED_FATAL): _S.FATAL_ERROR,
    # A commit that went on in the background has succeeded, which the abort finds out.
    (_S.READY, _E.FAILED_FATAL): _S.FATAL_ERROR,
    # A begin needs a new identity.
    (_S.READY, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.NOT_RENEWED): _S.READY,
    # A restart is allowed in every state, except during a start.
    (_S.UNINITIALIZED, _E.RESTART): _S.RESTARTING,
    (_S.READY, _E.RESTART): _S.RESTARTING,
    (_S.IN_TRANSACTION, _E.RESTART): _S.RESTARTING,
    (_S.COMMITTING, _E.RESTART): _S.RESTARTING,
    (_S.ABORTING, _E.RESTART): _S.RESTARTING,
    (_S.DETACHING, _E.RESTART): _S.RESTARTING,
    (_S.DETACHED, _E.RESTART): _S.RESTARTING,
    (_S.ABORTABLE_ERROR, _E.RESTART): _S.RESTARTING,
    (_S.FATAL_ERROR, _E.RESTART): _S.RESTARTING,
    (_S.RESTARTING, _E.INITIALIZED): _S.READY,
    (_S.RESTARTING, _E.NOT_INITIALIZED): _S.UNINITIALIZED,
    # The restart drops the records of the transaction, and its requests fail.
    (_S.RESTARTING, _E.FAILED_ABORTABLE): _S.RESTARTING,
    (_S.RESTARTING, _E.FAILED_REFUSED): _S.RESTARTING,
    (_S.RESTARTING, _E.FAILED_FATAL): _S.RESTARTING,
}
"""The next state for each state and event."""

EVENTS: Mapping[Decision, TransactionEvent] = {
    # A retriable error is reported only when its retries have run out of time.
    Decision.RETRY: _E.FAILED_ABORTABLE,
    Decision.REFRESH_AND_RETRY: _E.FAILED_ABORTABLE,
    Decision.ABORT: _E.FAILED_ABORTABLE,
    Decision.FAIL: _E.FAILED_REFUSED,
    Decision.RECOVER: _E.FAILED_FATAL,
}
"""The event of a final error, by the decision of the policy."""

SEVERITY: Mapping[TransactionEvent, int] = {
    _E.FAILED_ABORTABLE: 1,
    _E.FAILED_REFUSED: 2,
    _E.FAILED_FATAL: 3,
}
"""The order of the events of errors. A commit raises the most severe error."""

BROKEN = frozenset({_S.ABORTABLE_ERROR, _S.FATAL_ERROR})
"""The states in which calls raise the error that led there."""

CALLS: Mapping[TransactionState, tuple[str, ...]] = {
    _S.UNINITIALIZED: ("restart()", "close()"),
    _S.INITIALIZING: ("close()",),
    _S.READY: ("begin_transaction()", "transaction()", "restart()", "close()"),
    _S.IN_TRANSACTION: (
        "send()",
        "send_offsets_to_transaction()",
        "commit_transaction()",
        "abort_transaction()",
        "detach()",
        "restart()",
        "close()",
    ),
    _S.COMMITTING: ("restart()", "close()"),
    _S.DETACHING: ("restart()", "close()"),
    _S.DETACHED: ("restart()", "close()"),
    _S.ABORTING: ("abort_transaction()", "begin_transaction()", "restart()", "close()"),
    _S.ABORTABLE_ERROR: ("abort_transaction()", "restart()", "close()"),
    _S.FATAL_ERROR: ("restart()", "close()"),
    _S.RESTARTING: ("restart()", "close()"),
}
"""The calls that each state allows."""


class TransitionError(AssertionError):
    """A pair of state and event that is not in the table: a bug in this library."""

    def __init__(self, state: TransactionState, event: TransactionEvent) -> None:
        super().__init__(
            f"A transactional producer that is {state.value} cannot handle the event "
            f"{event.value!r}. Please report this as a bug."
        )
        self.state = state
        self.event = event
