"""One commit on its way: what is left to store, and what became of the rest. Without IO.

    left ──▶ stored       the coordinator has it
      │ ├──▶ superseded   a later commit has stored more: this one would undo it
      │ └──▶ refused      not owned, refused for good, or out of attempts
      └── again           failed in a way that may pass: it stays, and the next attempt sends it

Each partition goes one of these ways, once. The commit is done when nothing is left.
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

    `ticket` counts commits in the order in which they were made. `held` are the partitions as the
    consumer had them when it was made: one that was lost and assigned again is another one. With
    `rising` nothing is stored that is not above what was by then.
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
        """A copy of the errors by which partitions were refused."""
        return dict(self._refused)

    def is_done(self) -> bool:
        """Return whether nothing is left to store."""
        return not self._left

    def held(self, tp: TopicPartition) -> PartitionState | None:
        """Return the partition as the consumer had it when the commit was made."""
        return self._held[tp]

    def stored(self, tp: TopicPartition) -> int:
        """Record that the coordinator has stored a partition; return its offset."""
        return self._left.pop(tp).offset

    def superseded(self, tp: TopicPartition) -> None:
        """Leave a partition out, because a later commit has stored it."""
        del self._left[tp]

    def refuse(self, tp: TopicPartition, error: KafkaError) -> None:
        """Give up storing a partition, because of this error."""
        self._refused[tp] = error
        del self._left[tp]

    def again(self, error: KafkaError) -> None:
        """Record an error after which what is left may be sent again."""
        self.last_error = error

    def attempted(self) -> None:
        """Count an attempt; after the last one, refuse what is left."""
        self.retry.next_attempt()
        if self.retry.attempt < self._attempts:
            return
        for tp in list(self._left):
            assert self.last_error is not None
            self.refuse(tp, self.last_error)
