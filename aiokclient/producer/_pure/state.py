"""What a send looks at and changes: the open batch, its queue, its topic. `state` picks these.

They hold what the native `send()` reads, and nothing more: what else there is to a batch, a queue
and a topic stands in the classes that derive from them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Generic, TypeVar

from aiokclient.producer._pure.delivery import DeliveryBatch, DeliveryHooks
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import Headers

__all__ = ["BatchState", "QueueState", "TopicState"]

Q = TypeVar("Q", bound="QueueState")


class BatchState(DeliveryBatch):
    """A batch that records are appended to."""

    __slots__ = ("add", "builder", "explicit", "left", "reserved", "stamp", "stamps")

    def __init__(
        self, topic: str, partition: int | None, hooks: DeliveryHooks, builder: RecordBatchBuilder
    ) -> None:
        super().__init__(topic, partition, hooks)
        self.use(builder)
        self.left = 0
        """Bytes reserved for records that are still to come; a lower bound."""
        self.reserved = 0
        """Bytes accounted for in `Memory`."""
        self.stamp = -1
        """The timestamp of the last record."""
        self.stamps: list[tuple[int, int]] = []
        """Where the timestamps change: index and timestamp from there on."""
        self.explicit: array[int] | None = None
        """While the partitions are unknown: those that the user chose, -1 for none."""

    def use(self, builder: RecordBatchBuilder) -> None:
        """Append to this builder from now on."""
        self.builder = builder
        self.add: Callable[[int, bytes | None, bytes | None, Headers], int] = builder.append

    def partition_of(self, index: int) -> int | None:
        """The partition of a record: the batch's, or the one that the user chose."""
        if self.explicit is None or index >= len(self.explicit):
            return self.partition
        chosen = self.explicit[index]
        return chosen if chosen >= 0 else None

    def note(self, index: int, timestamp: int) -> None:
        """The records from this one on have another timestamp."""
        self.stamp = timestamp
        self.stamps.append((index, timestamp))

    def timestamp_of(self, index: int) -> int:
        """The timestamp that one of its records was sent with."""
        at = bisect_right(self.stamps, index, key=_index) - 1
        return self.stamps[at][1] if at >= 0 else -1

    def room(self) -> int:
        """Look again how much of what is reserved is left."""
        self.left = self.reserved - self.builder.size
        return self.left


def _index(stamp: tuple[int, int]) -> int:
    return stamp[0]


class QueueState:
    """What a send looks at of a partition."""

    __slots__ = ("open", "unsendable")

    def __init__(self) -> None:
        self.open: BatchState | None = None
        """The batch that takes the next record."""
        self.unsendable = False


class TopicState(Generic[Q]):
    """What a send looks at of a topic."""

    __slots__ = ("known", "name", "queues", "sticky", "sticky_left")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[Q] = []
        self.known = False
        """Its partitions are known, and nothing waits in its undesignated queue."""
        self.sticky: Q | None = None
        """Where records without a key go for the time being."""
        self.sticky_left = 0
        """How many more bytes go there."""
