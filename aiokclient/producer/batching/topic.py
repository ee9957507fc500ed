"""What the producer knows of one topic: its queues, and where the next record goes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.state import TopicState

if TYPE_CHECKING:
    from aiokclient.cluster.metadata import TopicInfo

__all__ = ["Topic"]

NO_ID = UUID(int=0)
REQUIRED = 150
"""Batches to be written before the full size is tried again."""
MOST_REQUIRED = 1 << 20
"""The same at the most: each attempt in vain doubles it."""


class Topic(TopicState[PartitionQueue]):
    """The queues of a topic. While `known` is false all records wait in `undesignated`."""

    __slots__ = (
        "_largest_limit",
        "_probing",
        "_required",
        "_written",
        "absent",
        "batch_limit",
        "cluster_id",
        "incarnation",
        "info",
        "known_id",
        "missing_since",
        "moving",
        "shrunk",
        "undesignated",
    )

    def __init__(self, name: str, batch_limit: int) -> None:
        super().__init__(name)
        self.info: TopicInfo | None = None
        self.undesignated = PartitionQueue(self, None)
        self.absent: dict[int, PartitionQueue] = {}
        """The queues of partitions that the topic had once and has no more."""
        self.known_id = NO_ID
        """The last topic id that was not all zeros."""
        self.cluster_id: str | None = None
        self.incarnation: Hashable = None
        """Which topic of this name it is: its id, or without ids that of the cluster."""
        self.moving = False
        """Records are being moved out of `undesignated`."""
        self.missing_since: float | None = None
        """Since when the brokers say that there is no such topic, on the loop's clock."""
        self.batch_limit = batch_limit
        """The size of a batch in bytes; smaller for a while after one was refused as too large."""
        self.shrunk = False
        """Whether batches are smaller than configured."""
        self._largest_limit = batch_limit
        self._written = 0
        """Batches about as large as the limit that were written since one was refused."""
        self._required = REQUIRED
        self._probing = False
        """Whether the full size was tried again since one was refused."""

    def shrink(self, size: int) -> int:
        """A batch of `size` bytes was refused as too large: return the limit for its parts.

        If the full size was tried in vain, it is tried again after twice as many batches.
        """
        limit = size // 2
        self._limit(min(self.batch_limit, limit))
        self._written = 0
        if self._probing:
            self._probing = False
            self._required = min(2 * self._required, MOST_REQUIRED)
        return limit

    def note_written(self, size: int) -> None:
        """A batch of `size` bytes was written while the limit was lowered: it may be lifted."""
        if 2 * size < self.batch_limit:
            return
        self._written += 1
        if self._written >= self._required:
            self._probing = True
            self._limit(self._largest_limit)

    def _limit(self, size: int) -> None:
        self.batch_limit = size
        self.shrunk = size < self._largest_limit

    @property
    def topic_id(self) -> UUID:
        """Kafka's id of the topic; all zeros where the brokers have no ids."""
        return NO_ID if self.info is None else self.info.topic_id

    def all_queues(self) -> list[PartitionQueue]:
        """The queues of the partitions, those it has no more, and the undesignated one."""
        return [*self.queues, *self.absent.values(), self.undesignated]
