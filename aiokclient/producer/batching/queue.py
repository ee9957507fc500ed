"""The batches of one partition, in the order of their sends.

A queue has, from the oldest to the newest: the batches that were sent (in the order of their
sequences), the closed batches, the open batch, and the batches in the overflow queue. A batch that
was sent keeps its position until it has its outcome, whether it is in flight or waits to be sent
again. Records are appended to the open batch. While batches are in the overflow queue, the open
batch is the newest of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.buffer_pool import Account
from aiokclient.producer.batching.sequences import (
    BatchIdentity,
    PartitionSequences,
    SequenceEvent,
    SequenceState,
)
from aiokclient.producer.batching.stages import BatchStage, InLog
from aiokclient.producer.batching.topic_status import TopicStatus
from aiokclient.types import TopicPartition

__all__ = ["PartitionLeader", "PartitionQueue", "QueuedBatch"]

UNDESIGNATED_BATCH = 32 * 1024
"""The largest size, in bytes, of a batch for a topic whose partitions are not known.

All records of such a batch are moved to their partitions without yielding to the event loop.
"""

FORMER = 4
"""Number of earlier topics of the same name whose sequences a partition keeps."""

STEP = 1023
"""The expected size of the next batch is rounded up to a multiple of `STEP + 1` bytes."""


class PartitionLeader(Protocol):
    """The methods of a broker's sender that the queue of a partition uses."""

    node_id: int

    def ready(self, queue: PartitionQueue, *, at_once: bool = False) -> None:
        """Check a queue that may have something to send."""

    def lose(self, queue: PartitionQueue) -> None:
        """Remove a queue whose partition the broker no longer leads."""

    def unanswered_for(self) -> float:
        """Return the seconds since the oldest request without a response was sent, or 0."""


class Incarnation(NamedTuple):
    """The sequences of a partition in an earlier topic of the same name."""

    sequences: PartitionSequences
    sent: dict[QueuedBatch, BatchIdentity]
    """The batches that were sent to that topic and have no outcome, with their identities."""


