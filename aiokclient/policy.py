"""The policy: the only module that decides what to do about an error. Sans-IO.

- `classify(error, scope)` returns the decision for an error while time is left.
- `Attempts` counts the attempts of one operation, and has its deadline and its backoff. Every
  operation that may be repeated uses one.
- The function `decide(error, scope, attempt, remaining_s, rng)` returns the decision and the delay
  without an `Attempts`. Batches use it: each batch counts its own attempts, because an `Attempts`
  for each of very many batches would cost too much.

The decision follows from the category of the error's class (KIP-1050). A retriable error is retried
until the deadline. An abortable error ends the transaction. A configuration error fails only the
call. Any other error, including one with an uncategorized or unknown code, means that the state
that it concerns can no longer be trusted. If a scope treats a code differently, `OVERRIDES` has a
row for it, which takes precedence over the category.

For a state machine, some error codes are events (an out-of-order sequence, an offset out of range,
a member id with which to join). The state machine looks up a code in its own table first, and calls
this module only for other codes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from aiokclient.clock import Clock
from aiokclient.errors import (
    AbortableError,
    ApiTimeoutError,
    ApplicationRecoverableError,
    AuthenticationError,
    AuthorizationError,
    BufferExhaustedError,
    ConcurrentTransactionsError,
    ConfigError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidCommitOffsetSizeError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    InvalidTimestampError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    NotControllerError,
    NotLeaderOrFollowerError,
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
    ReplicaNotAvailableError,
    RequestTimedOutError,
    ResponseTooLargeError,
    RetriableError,
    SaslAuthenticationError,
    SerializationError,
    ShareSessionNotFoundError,
    StaleMemberEpochError,
    TokenRefusedError,
    TransactionAbortableError,
    TransactionFailedError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedCompressionTypeError,
    UsageError,
)
from aiokclient.errors.local import EncodeError
from aiokclient.types.named_tuple import NamedTuple
from aiokclient.types.tls_objects import is_certificate_error

if TYPE_CHECKING:
    from aiokclient.config.client import ClientConfig


class Decision(Enum):
    """The decision about an error: what the caller must do next."""

    RETRY = "retry"
    """Repeat the attempt after the delay."""
    REFRESH_AND_RETRY = "refresh"
    """Refresh the metadata or look up the coordinator again, and repeat the attempt after the
    delay."""
    ABORT = "abort"
    """Fail this call. The transaction must be aborted; its producer stays usable."""
    RECOVER = "recover"
    """Fail this call, and discard the state that it was based on.

    An idempotent producer begins a new epoch, and a group member rejoins. A client that cannot
    start over on its own, such as a transactional producer, fails. An admin call has no such state:
    only the call fails.
    """
    FAIL = "fail"
    """Fail this call or these records. Everything else in the client continues."""

    @property
    def again(self) -> bool:
        """Whether to try again."""
        return self in _AGAIN


RETRY, REFRESH, ABORT, RECOVER, FAIL = Decision
_AGAIN = frozenset({RETRY, REFRESH})


class Scope(Enum):
    """The operation in which an error occurred. There is one scope for each family of APIs."""

    METADATA = "metadata"
    CONNECTION = "connection"
    """Setting up a connection: name resolution, TLS, the negotiation of versions, and the login."""
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
    SHARE = "share"
    """Settling records of a share group, by ShareAcknowledge or with a ShareFetch (KIP-932).

    RECOVER means that the locks of the records are lost. FAIL means that the broker refuses the
    request, and leaves the locks as they are.
    """
    TRANSACTION = "transaction"
    """Adding partitions or offsets to a transaction, and ending it."""
    TXN_OFFSET_COMMIT = "txn_offset_commit"
    ADMIN = "admin"
    CLIENT = "client"
    """A request of `Client.request`, or of the library for APIs that have no scope of their own."""


IN_TRANSACTION = frozenset({Scope.PRODUCE_TXN, Scope.TRANSACTION, Scope.TXN_OFFSET_COMMIT})
LOGIN_APIS = frozenset({"SaslHandshake", "SaslAuthenticate"})
ON_DEMAND = frozenset({Scope.ADMIN, Scope.CLIENT})

OVERRIDES: Mapping[Scope, Mapping[type[KafkaError], Decision]] = {
    Scope.METADATA: {
        # Another broker may be able to answer.
        UnknownServerError: REFRESH,
        RebootstrapRequiredError: REFRESH,
    },
    # The same bootstrap server or another one may know the brokers later.
    Scope.CONNECTION: {RebootstrapRequiredError: RETRY},
    Scope.PRODUCE: {
        # These errors concern the records, not the state of the producer.
        RecordTooLargeError: FAIL,
        InvalidTimestampError: FAIL,
        PolicyViolationError: FAIL,
        UnsupportedCompressionTypeError: FAIL,
        # The broker reports that it already has the records, so there is no state to restore.
        DuplicateSequenceError: FAIL,
    },
    Scope.PRODUCE_TXN: {
        RecordTooLargeError: ABORT,
        InvalidTimestampError: ABORT,
        PolicyViolationError: ABORT,
        UnsupportedCompressionTypeError: ABORT,
        DuplicateSequenceError: ABORT,
        # After the abort, the producer begins a new epoch, which resets its sequences (KIP-360).
        OutOfOrderSequenceError: ABORT,
        UnknownProducerIdError: ABORT,
        # An abort corrects this error of a Produce request, but not of other requests (KIP-1050).
        InvalidTxnStateError: ABORT,
    },
    # The transaction timeout exceeds the brokers' transaction.max.timeout.ms.
    Scope.INIT_PRODUCER_ID: {InvalidTxnTimeoutError: FAIL},
    Scope.TRANSACTION: {
        # Another partition of the same request was refused, so this one was not attempted.
        OperationNotAttemptedError: RETRY,
        UnknownProducerIdError: ABORT,
    },
    # The coordinator of the group itself timed out. Another broker may be the coordinator now.
    Scope.TXN_OFFSET_COMMIT: {RequestTimedOutError: REFRESH},
    Scope.FETCH: {
        UnknownServerError: RETRY,
        OffsetNotAvailableError: REFRESH,
        UnknownLeaderEpochError: REFRESH,
    },
    Scope.LIST_OFFSETS: {
        UnknownServerError: RETRY,
        OffsetNotAvailableError: REFRESH,
        # The client's epoch may be one that no broker will reach; see `cluster.topic_ids`.
        UnknownLeaderEpochError: REFRESH,
    },
    Scope.OFFSET_FOR_LEADER_EPOCH: {
        UnknownServerError: RETRY,
        OffsetNotAvailableError: REFRESH,
        UnknownLeaderEpochError: REFRESH,
    },
    Scope.GROUP: {
        # A member that rejoined would get the same error again.
        InconsistentGroupProtocolError: FAIL,
        InvalidGroupIdError: FAIL,
        # It is outside of the brokers' group.min and group.max.session.timeout.ms.
        InvalidSessionTimeoutError: FAIL,
        InvalidRequestError: FAIL,
        # The group has group.max.size members (KIP-389).
        GroupMaxSizeReachedError: FAIL,
        # Another running member has the same group_instance_id (KIP-848).
        UnreleasedInstanceIdError: FAIL,
        # The brokers' group.consumer.assignors lacks the strategy (KIP-848).
        UnsupportedAssignorError: FAIL,
        # The brokers match patterns by RE2, which lacks some of Python's syntax (KIP-848).
        InvalidRegularExpressionError: FAIL,
    },
    # Brokers refuse an empty group id.
    Scope.FIND_COORDINATOR: {InvalidGroupIdError: FAIL},
    Scope.OFFSET_COMMIT: {
        # The coordinator itself timed out. Another broker may be the coordinator now.
        RequestTimedOutError: REFRESH,
        OffsetMetadataTooLargeError: FAIL,
        InvalidCommitOffsetSizeError: FAIL,
        InvalidGroupIdError: FAIL,
        # A rebalance is in progress. The commit is sent again in the new generation.
        RebalanceInProgressError: RETRY,
        # A heartbeat response will have the new epoch. The commit is sent again with it.
        StaleMemberEpochError: RETRY,
    },
    Scope.OFFSET_FETCH: {InvalidGroupIdError: FAIL, StaleMemberEpochError: RETRY},
    Scope.SHARE: {
        # The partition, its leader, or the session has changed, which ends the locks. The new
        # leader may deliver the records to another member.
        NotLeaderOrFollowerError: RECOVER,
        FencedLeaderEpochError: RECOVER,
        UnknownTopicOrPartitionError: RECOVER,
        UnknownTopicIdError: RECOVER,
        ShareSessionNotFoundError: RECOVER,
        # Another request may have been the reason, so that the locks are as they were.
        UnknownServerError: FAIL,
        InvalidRequestError: FAIL,
    },
    Scope.ADMIN: {
        # These codes are the answer to the request, so repeating it would not help.
        UnknownTopicOrPartitionError: FAIL,
        UnknownTopicIdError: FAIL,
        ReplicaNotAvailableError: FAIL,
        PreferredLeaderNotAvailableError: FAIL,
        EligibleLeadersNotAvailableError: FAIL,
        ElectionNotNeededError: FAIL,
        NotControllerError: REFRESH,
    },
    Scope.CLIENT: {NotControllerError: REFRESH},
}
"""For each scope, the errors whose decision differs from that of their category."""

SHORT_DELAYS_S: Mapping[tuple[Scope, int | None], float] = {
    # The end of a transaction is acknowledged before all its markers are written. Until they are,
    # the coordinator refuses the next transaction. A wait for `retry_backoff_ms` would delay that
    # transaction needlessly.
    (Scope.PRODUCE_TXN, ConcurrentTransactionsError.code): 0.002,
    (Scope.TRANSACTION, ConcurrentTransactionsError.code): 0.020,
    (Scope.TXN_OFFSET_COMMIT, ConcurrentTransactionsError.code): 0.002,
}
"""The first delays, in seconds, of errors that usually last for less than `retry_backoff_ms`.

