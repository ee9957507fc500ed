"""The state that a send reads and changes: the open batch, its queue, its topic.

These classes have only the attributes that the native `send()` reads. The classes that derive from
them have all other attributes of a batch, a queue, and a topic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Generic, TypeVar

from aiokclient.producer._pure.delivery import DeliveryBatch, DeliveryHooks
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import Headers

__all__ = ["BatchState", "QueueState", "TopicState"]

Q = TypeVar("Q", bound="QueueState")


class BatchState(DeliveryBatch):
    """A batch to which records are appended."""

    __slots__ = (
        "builder",
        "chosen_from",
        "chosen_runs",
        "chosen_to",
        "explicit",
        "left",
        "reserved",
        "stamp",
        "stamps",
    )

    def __init__(
        self, topic: str, partition: int | None, hooks: DeliveryHooks, builder: RecordBatchBuilder
    ) -> None:
        super().__init__(topic, partition, hooks)
        self.use(builder)
        self.left = 0
        """A lower bound of the bytes that are still reserved for further records."""
        self.reserved = 0
        """Bytes that `Memory` counts for this batch."""
        self.stamp = -1
        """The timestamp of the last record."""
        self.stamps: list[tuple[int, int]] = []
        """The indices at which the timestamp changes, with the new timestamps."""
        self.explicit: array[int] | None = None
        """The partition that the application chose for each record, or -1 for none.

        It is used only while the partitions of the topic are unknown.
        """

        self.chosen_from = self.chosen_to = 0
        """The indices of the last consecutive records whose partition the application chose."""
        self.chosen_runs: list[tuple[int, int]] | None = None
        """The earlier ones. They are needed when the topic is recreated with fewer partitions."""

    def use(self, builder: RecordBatchBuilder) -> None:
        """Set the builder to which records are appended."""
        self.builder = builder

    def append(
        self,
        size: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        """Append a record that takes at most `size` bytes. Return its index.

        Return -1 if it does not fit in the batch, or if fewer than `size` bytes are reserved.
        """
        if self.left < size and self.room() < size:
            return -1
        index = self.builder.append(timestamp, key, value, headers)
        if index >= 0:
            self.left -= size
            if timestamp != self.stamp:
                self.note(index, timestamp)
        return index

    def partition_of(self, index: int) -> int | None:
        """Return the partition that was chosen for the record or the batch, or None if none was."""
        if self.explicit is None or index >= len(self.explicit):
            return self.partition
        chosen = self.explicit[index]
        return chosen if chosen >= 0 else None

    def note_chosen(self, index: int) -> None:
        """Store that the application chose the partition of the record with this index."""
        if index != self.chosen_to:
            if self.chosen_runs is None:
                self.chosen_runs = []
            self.chosen_runs.append((self.chosen_from, self.chosen_to))
            self.chosen_from = index
        self.chosen_to = index + 1

    def is_chosen(self, index: int) -> bool:
        """Return whether the application chose the partition of the record with this index."""
        if self.chosen_from <= index < self.chosen_to:
            return True
        return any(start <= index < end for start, end in self.chosen_runs or ())

    def note(self, index: int, timestamp: int) -> None:
        """Store the timestamp of the records from this index on."""
        self.stamp = timestamp
        self.stamps.append((index, timestamp))

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp with which a record was sent."""
        at = bisect_right(self.stamps, index, key=_index) - 1
        return self.stamps[at][1] if at >= 0 else -1

    def room(self) -> int:
        """Compute how many of the reserved bytes are left."""
        self.left = self.reserved - self.builder.size
        return self.left


def _index(stamp: tuple[int, int]) -> int:
    return stamp[0]


class QueueState:
    """The state of a partition's queue that a send reads."""

    __slots__ = ("open", "unsendable")

    def __init__(self) -> None:
        self.open: BatchState | None = None
        """The batch to which the next record is appended."""
        self.unsendable = False


class TopicState(Generic[Q]):
    """The state of a topic that a send reads."""

    __slots__ = ("known", "name", "queues", "sticky", "sticky_left")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[Q] = []
        self.known = False
        """Whether the partitions are known and no record waits to be moved to them."""
        self.sticky: Q | None = None
        """The partition queue to which records without a key currently go (KIP-480)."""
        self.sticky_left = 0
        """Number of bytes that may still go to the sticky queue before another one is chosen."""
