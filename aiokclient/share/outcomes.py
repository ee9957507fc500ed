"""What follows from the answers to share requests, as tables. Without IO.

Three kinds of request go to the leader of a partition: a fetch, which may carry acknowledgements;
an acknowledgement; and a renewal of locks, which travels apart because a refused renewal would
spoil acknowledgements. One request of a session is in flight at a time. It ends in one of these
ways:

- An answer without an error at the top level has a code for each partition: of its fetch, of its
  acknowledgements, or of its renewals. `PARTITION_CODES` says what the code means.
- An answer with an error at the top level concerns the session. `SESSION_CODES` says what the code
  means. Usually, nothing in the request was applied; but a fetch that waited may end with
  INVALID_SHARE_SESSION_EPOCH after its acknowledgements were.
- Without an answer, the connection is closed. The broker ends the session with it, and releases the
  records of the session. Whether it has applied the acknowledgements is not known, so that they are
  never sent again: LOST, with `confirmed=None`.

For codes without a row, the policy decides (scope SHARE): what is retriable is sent again, until
the lock of the record ends, and everything else is refused. What is sent again although it may have
been applied, and is then refused or expires, is LOST with `confirmed=None` as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from aiokclient.errors import (
    FencedLeaderEpochError,
    GroupAuthorizationError,
    InvalidRecordStateError,
    InvalidRequestError,
    InvalidShareSessionEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.policy import Scope, classify


class PartitionOutcome(Enum):
    """What a code of a partition means for what the request had of that partition."""

    APPLIED = "applied"
    """The acknowledgements, or renewals, were applied."""
    INVALID = "invalid"
    """At least one record was not locked for this member. The others are sent again, without it.

    For a renewal it means that the group does not allow any.
    """
    MOVED = "moved"
    """This broker does not lead the partition any more, or the topic is gone: all of its locks are
    lost."""
    AGAIN = "again"
    """Nothing was applied. It is sent again while the locks are certain."""
    REFUSED = "refused"
    """Nothing was applied, and sending it again would not help."""
    FATAL = "fatal"
    """The consumer is not permitted to use the topic, and fails."""


class SessionOutcome(Enum):
    """What a code at the top level of an answer means for the session and for the request."""

    OPEN = "open"
    """The session goes on with its next epoch."""
    REOPENED = "reopened"
    """The broker expects another epoch. A new session begins, for which the locks stay."""
    ENDED = "ended"
    """The broker has dropped the session, and with it all locks."""
    LIMITED = "limited"
    """The broker has too many sessions. A new one begins later; the locks stay."""
    REFUSED = "refused"
    """The request was wrong. Its acknowledgements are refused; the session goes on."""
    FATAL = "fatal"
    """The consumer may not use the group, or the brokers have no share groups: it fails."""
    AGAIN = "again"
    """The broker could not handle the request. It is sent again in a new session, because it is not
    known whether its epoch was used up. It may have been applied."""
    UNCLEAR = "unclear"
    """The broker has failed. The acknowledgements are refused, and a new session begins."""


PARTITION_CODES: Final[Mapping[int | None, PartitionOutcome]] = MappingProxyType(
    {
        0: PartitionOutcome.APPLIED,
        InvalidRecordStateError.code: PartitionOutcome.INVALID,
        NotLeaderOrFollowerError.code: PartitionOutcome.MOVED,
        FencedLeaderEpochError.code: PartitionOutcome.MOVED,
        UnknownTopicOrPartitionError.code: PartitionOutcome.MOVED,
        UnknownTopicIdError.code: PartitionOutcome.MOVED,
        TopicAuthorizationError.code: PartitionOutcome.FATAL,
        GroupAuthorizationError.code: PartitionOutcome.FATAL,
        InvalidRequestError.code: PartitionOutcome.REFUSED,
    }
)
"""The meaning of codes of acknowledgements, renewals, and fetches of a partition."""

SESSION_CODES: Final[Mapping[int | None, SessionOutcome]] = MappingProxyType(
    {
        0: SessionOutcome.OPEN,
        InvalidShareSessionEpochError.code: SessionOutcome.REOPENED,
        ShareSessionNotFoundError.code: SessionOutcome.ENDED,
        ShareSessionLimitReachedError.code: SessionOutcome.LIMITED,
        InvalidRequestError.code: SessionOutcome.REFUSED,
        GroupAuthorizationError.code: SessionOutcome.FATAL,
        TopicAuthorizationError.code: SessionOutcome.FATAL,
        UnsupportedVersionError.code: SessionOutcome.FATAL,
    }
)
"""The meaning of codes at the top level."""

UNCOUNTED: Final = frozenset({SessionOutcome.REFUSED})
"""The outcomes after which the broker expects the same epoch again."""

REOPENING: Final = frozenset(
    {
        SessionOutcome.REOPENED,
        SessionOutcome.ENDED,
        SessionOutcome.LIMITED,
        SessionOutcome.AGAIN,
        SessionOutcome.UNCLEAR,
    }
)
"""The outcomes after which a new session begins. It takes over the locks that there are."""


def judge_partition(error: KafkaError | None) -> PartitionOutcome:
    """Return what the error of a partition means for what the request had of it."""
    if error is None:
        return PartitionOutcome.APPLIED
    found = PARTITION_CODES.get(error.code)
    if found is not None:
        return found
    again = classify(error, Scope.SHARE).again
    return PartitionOutcome.AGAIN if again else PartitionOutcome.REFUSED


def judge_session(error: KafkaError | None) -> SessionOutcome:
    """Return what the error at the top level of an answer means."""
    if error is None:
        return SessionOutcome.OPEN
    found = SESSION_CODES.get(error.code)
    if found is not None:
        return found
    again = classify(error, Scope.SHARE).again
    return SessionOutcome.AGAIN if again else SessionOutcome.UNCLEAR
