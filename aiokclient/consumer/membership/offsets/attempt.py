"""The state of one commit: the offsets that are left to store, and the results so far.

    left ──▶ stored       the coordinator has stored the offset
      │ ├──▶ superseded   a later commit has been stored, which this one would undo
      │ └──▶ refused      not owned, refused with a final error, or out of attempts
      └── again           a retriable error, or an error of an earlier identity: the offset stays
                          in `left`, and the next attempt sends it

Each partition ends as stored, superseded, or refused. The commit is done when no offset is left.
`PerItem` keeps the partitions that are left, and decides by the policy. Without IO.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from aiokclient.cluster.requests.per_item import PerItem
from aiokclient.errors import KafkaError
from aiokclient.policy import Scope
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.requests.attempts import RefusalLog
    from aiokclient.consumer.membership.offsets.commits import Commits
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.policy import Retry

__all__ = ["CommitAttempt", "CommitOrder"]


class CommitOrder:
    """The order of the commits of one consumer, and the last stored commit of each partition."""

    def __init__(self) -> None:
        self._last = 0
        self._stored: dict[TopicPartition, int] = {}

    def issue_ticket(self) -> int:
        """Return the number of a new commit, which is higher than all earlier numbers."""
        self._last += 1
        return self._last

    def mark_stored(self, tp: TopicPartition, ticket: int) -> None:
        """Record that a commit was stored for a partition."""
        self._stored[tp] = max(self._stored.get(tp, 0), ticket)

    def is_superseded(self, tp: TopicPartition, ticket: int) -> bool:
        """Return whether a later commit than this one was stored for a partition."""
        return self._stored.get(tp, 0) > ticket


class CommitAttempt:
    """The offsets of one commit. Only its methods change it.

    `ticket` is the number of the commit in `CommitOrder`. `held` has the state of each partition
    when the commit began; a partition that was lost and assigned again has another state.
    `cluster_id` is the id of the cluster to which the offsets belong. `commits` decides which
    errors are final. With `rising`, only offsets that are higher than the committed ones are
    stored.
    """

    def __init__(
        self,
        ticket: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        held: Mapping[TopicPartition, PartitionState | None],
        retry: Retry,
        commits: Commits,
        *,
        attempts: float,
        rising: bool,
        refusals: RefusalLog | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.ticket = ticket
        self.cluster_id = cluster_id
        self.rising = rising
        self._retry = retry
        self._attempts = attempts
        self._held = held
        self._offsets = offsets
        self._commits = commits
        self._items = PerItem(offsets, retry, Scope.OFFSET_COMMIT, refusals=refusals)
        self._renamed = False
        self._failed: Mapping[TopicPartition, KafkaError] = {}
        self._refused: dict[TopicPartition, KafkaError] = {}

    @property
    def left(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that are still to be stored."""
        return {tp: self._offsets[tp] for tp in self._items.remaining}

    @property
    def last_error(self) -> KafkaError | None:
        """One of the errors of the last attempt that had any; None if no attempt had one."""
        return self._items.last_error

    @property
    def refused(self) -> dict[TopicPartition, KafkaError]:
        """A copy of the errors of the refused partitions."""
        return dict(self._refused)

    def is_done(self) -> bool:
        """Return whether nothing is left to store."""
        return not self._items.remaining

    def find_state(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition when the commit began, or None if it was not owned."""
        return self._held[tp]

    def skip_superseded(self, tps: Collection[TopicPartition]) -> None:
        """Skip partitions, because a later commit has stored them."""
        self._items.drop_items(tps)

    def refuse_partitions(self, errors: Mapping[TopicPartition, KafkaError]) -> None:
        """Record the final errors of partitions."""
        self._refused.update(errors)
        self._items.drop_items(errors)

    def settle_attempt(
        self, failed: Mapping[TopicPartition, KafkaError], *, renamed: bool
    ) -> float:
        """Record the errors of an attempt, and return the seconds to wait before the next one.

        The partitions without an error are stored. With `renamed`, the identity has changed since
        the attempt was sent, so no error of the attempt is final.
        """
        self._failed, self._renamed = failed, renamed
        return self._items.record_errors(
            failed,
            refresh=self._commits.refresh_partition,
            refuse=self._final_error,
            is_final=self._commits.is_final,
        )

    def refuse_if_exhausted(self) -> None:
        """Refuse the partitions that are left, if the last permitted attempt has been made."""
        if self._retry.attempt >= self._attempts:
            self.refuse_partitions({tp: self._failed[tp] for tp in self._items.remaining})

    def _final_error(self, tp: TopicPartition, error: KafkaError) -> bool:
        if not self._renamed:
            self._refused[tp] = error
        return self._renamed
