"""The batches of one partition, in the order of their sends.

From the oldest to the newest: those that were sent (with sequences, in their order), the closed
ones, the open one, and those in the overflow queue. A batch that was sent keeps its position until
it has its outcome, in flight or waiting to be sent again. Records are appended to the open batch;
once batches are in the overflow queue, the open batch is the newest of them.
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

__all__ = ["Leader", "PartitionQueue", "QueuedBatch"]

UNDESIGNATED_BATCH = 32 * 1024
"""The largest batch of records whose partitions are not known: one is moved without a pause."""

FORMER = 4
"""Number of earlier topics of the same name whose sequences a partition keeps."""

STEP = 1023
"""The likely size of the next batch is rounded up to the next multiple of one more."""


class Leader(Protocol):
    """The broker that leads a partition, as its queue sees it."""

    node_id: int

    def ready(self, queue: PartitionQueue, *, at_once: bool = False) -> None:
        """Take note that the queue may have something to send."""

    def lose(self, queue: PartitionQueue) -> None:
        """Take note that the broker no longer leads the partition."""

    def unanswered_for(self) -> float:
        """Return for how many seconds the oldest unanswered request has waited."""


class Incarnation(NamedTuple):
    """The sequences of a partition in an earlier topic of the same name."""

    sequences: PartitionSequences
    sent: dict[QueuedBatch, BatchIdentity]
    """The batches without an outcome that were sent there."""


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
        """Closed batches beyond `buffer_memory`."""
        self.sequences = PartitionSequences()
        self.sender: Leader | None = None
        self.leader_epoch = -1
        self.likely = 0
        """The size that the next batch will probably have, in bytes: that of the one before."""
        self.blocked = False
        """Whether it backs off after an error."""
        self.absent_since: float | None = None
        """The time since which the topic lacks this partition, on the loop's clock."""
        self.vanished = False
        """Whether the leader said that there is no such partition, to a request that named the
        topic: what was sent after it may be in another topic's log, which accepts any first
        sequence."""
        self.incarnation: Hashable = None
        """Which topic of this name `sequences` are about; None while that is not known."""
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
        if self.open is not None and not self.open.parked:
            yield self.open
        yield from self.overflow
        if self.open is not None and self.open.parked:
            yield self.open

    def oldest(self) -> QueuedBatch | None:
        """Return the first of them."""
        return next(self.batches(), None)

    # Filling

    def begin(self, batch: QueuedBatch) -> None:
        """Append records to this batch from now on."""
        self.open = batch

    def discard_open(self) -> None:
        """Forget the open batch, which received no record."""
        self.open = None

    def close_open(self) -> QueuedBatch | None:
        """Close the open batch. It joins the queue or the overflow queue."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.close()
            (self.overflow if batch.parked else self.closed).append(batch)
        return batch

    def expect(self, size: int) -> None:
        """Expect that the next batch will be about as large as this size, in bytes."""
        self.likely = (size | STEP) + 1

    def first_in_overflow(self) -> QueuedBatch:
        """Return the oldest batch in the overflow queue, which may be the open one."""
        batch = self.overflow[0] if self.overflow else self.open
        assert batch is not None
        return batch

    def leave_overflow(self) -> None:
        """Let the oldest batch in the overflow queue follow those in the buffer."""
        self.first_in_overflow().leave_overflow()
        if self.overflow:
            self.closed.append(self.overflow.popleft())

    # The partition and its leader

    def appear(self) -> None:
        """Note that the metadata lists the partition."""
        self.absent_since = None
        self.rename(self.topic.incarnation)

    def disappear(self, now: float) -> None:
        """Note that the metadata does not list the partition any more."""
        self.follow(None)
        self.absent_since = now

    def follow(self, leader: Leader | None, epoch: int | None = None) -> None:
        """Send to this leader from now on; `epoch` is its leader epoch."""
        if self.sender is not None and self.sender is not leader:
            self.sender.lose(self)
        self.sender = leader
        if epoch is not None:
            self.leader_epoch = epoch

    def note_vanished(self) -> None:
        """Note that the leader said that there is no such partition, to a topic's name."""
        self.vanished = True

    def block(self) -> None:
        """Send nothing, because of an error, until `unblock`."""
        self.blocked = True

    def unblock(self) -> None:
        """Send again after `block`."""
        self.blocked = False
        self.poke()

    def poke(self, *, at_once: bool = False) -> None:
        """Tell the sender that there may be something to send.

        `at_once`: within this call, if nothing is in flight to the broker.
        """
        if self.sender is not None:
            self.sender.ready(self, at_once=at_once)

    # Sending

    @property
    def more(self) -> bool:
        """Whether there is a batch that is not in flight, though it may have to wait."""
        return self.open is not None or bool(self.closed) or self.in_flight < len(self.sent)

    def next(self, idle: bool, limit: int) -> QueuedBatch | None:
        """Return the batch that may be sent now, and leave it in its position; None if none may.

        `idle`: nothing is in flight to the broker, so that an awaited batch need not linger.
        """
        if self.blocked or self.sequences.state is SequenceState.DRAINING:
            return None
        if self.in_flight >= (1 if self.sequences.single else limit):
            return None
        if self.in_flight < len(self.sent):
            return self.sent[self.in_flight]
        if not self.closed:
            batch = self.open
            if batch is None or batch.parked or not (batch.due or (batch.demanded and idle)):
                return None
            self.close_open()
        return self.closed[0]

    def leave(self, batch: QueuedBatch) -> None:
        """Send the batch."""
        if self.in_flight == len(self.sent):
            self.sent.append(self.closed.popleft())
        assert self.sent[self.in_flight] is batch
        batch.begin_attempt()
        self.in_flight += 1

    def come_back(
        self, batch: QueuedBatch, *, refused: bool = False, foreign: bool = False
    ) -> None:
        """Send the batch again, once nothing of the partition is in flight.

        `refused`: it does not follow what the leader has. `foreign`: it was refused because the
        leader's state is not this producer's.
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
        """Send nothing more until nothing is in flight."""
        self.sequences.step(SequenceEvent.RETURNED)
        self.settle()

    def remove(self, batch: QueuedBatch, *, written: bool = False, base_offset: int = -1) -> None:
        """Forget a batch that has its outcome, or whose records have moved."""
        if self.open is batch:
            self.open = None
        elif batch in self.sent:
            if batch.stage is BatchStage.IN_FLIGHT:
                self.in_flight -= 1
            self.sent.remove(batch)
            if written and batch.identity is not None:
                # A topic's id shows already that the log is the same.
                at = base_offset if batch.by_name else -1
                self.sequences.written(batch.identity, batch.count, at)
            self.sequences.step(SequenceEvent.WRITTEN if written else SequenceEvent.LOST)
            self.settle()
        elif batch in self.closed:
            self.closed.remove(batch)
        elif batch in self.overflow:
            self.overflow.remove(batch)

    def replace(self, batch: QueuedBatch, parts: list[QueuedBatch]) -> None:
        """Put the parts of a batch that was in flight, and was split, in its position."""
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts
        self.in_flight -= 1
        self.sequences.step(SequenceEvent.RETURNED)
        self.settle()

    # Sequences

    def settle(self) -> None:
        """Decide how to go on, once nothing is in flight after a batch came back."""
        if self.in_flight:
            return
        if self._next_incarnation is not None:
            self._change()
        if self.sequences.state is not SequenceState.DRAINING:
            return
        head_refused = bool(self.sent) and self.sent[0].refused
        state = self.sequences.drained(left=bool(self.sent), head_refused=head_refused)
        if state is SequenceState.RESTARTING:
            # None of these was written: they get new sequences, in the same order.
            for batch in self.sent:
                batch.requeue(unknowable=self.vanished and batch.in_log is not InLog.NO)
            self.closed.extendleft(reversed(self.sent))
            self.sent.clear()
        self.vanished = self.vanished and bool(self.sent)

    def abandon(self) -> None:
        """Stop waiting for the responses of a former leader.

        That is safe with sequences: the new leader knows what it has, and the old one is fenced.
        """
        for batch in [batch for batch in self.sent if batch.stage is BatchStage.IN_FLIGHT]:
            batch.abandon()
            self.come_back(batch)

    # Topics of the same name

    @property
    def changing(self) -> bool:
        """Whether it will go over to another topic of the same name once nothing is in flight."""
        return self._next_incarnation is not None

    def rename(self, incarnation: Hashable) -> None:
        """Call the topic, which is the same as before, so from now on."""
        if not self.changing:
            self.incarnation = incarnation

    def incarnate(self, incarnation: Hashable) -> None:
        """Go over to another topic of the same name, once nothing is in flight.

        Batches without an outcome by then begin there with new sequences. The old ones are kept:
        metadata may be wrong, and when the partition returns to a topic where it was before, what
        was sent there is sent with the same sequences again and is written once.
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
            # A request that named the topic may have reached either of the two.
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