class PartitionQueue(Account):
    """The batches of one partition, and whether it may send.

    `partition` is None for the records of a topic whose partitions are not known.
    """

    __slots__ = (
        "_former",
        "_next_incarnation",
        "absent_since",
        "blocked",
        "closed",
        "in_flight",
        "incarnation",
        "leader_epoch",
        "likely",
        "listed_in",
        "overflow",
        "partition",
        "sender",
        "sent",
        "sequences",
        "topic",
        "vanished",
    )

    open: QueuedBatch | None

    def __init__(self, topic: TopicStatus, partition: int | None) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.sent: list[QueuedBatch] = []
        self.in_flight = 0
        """Number of batches in `sent` that wait for a response."""
        self.closed: deque[QueuedBatch] = deque()
        self.overflow: deque[QueuedBatch] = deque()
        """Closed batches in the overflow queue."""
        self.sequences = PartitionSequences()
        self.sender: PartitionLeader | None = None
        self.leader_epoch = -1
        self.likely = 0
        """The expected size of the next batch, in bytes: the rounded size of the previous one."""
        self.blocked = False
        """Whether the queue backs off after an error."""
        self.absent_since: float | None = None
        """The time at which the partition disappeared from the metadata, on the loop's clock."""
        self.listed_in = -1
        """`TopicStatus.recreations` when the metadata last listed the partition."""
        self.vanished = False
        """Whether the leader said that the partition does not exist, in response to a request with
        the topic's name. Batches that were sent after that request may be in the log of another
        topic, which accepts any first sequence."""
        self.incarnation: Hashable = None
        """The topic of this name to which `sequences` belong; None while it is not known."""
        self._next_incarnation: Hashable = None
        self._former: dict[Hashable, Incarnation] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition that errors name; the partition is -1 while it is not known."""
        return TopicPartition(self.topic.name, -1 if self.partition is None else self.partition)

    @property
    def batch_limit(self) -> int:
        """The size of a batch, in bytes."""
        limit = self.topic.batch_limit.size
        return limit if self.partition is not None else min(limit, UNDESIGNATED_BATCH)

    def batches(self) -> Iterator[QueuedBatch]:
        """Yield all batches without an outcome, the oldest first."""
        yield from self.sent
        yield from self.closed
        if self.open is not None and not self.open.in_overflow:
            yield self.open
        yield from self.overflow
        if self.open is not None and self.open.in_overflow:
            yield self.open

    def leaving_batches(self) -> list[QueuedBatch]:
        """Return the batches that must be moved so that free records reach another partition.

        These are the oldest batch with such records and all later ones, because the records that
        stay must keep their order. None is moved as long as the topic is the same, because a broker
        with old metadata may have omitted the partition.
        """
        if self.topic.topic_id.int and self.listed_in == self.topic.recreations:
            return []
        unsent = [batch for batch in self.batches() if batch not in self.sent]
        first = next((at for at, batch in enumerate(unsent) if batch.is_free()), len(unsent))
        if first < len(unsent):
            self.close_open()  # The records that stay come into a new batch.
        return [batch for batch in unsent[first:] if batch.may_move]

    def oldest(self) -> QueuedBatch | None:
        """Return the oldest batch without an outcome, or None."""
        return next(self.batches(), None)

    # -- filling

    def begin(self, batch: QueuedBatch) -> None:
        """Append records to this batch from now on."""
        self.open = batch

    def discard_open(self) -> None:
        """Discard the open batch, which has no records."""
        self.open = None

    def close_open(self) -> QueuedBatch | None:
        """Close and return the open batch, if any. It stays in the queue or the overflow queue."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.close()
            (self.overflow if batch.in_overflow else self.closed).append(batch)
        return batch

    def expect(self, size: int) -> None:
        """Set the expected size of the next batch, in bytes."""
        self.likely = (size | STEP) + 1

    def first_in_overflow(self) -> QueuedBatch:
        """Return the oldest batch in the overflow queue, which may be the open one."""
        batch = self.overflow[0] if self.overflow else self.open
        assert batch is not None
        return batch

    def leave_overflow(self) -> None:
        """Append the oldest batch of the overflow queue to the batches in the buffer."""
        self.first_in_overflow().leave_overflow()
        if self.overflow:
            self.closed.append(self.overflow.popleft())

    # -- the partition and its leader

    def appear(self) -> None:
        """Record that the metadata lists the partition."""
        self.absent_since = None
        self.rename(self.topic.incarnation)

    def disappear(self, now: float) -> None:
        """Record that the metadata no longer lists the partition."""
        self.follow(None)
        self.absent_since = now

    def follow(self, leader: PartitionLeader | None, epoch: int | None = None) -> None:
        """Send to this leader from now on; `epoch` is its leader epoch."""
        if self.sender is not None and self.sender is not leader:
            self.sender.lose(self)
        self.sender = leader
        if epoch is not None:
            self.leader_epoch = epoch

    def note_listed(self) -> None:
        """Store that the metadata of the present topic lists the partition."""
        self.listed_in = self.topic.recreations

    def note_vanished(self) -> None:
        """Store that the leader knows no such partition of a topic with this name."""
        self.vanished = True

    def block(self) -> None:
        """Stop sending after an error, until `unblock` is called."""
        self.blocked = True

    def unblock(self) -> None:
        """Resume sending after `block`."""
        self.blocked = False
        self.poke()

    def poke(self, *, at_once: bool = False) -> None:
        """Notify the sender that there may be something to send.

        With `at_once`, the sender sends within this call if nothing is in flight to the broker.
        """
        if self.sender is not None:
            self.sender.ready(self, at_once=at_once)

    # -- sending

    @property
    def more(self) -> bool:
        """Whether there is a batch that is not in flight, even if it cannot be sent yet."""
        if self.open is not None or self.closed:
            return True
        return self.in_flight < len(self.sent)

    def next(self, idle: bool, limit: int) -> QueuedBatch | None:
        """Return the batch that may be sent now, without removing it, or None.

        `idle` says that nothing is in flight to the broker, so that an awaited batch need not
        linger.
        """
        if self.blocked or self.sequences.state is SequenceState.DRAINING:
            return None
        if self.in_flight and self.in_flight >= (1 if self.sequences.single else limit):
            return None
        if self.in_flight < len(self.sent):
            return self.sent[self.in_flight]
        if not self.closed:
            batch = self.open
            if batch is None or batch.in_overflow or not (batch.due or (batch.demanded and idle)):
                return None
            self.close_open()
        return self.closed[0]

    def leave(self, batch: QueuedBatch) -> None:
        """Mark the batch as in flight, because a request with it is about to be sent."""
        sent, at = self.sent, self.in_flight
        if at == len(sent):
            sent.append(self.closed.popleft())
        assert sent[at] is batch
        batch.begin_attempt()
        self.in_flight = at + 1

    def come_back(
        self, batch: QueuedBatch, *, refused: bool = False, foreign: bool = False
    ) -> None:
        """Send the batch again, once nothing of the partition is in flight.

        `refused` says that the leader refused it because an earlier batch is missing. `foreign`
        says that the leader refused it because the leader has the state of another producer.
        """
        refused = refused or foreign
        batch.come_back(refused=refused)
        self.in_flight -= 1
        if foreign:
            self.sequences.step(SequenceEvent.FOREIGN)
        else:
            self.sequences.step(SequenceEvent.REFUSED if refused else SequenceEvent.RETURNED)
        self.settle()

    def drain(self) -> None:
        """Stop sending until no batch is in flight."""
        self.sequences.step(SequenceEvent.RETURNED)
        self.settle()

    def remove(self, batch: QueuedBatch, *, written: bool = False, base_offset: int = -1) -> None:
        """Remove a batch that has its outcome, or whose records have moved."""
        if self.open is batch:
            self.open = None
        elif batch in self.sent:
            if batch.stage is BatchStage.IN_FLIGHT:
                self.in_flight -= 1
            self.sent.remove(batch)
            if written and batch.identity is not None:
                # With the topic's id in the request, the log cannot be that of another topic, so
                # the offset need not be checked.
                at = base_offset if batch.by_name else -1
                self.sequences.written(batch.identity, batch.count, at)
            self.sequences.step(SequenceEvent.WRITTEN if written else SequenceEvent.LOST)
            self.settle()
        elif batch in self.closed:
            self.closed.remove(batch)
        elif batch in self.overflow:
            self.overflow.remove(batch)

    def replace(self, batch: QueuedBatch, parts: list[QueuedBatch]) -> None:
        """Replace a batch that was in flight by the parts into which it was split."""
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts
        self.in_flight -= 1
        self.sequences.step(SequenceEvent.RETURNED)
        self.settle()

    # -- sequences

    def settle(self) -> None:
        """Decide how to continue after a batch failed or must be sent again.

        Do nothing yet if another batch is in flight.
        """
        if self.in_flight:
            return
        if self._next_incarnation is not None:
            self._change()
        if self.sequences.state is not SequenceState.DRAINING:
            return
        head_refused = bool(self.sent) and self.sent[0].refused
        state = self.sequences.drained(left=bool(self.sent), head_refused=head_refused)
        if state is SequenceState.RESTARTING:
            # None of these batches was written, so they get new sequences in the same order.
            for batch in self.sent:
                batch.requeue(unknowable=self.vanished and batch.in_log is not InLog.NO)
            self.closed.extendleft(reversed(self.sent))
            self.sent.clear()
        self.vanished = self.vanished and bool(self.sent)

    def abandon(self) -> None:
        """Stop waiting for the responses of a former leader.

        With sequences this is safe: the new leader recognizes batches that were already written,
        and the old leader can no longer commit writes.
        """
        for batch in [batch for batch in self.sent if batch.stage is BatchStage.IN_FLIGHT]:
            batch.abandon()
            self.come_back(batch)

    # -- topics of the same name

    @property
    def changing(self) -> bool:
        """Whether the queue will change to another topic of the same name when it is drained."""
        return self._next_incarnation is not None

    def rename(self, incarnation: Hashable) -> None:
        """Store another identifier of the topic. It is still the same topic."""
        if not self.changing:
            self.incarnation = incarnation

    def incarnate(self, incarnation: Hashable) -> None:
        """Change to another topic of the same name, once nothing is in flight.

        Batches that have no outcome by then are sent to the new topic with new sequences. The old
        sequences are kept, because the metadata may be wrong. If the partition returns to an
        earlier topic, batches that were sent there are sent again with their former sequences, so
        that they are written once.
        """
        changes = incarnation != self.incarnation
        self._next_incarnation = incarnation if changes else None
        if changes:
            self.sequences.step(SequenceEvent.RECREATED)
            self.settle()

    def _change(self) -> None:
        sent = {batch: batch.identity for batch in self.sent if batch.identity is not None}
        self._former[self.incarnation] = Incarnation(self.sequences, sent)
        self.incarnation, self._next_incarnation = self._next_incarnation, None
        before = self._former.pop(self.incarnation, None) or Incarnation(PartitionSequences(), {})
        if len(self._former) > FORMER:
            del self._former[next(iter(self._former))]
        for batch in self.sent:
            # A request that named the topic may have reached the old topic or the new one.
            ambiguous = batch.by_name and batch.identity is not None
            batch.requeue(unknowable=ambiguous and batch.in_log is not InLog.NO)
        waiting = self.closed
        waiting.extendleft(reversed(self.sent))
        self.sent = []
        while waiting and waiting[0] in before.sent:
            batch = waiting.popleft()
            batch.resume(before.sent[batch])
            self.sent.append(batch)
        self.sequences = before.sequences
        if self.sequences.producer_id >= 0 and self.sequences.state is not SequenceState.RESTARTING:
            self.sequences.step(SequenceEvent.RETURNED)


QueuedBatch: TypeAlias = ProducerBatch[PartitionQueue]
