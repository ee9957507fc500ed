"""The share session of one member with one broker: its requests, and what the answers mean.

A session belongs to the connection on which it was opened. It is opened by a fetch with epoch 0,
which contains all partitions and no acknowledgements; each further request has the next epoch. A
fetch adds its partitions to the session, for good: the broker acquires records of all partitions of
the session by each fetch. So a partition that is not to be fetched any more is forgotten, and its
acknowledgements do not travel with a fetch, which would add it again.

    CLOSED    no session; the next request opens one
    OPEN      requests have the epoch `epoch`

    OPENED    an answer to a request of epoch 0   CLOSED -> OPEN
    ANSWERED  any other answer that counts        OPEN, next epoch
    RESET     the broker expects another session  CLOSED
    LOST      the connection is closed            CLOSED

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

Without IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

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
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.policy import Scope, classify
from aiokclient.protocol.messages import share_acknowledge, share_fetch
from aiokclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from aiokclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from aiokclient.share.locks import AcknowledgeType, Reason, Run, acknowledge_types
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.share.partition import SharePartition

FINAL_EPOCH: Final = -1
LARGEST_EPOCH: Final = 0x7FFFFFFF

BATCHES: Final = 0
"""Acquire up to the end of a record batch (see `share_acquire_mode`)."""
RECORD_LIMIT: Final = 1
"""Acquire exactly as many records as are wanted."""

Acknowledged = Mapping["SharePartition", Sequence[Run]]


class PartitionOutcome(Enum):
    """The meaning of a code of a partition for that part of the request."""

    APPLIED = "applied"
    """The acknowledgements, or renewals, were applied."""
    INVALID = "invalid"
    """At least one record was not locked for this member. The others are sent again, without it.

    Or, of renewals, that the group does not allow any (see `RefusedRenewals`).
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
    """The meaning of a code at the top level of an answer for the session and the request."""

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


def choose_reason(error: KafkaError, data: Any, node_id: int) -> Reason:
    """Return why the locks of a partition are lost that this broker does not serve any more.

    The leader names itself if an operator has altered the offsets of the group, or deleted it.
    """
    is_leader_code = error.code == NotLeaderOrFollowerError.code
    return "fenced" if is_leader_code and data.current_leader.leader_id == node_id else "moved"


def judge_session(error: KafkaError | None) -> SessionOutcome:
    """Return what the error at the top level of an answer means."""
    if error is None:
        return SessionOutcome.OPEN
    found = SESSION_CODES.get(error.code)
    if found is not None:
        return found
    again = classify(error, Scope.SHARE).again
    return SessionOutcome.AGAIN if again else SessionOutcome.UNCLEAR


class FetchSize(NamedTuple):
    """The limits of a fetch."""

    max_records: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    mode: int = BATCHES


NOTHING: Final = FetchSize(0, 0, 0, 0)
"""A fetch that acquires nothing, and is answered immediately."""