A key is a scope with the code of an error, or with None for all errors of the scope that have no
row of their own. Every delay after an error of a scope follows this table; see
`Backoff.compute_delay_after_s`.
"""

ABSENT_PARTITION_S = 1.0
"""Seconds between two searches for partitions that the metadata no longer lists."""

REFUSED_TOPIC_S = 0.5
"""Seconds between two searches for records of a topic whose metadata was refused."""

_BY_CODE = {
    (scope, error.code): decision
    for scope, row in OVERRIDES.items()
    for error, decision in row.items()
}


class Action(NamedTuple):
    """A decision, and the seconds to wait before a retry (0 if there is no retry)."""

    decision: Decision
    delay_s: float

    @property
    def again(self) -> bool:
        """Whether to try again after the delay."""
        return self.decision.again


class Backoff(NamedTuple):
    """Exponential backoff with jitter (KIP-580), in seconds."""

    initial_s: float = 0.1
    maximum_s: float = 1.0
    multiplier: float = 2.0
    jitter: float = 0.2

    @classmethod
    def of(cls, config: ClientConfig) -> Backoff:
        """Return the backoff of retried requests."""
        return cls(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)

    @classmethod
    def of_reconnects(cls, config: ClientConfig) -> Backoff:
        """Return the backoff of connecting to a broker again."""
        return cls(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)

    @classmethod
    def of_setup_timeouts(cls, config: ClientConfig) -> Backoff:
        """Return the timeouts of consecutive attempts to set up a connection (KIP-601)."""
        return cls(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
        )

    @classmethod
    def of_token_requests(cls, config: ClientConfig) -> Backoff:
        """Return the backoff of requests for a token."""
        return cls(
            config.sasl_login_retry_backoff_ms / 1000,
            config.sasl_login_retry_backoff_max_ms / 1000,
        )

    def compute_delay_s(self, attempt: int, rng: random.Random) -> float:
        """Return the seconds to wait after failure number `attempt`, counted from 0."""
        # The exponent is bounded so that an endless retry does not overflow the float.
        term = min(self.initial_s * self.multiplier ** min(attempt, 64), self.maximum_s)
        return min(term * rng.uniform(1 - self.jitter, 1 + self.jitter), self.maximum_s)

    def compute_delay_after_s(
        self, error: BaseException | None, scope: Scope, attempt: int, rng: random.Random
    ) -> float:
        """Return the seconds to wait after this error, which is failure number `attempt`.

        `error` is None for a response that has no error and is not sufficient yet.
        """
        code = getattr(error, "code", None)
        initial_s = SHORT_DELAYS_S.get((scope, code))
        if initial_s is None and code is not None:
            initial_s = SHORT_DELAYS_S.get((scope, None))
        if initial_s is None or initial_s >= self.initial_s:
            return self.compute_delay_s(attempt, rng)
        return self._replace(initial_s=initial_s).compute_delay_s(attempt, rng)


DEFAULT_BACKOFF = Backoff()


class Attempts:
    """The attempts of one operation: their number, the delay between them, and the time left.

    A repeated operation, such as keeping a connection open, calls `start_over` after each success
    and continues to use the object.
    """

    __slots__ = ("_clock", "attempt", "backoff", "deadline")

    def __init__(self, deadline: float, backoff: Backoff, clock: Clock) -> None:
        """`deadline` is a time on the monotonic clock, or `math.inf` for no deadline."""
        self.deadline = deadline
        self.backoff = backoff
        self.attempt = 0
        """Number of failed attempts since the start or the last success."""
        self._clock = clock

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return math.inf if self.deadline == math.inf else self.deadline - self._clock.monotonic()

    def decide(self, error: BaseException, scope: Scope) -> Action:
        """Return what to do about an error of the current attempt.

        For an attempt that has several errors, for example one per partition, call `decide` for
        each error, and then `next_attempt` once.
        """
        return decide(error, scope, self.attempt, self.remaining_s, self._clock.rng, self.backoff)

    def count_failure(self, error: BaseException, scope: Scope) -> Action:
        """Count the current attempt as failed, and return what to do about its error."""
        action = self.decide(error, scope)
        self.next_attempt()
        return action

    def take_pause_s(self) -> float:
        """Count the current attempt as failed, and return the backoff, whatever the error."""
        delay_s = self.backoff.compute_delay_s(self.attempt, self._clock.rng)
        self.next_attempt()
        return delay_s

    def take_pause_after_s(self, error: BaseException, scope: Scope) -> float:
        """Count the current attempt as failed, and return the backoff, whatever the decision."""
        delay_s = self.backoff.compute_delay_after_s(error, scope, self.attempt, self._clock.rng)
        self.next_attempt()
        return delay_s

    def next_attempt(self) -> None:
        """Count the current attempt as failed."""
        self.attempt += 1

    def start_over(self) -> None:
        """Start over with the shortest delay."""
        self.attempt = 0


def classify(error: BaseException, scope: Scope) -> Decision:
    """Return what to do about an error in a scope while time is left."""
    if not isinstance(error, KafkaError):
        return _of_foreign(error)
    if _ends_login(error):
        # A running client repeats its logins: the credentials may be valid again later.
        return REFRESH
    if error.code is not None:
        return _BY_CODE.get((scope, error.code)) or _of_category(error)
    return _of_local(error, scope)


def refuses_login(error: BaseException | None) -> bool:
    """Return whether a broker rejected the client's credentials or its SASL mechanism."""
    return isinstance(error, AuthenticationError)


