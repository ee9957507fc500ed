"""The queues of one topic, and the choice of the queue for its next record."""

from __future__ import annotations

from collections import deque

from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.batching.topic_status import TopicStatus
from aiokclient.producer.state import TopicState

__all__ = ["Topic"]


class Topic(TopicState[PartitionQueue]):
    """The queues of a topic. While `known` is false all records wait in `undesignated`."""

    __slots__ = ("absent", "leaving", "status", "undesignated", "unseen")

    def __init__(self, name: str, batch_limit: int) -> None:
        super().__init__(name)
        self.status = TopicStatus(name, batch_limit)
        self.undesignated = PartitionQueue(self.status, None)
        self.absent: dict[int, PartitionQueue] = {}
        """The queues of partitions that the metadata does not list, or no longer."""
        self.leaving: deque[QueuedBatch] = deque()
        """Batches of absent partitions whose records are being moved to others."""
        self.unseen: set[int] = set()
        """Those of them that it has never listed."""

    def all_queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions, listed or absent, and the undesignated one."""
        return [*self.queues, *self.absent.values(), self.undesignated]

    def add_partition(self) -> PartitionQueue:
        """Add the next partition that the metadata lists. Return its queue.

        A partition that was absent gets its former queue back.
        """
        index = len(self.queues)
        self.unseen.discard(index)
        queue = self.absent.pop(index, None) or PartitionQueue(self.status, index)
        queue.appear()
        self.queues.append(queue)
        return queue

    def add_absent(self, partition: int, now: float) -> PartitionQueue:
        """Add a partition that the metadata does not list. Return its queue."""
        queue = self.absent[partition] = PartitionQueue(self.status, partition)
        self.unseen.add(partition)
        queue.disappear(now)
        return queue

    def forget_unseen(self) -> None:
        """Drop the partitions that no metadata has listed and for which no record waits."""
        for partition in [p for p in self.unseen if self.absent[p].oldest() is None]:
            self.unseen.discard(partition)
            del self.absent[partition]

    def leave_absent(self) -> bool:
        """Let records of absent partitions go to others unless the application chose the partition.

        Return whether there are such records.
        """
        if not self.leaving:
            for partition in sorted(self.absent):
                self.leaving.extend(self.absent[partition].leaving_batches())
        return bool(self.leaving)

    def next_waiting(self) -> QueuedBatch | None:
        """Return the next batch whose records are to be moved to their partitions, or None."""
        while self.leaving:
            batch = self.leaving.popleft()
            if batch.may_move and batch.queue.partition in self.absent:
                return batch
        return self.undesignated.oldest()

    def drop_partitions(self, count: int, now: float) -> list[PartitionQueue]:
        """Keep only the first `count` partitions. Return the queues of the others, now absent."""
        dropped = self.queues[count:]
        del self.queues[count:]
        for queue in dropped:
            assert queue.partition is not None
            self.absent[queue.partition] = queue
            queue.disappear(now)
        if self.sticky is not None and self.sticky in dropped:
            self.sticky = None
        return dropped

    def become_unknown(self) -> None:
        """Put new records into `undesignated` until a metadata response lists the partitions."""
        self.known = False

    def become_known(self) -> None:
        """Put new records into the queues of their partitions from now on."""
        self.status.end_moving()
        self.known = True

    def take_sticky(self, size: int) -> PartitionQueue | None:
        """Return the sticky queue for a record of `size` bytes, or None to choose another one."""
        queue = self.sticky
        if queue is None or self.sticky_left <= 0 or queue.unsendable:
            return None
        self.sticky_left -= size
        return queue

    def stick_to(self, queue: PartitionQueue, size: int) -> None:
        """Let the records without a key go to this queue for the next `size` bytes."""
        self.sticky = queue
        self.sticky_left = size

    def leave_sticky(self) -> None:
        """Let the next record without a key go to another partition."""
        self.sticky_left = 0
