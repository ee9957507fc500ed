"""What to do about an error: `decide(error, scope, ...)`. Pure; nothing else decides it.

The answer comes from the category of the error's class (KIP-1050): what is retriable is sent
again until the time is up, what is abortable ends the transaction, a configuration error fails
the call alone, and everything else, an uncategorised or unknown code included, means that the
state behind it is not to be trusted any more. Where the same code means something else in some
place, `PLACES` says so, one row for each. A row wins over the category.

A state machine may know a code as an event of its own (a sequence number out of order, an
offset out of range, a member id to join with). It looks there first and asks here for the rest.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from aiokclient.errors import (
    AbortableError,
    ApiTimeoutError,
    BufferExhaustedError,
    ConfigError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidCommitOffsetSizeError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    InvalidRecordStateError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KafkaError,
    NotControllerError,
    OffsetMetadataTooLargeError,
    OffsetNotAvailableError,
    OperationNotAttemptedError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    ProtocolError,
    RebalanceInProgressError,
    RebootstrapRequiredError,
    RecordTooLargeError,
    RefreshRetriableError,
    RequestTimedOutError,
    RetriableError,
    SerializationError,
    StaleMemberEpochError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedCompressionTypeError,
    UsageError,
)

__all__ = ["DEFAULT_BACKOFF", "Action", "Backoff", "Decision", "Scope", "decide"]


class Decision(Enum):
    """What the caller does next."""

    RETRY = "retry"
    """The same again, after the delay."""
    REFRESH_AND_RETRY = "refresh"
    """Look the cluster or the coordinator up anew; the same again, after the delay."""
    ABORT = "abort"
    """Fail this. The transaction has to be aborted, after which its producer goes on."""
    RECOVER = "recover"
    """Fail this, and do not go on with the state behind it.

    An idempotent producer takes a new epoch, a group member joins anew; what cannot start anew by
    itself, as a transactional producer, fails. An admin call has no such state and just fails.
    """
    FAIL = "fail"
    """Fail this call or these records. The client goes on with everything else."""


RETRY, REFRESH, ABORT, RECOVER, FAIL = Decision
AGAIN = frozenset({RETRY, REFRESH})


class Scope(Enum):
    """What was being done: one for each family of APIs."""

    METADATA = "metadata"
    API_VERSIONS = "api_versions"
    CONNECTION = "connection"
    """Resolving, connecting and the handshake of TLS."""
    PRODUCE = "produce"
    PRODUCE_TXN = "produce_txn"
    """Produce within a transaction."""
    INIT_PRODUCER_ID = "init_producer_id"
    FETCH = "fetch"
    LIST_OFFSETS = "list_offsets"
    OFFSET_FOR_LEADER_EPOCH = "offset_for_leader_epoch"
    FIND_COORDINATOR = "find_coordinator"
    GROUP = "group"
    """Joining, syncing, heartbeats and leaving, in the classic protocol and in KIP-848's."""
    OFFSET_COMMIT = "offset_commit"
    OFFSET_FETCH = "offset_fetch"
    TRANSACTION = "transaction"
    """Adding partitions or offsets to a transaction, and ending it."""
    TXN_OFFSET_COMMIT = "txn_offset_commit"
    ADMIN = "admin"
    SHARE = "share"
    """Fetching and acknowledging as a share consumer (KIP-932)."""
    TELEMETRY = "telemetry"
    SASL = "sasl"
    CLIENT = "client"
    """A request that the program made itself."""


IN_TRANSACTION = frozenset({Scope.PRODUCE_TXN, Scope.TRANSACTION, Scope.TXN_OFFSET_COMMIT})
SETTING_UP = frozenset({Scope.CONNECTION, Scope.API_VERSIONS, Scope.SASL})
ON_DEMAND = frozenset({Scope.ADMIN, Scope.CLIENT})