class ShareSession:
    """The session at one broker, and the requests in it."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.epoch = 0
        """The epoch of the next request. 0 opens a session."""
        self._group_id = group_id
        self._member_id = member_id
        self._known: dict[tuple[UUID, int], SharePartition] = {}
        """The partitions in the session."""

    @property
    def is_open(self) -> bool:
        return self.epoch > 0

    def has_partition(self, partition: SharePartition) -> bool:
        """Return whether the broker has the partition in the session."""
        return (partition.topic_id, partition.tp.partition) in self._known

    def count_request(self) -> None:
        """Record that the broker has answered a request, which used up its epoch."""
        self.epoch = 1 if self.epoch >= LARGEST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Open a new session by the next request."""
        self.epoch = 0
        self._known = {}

    # -- requests

    def make_fetch(
        self, wanted: Iterable[SharePartition], acknowledged: Acknowledged, size: FetchSize
    ) -> ShareFetchRequest:
        """Return the next fetch of these partitions. In epoch 0, it cannot acknowledge anything."""
        assert self.is_open or not acknowledged
        partitions = {(each.topic_id, each.tp.partition): each for each in wanted}
        forgotten = [key for key in self._known if key not in partitions]
        listed = {key: () for key in partitions if key not in self._known}
        carried: dict[tuple[UUID, int], Sequence[Run]] = dict(listed)
        for each, runs in acknowledged.items():
            carried[each.topic_id, each.tp.partition] = runs
        self._known = partitions
        return ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=size.max_wait_ms,
            min_bytes=size.min_bytes,
            max_bytes=size.max_bytes,
            max_records=size.max_records,
            batch_size=max(size.max_records, 1),
            share_acquire_mode=size.mode,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(
                                share_fetch.AcknowledgementBatch, runs
                            ),
                        )
                        for index, runs in found
                    ],
                )
                for topic_id, found in _by_topic(carried)
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[i for i, _ in found])
                for topic_id, found in _by_topic(dict.fromkeys(forgotten, ()))
            ],
        )

    def make_acknowledgement(self, acknowledged: Acknowledged) -> ShareAcknowledgeRequest:
        """Return the next request with these acknowledgements."""
        return self._make_acknowledgement(acknowledged, self.epoch)

    def make_renewal(self, renewed: Acknowledged) -> ShareAcknowledgeRequest:
        """Return the next request, which renews the locks of these records."""
        request = self._make_acknowledgement(renewed, self.epoch, (AcknowledgeType.RENEW,))
        request.is_renew_ack = True
        return request

    def make_last(self, acknowledged: Acknowledged) -> ShareAcknowledgeRequest:
        """Return the request that ends the session; the broker releases what is still held."""
        return self._make_acknowledgement(acknowledged, FINAL_EPOCH)

    def _make_acknowledgement(
        self, acknowledged: Acknowledged, epoch: int, types: Sequence[int] | None = None
    ) -> ShareAcknowledgeRequest:
        carried = {(each.topic_id, each.tp.partition): acknowledged[each] for each in acknowledged}
        return ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(
                                share_acknowledge.AcknowledgementBatch, runs, types
                            ),
                        )
                        for index, runs in found
                    ],
                )
                for topic_id, found in _by_topic(carried)
            ],
        )

    # -- answers

    def find_partition(self, topic_id: UUID, index: int) -> SharePartition | None:
        """Return the partition of an answer, or None if the session does not have it."""
        return self._known.get((topic_id, index))


def read_acknowledged(
    answer: Any, asked: Acknowledged, broker: int
) -> dict[SharePartition, tuple[Any, KafkaError | None]]:
    """Return what an answer says of acknowledgements, or renewals, of these partitions.

    A partition that the answer does not contain has an error. Of several parts about the same
    partition, one with an error counts.
    """
    api = answer.request_class.__name__.removesuffix("Request")
    is_fetch = isinstance(answer, ShareFetchResponse)
    missing = UnknownServerError.code, "The answer does not contain the partition."
    parts: dict[tuple[UUID, int], tuple[Any, int, str | None]] = {}
    for topic in answer.responses:
        for data in topic.partitions:
            key = topic.topic_id, data.partition_index
            code = data.acknowledge_error_code if is_fetch else data.error_code
            text = data.acknowledge_error_message if is_fetch else data.error_message
            if code or key not in parts:
                parts[key] = data, code, text
    found: dict[SharePartition, tuple[Any, KafkaError | None]] = {}
    for partition in asked:
        part = parts.get((partition.topic_id, partition.tp.partition), (None, *missing))
        data, code, text = part
        error = error_for(code or 0, text, api=api, broker=broker, topic_partition=partition.tp)
        found[partition] = data, error
    return found


def _batches(kind: Any, runs: Iterable[Run], types: Sequence[int] | None = None) -> list[Any]:
    """Return runs in the form of the protocol, in which neighbors with one type are one batch."""
    made: list[Any] = []
    for run in runs:
        first = run.acquisition.first
        kinds = acknowledge_types(run) if types is None else [*types]
        last = made[-1] if made else None
        if (
            last is not None
            and last.last_offset + 1 == first + run.start
            and len(kinds) == 1
            and last.acknowledge_types == kinds
        ):
            last.last_offset = first + run.stop - 1
        else:
            made.append(
                kind(
                    first_offset=first + run.start,
                    last_offset=first + run.stop - 1,
                    acknowledge_types=kinds,
                )
            )
    return made


def _by_topic(
    carried: Mapping[tuple[UUID, int], Sequence[Run]],
) -> Iterator[tuple[UUID, list[tuple[int, Sequence[Run]]]]]:
    topics: dict[UUID, list[tuple[int, Sequence[Run]]]] = {}
    for (topic_id, index), runs in carried.items():
        topics.setdefault(topic_id, []).append((index, runs))
    return iter(topics.items())
