"""What to do about an error: `decide(error, scope, ...)`. Pure; the only place that decides it."""

from __future__ import annotations

import random
from enum import Enum
from typing import NamedTuple

from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    KafkaError,
    RefreshRetriableError,
    RetriableError,
    UsageError,
)

__all__ = ["DEFAULT_BACKOFF", "Action", "Backoff", "Decision", "Scope", "decide"]


class Decision(Enum):
    """What the caller does next."""

    RETRY = "retry"
    """The same again, to the same broker, after the delay."""
    REFRESH_AND_RETRY = "refresh"
    """Look metadata or coordinator up anew, then again, after the delay."""
    ABORT = "abort"
    """Fail this; the transaction has to be aborted, after which the producer goes on."""
    RECOVER = "recover"
    """Fail this, and what holds state about it (producer id, membership) starts anew or fails."""
    FAIL = "fail"
    """Fail this call or record only; the client goes on with all others."""


class Scope(Enum):
    """What was being done: one for each family of APIs."""

    METADATA = "metadata"
    API_VERSIONS = "api_versions"
    CONNECTION = "connection"
    PRODUCE = "produce"
    PRODUCE_TXN = "produce_txn"
    INIT_PRODUCER_ID = "init_producer_id"
    FETCH = "fetch"
    LIST_OFFSETS = "list_offsets"
    OFFSET_FOR_LEADER_EPOCH = "offset_for_leader_epoch"
    FIND_COORDINATOR = "find_coordinator"
    GROUP = "group"
    OFFSET_COMMIT = "offset_commit"
    OFFSET_FETCH = "offset_fetch"
    TRANSACTION = "transaction"
    TXN_OFFSET_COMMIT = "txn_offset_commit"
    ADMIN = "admin"
    SHARE = "share"
    TELEMETRY = "telemetry"
    SASL = "sasl"
    CLIENT = "client"


class Action(NamedTuple):
    """A decision, and the seconds to wait before a retry (0 for the others)."""

    decision: Decision
    delay_s: float


class Backoff(NamedTuple):
    """Exponential backoff with jitter (KIP-580), in seconds."""

    initial_s: float = 0.1
    maximum_s: float = 1.0
    multiplier: float = 2
    jitter: float = 0.2

    def delay(self, attempt: int, rng: random.Random) -> float:
        """The wait after failure number `attempt`, counted from 0."""
        # The exponent is bounded so that an endless retry does not overflow the float.
        term = self.initial_s * self.multiplier ** min(attempt, 64)
        term *= rng.uniform(1 - self.jitter, 1 + self.jitter)
        return min(term, self.maximum_s)


DEFAULT_BACKOFF = Backoff()


def decide(
    error: BaseException,
    scope: Scope,
    attempt: int,
    remaining_s: float,
    rng: random.Random,
    backoff: Backoff = DEFAULT_BACKOFF,
) -> Action:
    """What to do about `error`, met `attempt` times before, with `remaining_s` left."""
    decision = _by_category(error)
    if decision not in (Decision.RETRY, Decision.REFRESH_AND_RETRY):
        return Action(decision, 0.0)
    if remaining_s <= 0:
        return Action(Decision.FAIL, 0.0)
    return Action(decision, min(backoff.delay(attempt, rng), remaining_s))


def _by_category(error: BaseException) -> Decision:
    if isinstance(error, RefreshRetriableError):
        return Decision.REFRESH_AND_RETRY
    if isinstance(error, RetriableError):
        return Decision.RETRY
    if isinstance(error, AbortableError):
        return Decision.ABORT
    if isinstance(error, InvalidConfigurationError | UsageError):
        return Decision.FAIL
    if isinstance(error, ApplicationRecoverableError | KafkaError):
        return Decision.RECOVER
    return Decision.REFRESH_AND_RETRY if isinstance(error, OSError) else Decision.RECOVER