def refuses_permission(error: BaseException | None) -> bool:
    """Return whether a broker refused a request because the user lacks a permission."""
    return isinstance(error, AuthorizationError)


def ends_start(error: KafkaError) -> bool:
    """Return whether an error of connecting cannot be corrected by waiting at a client's start.

    A rebootstrap asks the same question about each of its rounds.
    """
    return _ends_login(error) or not classify(error, Scope.CONNECTION).again


def refuses_token(error: KafkaError) -> bool:
    """Return whether a broker rejected the credentials of a login, so that a token is useless."""
    return isinstance(error, SaslAuthenticationError)


def _ends_login(error: KafkaError) -> bool:
    """Return whether an error is the outcome of a login, not of another request."""
    if isinstance(error, TokenRefusedError):
        return True
    return error.api in LOGIN_APIS and isinstance(error, AuthenticationError)


def decide(
    error: BaseException,
    scope: Scope,
    attempt: int,
    remaining_s: float,
    rng: random.Random,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Action:
    """Return what to do about `error`, after `attempt` earlier failures.

    `remaining_s` is the time left for the whole operation. Once it has passed, a retriable error
    fails the operation. Within a transaction it aborts the transaction, because it is unknown
    whether the operation took effect.
    """
    decision = classify(error, scope)
    if not decision.again:
        return Action(decision, 0.0)
    if remaining_s <= 0:
        return Action(ABORT if scope in IN_TRANSACTION else FAIL, 0.0)
    return Action(
        decision, min(backoff.compute_delay_after_s(error, scope, attempt, rng), remaining_s)
    )


def as_transaction_error(error: KafkaError, scope: Scope) -> KafkaError:
    """Return a final error of a transaction in one of the three categories that programs handle.

    These are AbortableError, InvalidConfigurationError, and ApplicationRecoverableError. An error
    that is already in the category of its decision, or that is a mistake in the program, is
    returned unchanged. Any other error becomes the cause of a new error, which is returned.
    """
    category, kind = _RAISED[classify(error, scope)]
    if isinstance(error, category | ConfigError | SerializationError | UsageError):
        return error
    return _caused_by(error, kind)


def as_commit_error(error: KafkaError) -> KafkaError:
    """Return what a commit raises because of a delivery that failed with this error.

    A commit raises no SerializationError, because it is not the call with the wrong argument.
    """
    if isinstance(error, SerializationError):
        return _caused_by(error, TransactionAbortableError)
    return error


def _caused_by(error: KafkaError, kind: type[KafkaError]) -> KafkaError:
    name = error.name or type(error).__name__
    cause: BaseException = error
    text = f"The cause is {name}: {error.what} {error.message}".strip()
    if isinstance(error, KafkaTimeoutError) and isinstance(last := error.__cause__, KafkaError):
        # The cause of a timeout is what the brokers said last.
        text, cause = f"{text} The last error: {last.brief}", last
    raised = kind(
        text,
        api=error.api,
        broker=error.broker,
        topic_partition=error.topic_partition,
        resource=error.resource,
    )
    raised.code = raised.name = None  # No broker has sent this error.
    raised.hint = raised.hint or error.hint
    raised.__cause__ = cause
    return raised


_RAISED: Mapping[Decision, tuple[type[KafkaError], type[KafkaError]]] = {
    # A retriable error is final because its time is up.
    RETRY: (AbortableError, TransactionAbortableError),
    REFRESH: (AbortableError, TransactionAbortableError),
    ABORT: (AbortableError, TransactionAbortableError),
    FAIL: (InvalidConfigurationError, InvalidConfigurationError),
    RECOVER: (ApplicationRecoverableError, TransactionFailedError),
}
"""For each decision: the category that a final error of a transaction must have, and the class that
replaces an error of any other category.
"""


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
    """Decide about an error that the library itself raised.

    A request that timed out has closed its connection, so it is retried after a refresh.
    """
    if isinstance(error, EncodeError):
        return FAIL  # No broker has seen the request, and another attempt would fail as well.
    if isinstance(error, ProtocolError):
        return FAIL if scope is Scope.CONNECTION or scope in ON_DEMAND else REFRESH
    if isinstance(error, ResponseTooLargeError):
        # Every broker would send the same response, so the call that needs it fails. What runs in
        # the background is repeated, until the response is smaller.
        return FAIL if scope in ON_DEMAND or scope is Scope.FETCH else REFRESH
    if isinstance(error, ApiTimeoutError):
        return REFRESH
    if isinstance(error, DeliveryTimeoutError):
        return ABORT if scope in IN_TRANSACTION else FAIL
    if isinstance(error, BufferExhaustedError | ConfigError | SerializationError | UsageError):
        return FAIL
    if type(error) is KafkaError and scope in IN_TRANSACTION:
        return ABORT  # The records are in no log, or `read_committed` hides them after the abort.
    return _of_category(error)


def _of_foreign(error: BaseException) -> Decision:
    """Decide about an error of another library. A cancellation is never retried."""
    if is_certificate_error(error) or not isinstance(error, Exception):
        return FAIL
    # TimeoutError and failures of name resolution are OSErrors as well.
    return REFRESH if isinstance(error, OSError | EOFError) else RECOVER