PLACES: Mapping[Scope, Mapping[type[KafkaError], Decision]] = {
    Scope.METADATA: {
        # A broker that failed over this is not the only one that can answer.
        UnknownServerError: REFRESH,
        RebootstrapRequiredError: REFRESH,
    },
    Scope.API_VERSIONS: {RebootstrapRequiredError: REFRESH},
    Scope.PRODUCE: {
        # These are about the records, not about the producer's state.
        RecordTooLargeError: FAIL,
        InvalidTimestampError: FAIL,
        PolicyViolationError: FAIL,
        UnsupportedCompressionTypeError: FAIL,
        # The records are there already, as far as the broker can tell: nothing to restore.
        DuplicateSequenceError: FAIL,
    },
    Scope.PRODUCE_TXN: {
        RecordTooLargeError: ABORT,
        InvalidTimestampError: ABORT,
        PolicyViolationError: ABORT,
        UnsupportedCompressionTypeError: ABORT,
        DuplicateSequenceError: ABORT,
        # After the abort the producer takes a new epoch, which mends its sequences (KIP-360).
        OutOfOrderSequenceError: ABORT,
        UnknownProducerIdError: ABORT,
        # The one code that KIP-1050 treats differently here and in transaction calls.
        InvalidTxnStateError: ABORT,
    },
    Scope.TRANSACTION: {
        # Another partition of the same request was refused.
        OperationNotAttemptedError: ABORT,
        UnknownProducerIdError: ABORT,
    },
    Scope.TXN_OFFSET_COMMIT: {RequestTimedOutError: REFRESH},
    Scope.FETCH: {
        UnknownServerError: RETRY,
        OffsetNotAvailableError: REFRESH,
    },
    Scope.LIST_OFFSETS: {UnknownServerError: RETRY, OffsetNotAvailableError: REFRESH},
    Scope.OFFSET_FOR_LEADER_EPOCH: {UnknownServerError: RETRY, OffsetNotAvailableError: REFRESH},
    Scope.GROUP: {
        # Joining anew would meet the same again.
        InconsistentGroupProtocolError: FAIL,
        InvalidGroupIdError: FAIL,
        InvalidSessionTimeoutError: FAIL,
        InvalidRequestError: FAIL,
        GroupMaxSizeReachedError: FAIL,
        UnreleasedInstanceIdError: FAIL,
        UnsupportedAssignorError: FAIL,
        InvalidRegularExpressionError: FAIL,
    },
    Scope.FIND_COORDINATOR: {InvalidGroupIdError: FAIL},
    Scope.OFFSET_COMMIT: {
        # The coordinator itself ran out of time: another may have taken over.
        RequestTimedOutError: REFRESH,
        OffsetMetadataTooLargeError: FAIL,
        InvalidCommitOffsetSizeError: FAIL,
        InvalidGroupIdError: FAIL,
        # Assignments are on their way; the commit is sent again under the new generation.
        RebalanceInProgressError: RETRY,
        # Heartbeats bring the new epoch; the commit is sent again with it.
        StaleMemberEpochError: RETRY,
    },
    Scope.OFFSET_FETCH: {InvalidGroupIdError: FAIL, StaleMemberEpochError: RETRY},
    Scope.ADMIN: {
        # Answers to what was asked, not disturbances on the way.
        UnknownTopicOrPartitionError: FAIL,
        UnknownTopicIdError: FAIL,
        PreferredLeaderNotAvailableError: FAIL,
        EligibleLeadersNotAvailableError: FAIL,
        ElectionNotNeededError: FAIL,
        NotControllerError: REFRESH,
    },
    Scope.CLIENT: {NotControllerError: REFRESH},
    Scope.SHARE: {
        UnknownServerError: RETRY,
        OffsetNotAvailableError: REFRESH,
        # The record is delivered again, to this consumer or another.
        InvalidRecordStateError: FAIL,
    },
    Scope.TELEMETRY: {
        InvalidRequestError: FAIL,
        TelemetryTooLargeError: FAIL,
        # The next push comes at its interval; sooner would only add load.
        ThrottlingQuotaExceededError: FAIL,
    },
}
"""Where a code asks for something else than its category says."""

_BY_CODE = {
    (scope, error.code): decision
    for scope, row in PLACES.items()
    for error, decision in row.items()
}


class Action(NamedTuple):
    """A decision, and the seconds to wait before a retry (0 for the others)."""

    decision: Decision
    delay_s: float

    @property
    def again(self) -> bool:
        """It is to be tried again, after the delay."""
        return self.decision in AGAIN


class Backoff(NamedTuple):
    """Exponential backoff with jitter (KIP-580), in seconds."""

    initial_s: float = 0.1
    maximum_s: float = 1.0
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempt: int, rng: random.Random) -> float:
        """The wait after failure number `attempt`, counted from 0."""
        # The exponent is bounded so that an endless retry does not overflow the float.
        term = min(self.initial_s * self.multiplier ** min(attempt, 64), self.maximum_s)
        return min(term * rng.uniform(1 - self.jitter, 1 + self.jitter), self.maximum_s)


DEFAULT_BACKOFF = Backoff()


def decide(
    error: BaseException,
    scope: Scope,
    attempt: int,
    remaining_s: float,
    rng: random.Random,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Action:
    """What to do about `error`, after `attempt` failures before it.

    `remaining_s` is the time that the whole operation still has. When it is over, a retriable
    error fails the operation, and within a transaction that has to be aborted then: what was
    asked for may have happened or not.
    """
    decision = _of_place(error, scope)
    if decision not in AGAIN:
        return Action(decision, 0.0)
    if remaining_s <= 0:
        return Action(ABORT if scope in IN_TRANSACTION else FAIL, 0.0)
    return Action(decision, min(backoff.delay(attempt, rng), remaining_s))


def _of_place(error: BaseException, scope: Scope) -> Decision:
    if not isinstance(error, KafkaError):
        return _of_foreign(error)
    if error.code is not None:
        return _BY_CODE.get((scope, error.code)) or _of_category(error)
    return _of_local(error, scope)


def _of_category(error: KafkaError) -> Decision:
    if isinstance(error, RefreshRetriableError):
        return REFRESH
    if isinstance(error, RetriableError):
        return RETRY
    if isinstance(error, AbortableError):
        return ABORT
    if isinstance(error, InvalidConfigurationError):
        return FAIL
    return RECOVER


def _of_local(error: KafkaError, scope: Scope) -> Decision:
    """Errors of this library. A request that timed out took its connection with it."""
    if isinstance(error, ProtocolError):
        return FAIL if scope in SETTING_UP or scope in ON_DEMAND else REFRESH
    if isinstance(error, ApiTimeoutError):
        return REFRESH
    if isinstance(error, DeliveryTimeoutError):
        return ABORT if scope in IN_TRANSACTION else FAIL
    if isinstance(error, BufferExhaustedError | ConfigError | SerializationError | UsageError):
        return FAIL
    return _of_category(error)


def _of_foreign(error: BaseException) -> Decision:
    """Errors that are not this library's. A cancellation is never retried."""
    if isinstance(error, ssl.SSLCertVerificationError) or not isinstance(error, Exception):
        return FAIL
    # TimeoutError and the failures of name resolution are OSErrors, too.
    return REFRESH if isinstance(error, OSError | EOFError) else RECOVER
