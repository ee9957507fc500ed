"""The state of one commit: the offsets that are left to store, and the result of the others.

    left ──▶ stored       the coordinator has stored it
      │ ├──▶ superseded   a later commit has been stored, which this one would undo
      │ └──▶ refused      not owned, refused with a final error, or out of attempts
      └── again           a retriable error: it stays in `left`, and the next attempt sends it

Each partition ends in one of these states. The commit is done when nothing is left. Without IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokclient.errors import KafkaError
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.policy import Retry

__all__ = ["CommitAttempt"]


class CommitAttempt:
    """The offsets of one commit. Only its methods change it.

    `ticket` numbers commits in the order of their calls. `held` has the state of each partition at
    the time of the call; a partition that was lost and assigned again has another state. With
    `rising`, only offsets that are higher than the committed ones are stored.
    """

    def __init__(
        self,
        ticket: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        held: Mapping[TopicPartition, PartitionState | None],
        retry: Retry,
        *,
        attempts: float,
        rising: bool,
    ) -> None:
        self.ticket = ticket
        self.retry = retry
        self.rising = rising
        self.last_error: KafkaError | None = None
        self._attempts = attempts
        self._held = held
        self._left = dict(offsets)
        self._refused: dict[TopicPartition, KafkaError] = {}

    @property
    def left(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets that are still to be stored."""
        return self._left

    @property
    def refused(self) -> dict[TopicPartition, KafkaError]:
        """A copy of the errors of the refused partitions."""
        return dict(self._refused)

    def is_done(self) -> bool:
        """Return whether nothing is left to store."""
        return not self._left

    def held(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition at the time of the call, or None if it was not owned."""
        return self._held[tp]

    def stored(self, tp: TopicPartition) -> int:
        """Record that the coordinator has stored a partition; return its offset."""
        return self._left.pop(tp).offset

    def superseded(self, tp: TopicPartition) -> None:
        """Skip a partition, because a later commit has stored it."""
        del self._left[tp]

    def refuse(self, tp: TopicPartition, error: KafkaError) -> None:
        """Record the final error of a partition."""
        self._refused[tp] = error
        del self._left[tp]

    def again(self, error: KafkaError) -> None:
        """Record an error after which the remaining offsets may be sent again."""
        self.last_error = error

    def attempted(self) -> None:
        """Count an attempt; after the last permitted one, refuse what is left."""
        self.retry.next_attempt()
        if self.retry.attempt < self._attempts:
            return
        for tp in list(self._left):
            assert self.last_error is not None
            self.refuse(tp, self.last_error)
