"""The batches of one partition, in the order of their sends.

From the oldest to the youngest: those that were sent (numbered, in the order of their numbers),
the closed ones, the open one, and those in the parking. A batch that was sent stays in its place
until it has its outcome, under way or waiting to be sent again. Records are appended to the open
batch; once something is parked, the open batch is the youngest of the parking.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.buffer_pool import Account
from aiokclient.producer.batching.sequences import Event, Numbers, PartitionSequences, State
from aiokclient.producer.batching.topic_status import TopicStatus
from aiokclient.types import TopicPartition

__all__ = ["Leader", "PartitionQueue", "QueuedBatch"]

UNDESIGNATED_BATCH = 32 * 1024
"""The largest batch of records whose partitions are not known: one is moved without a pause."""


FORMER = 4
"""Number of earlier topics of the same name whose sequences a partition keeps."""


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
    sent: dict[QueuedBatch, Numbers]
    """The batches without an outcome that were sent there."""


class PartitionQueue(Account):
    """One partition's batches, and whether it may send; `partition` is None for the records of a
    topic whose partitions are not known."""

    __slots__ = (
        "_former",
        "_next_incarnation",
        "absent_since",
        "blocked",
        "closed",
        "incarnation",
        "leader_epoch",
        "likely",
        "parking",
        "partition",
        "sender",
        "sent",
        "sequences",
        "topic",
        "under_way",
        "vanished",
    )

    open: QueuedBatch | None

    def __init__(self, topic: TopicStatus, partition: int | None) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.sent: list[QueuedBatch] = []
        self.under_way = 0
        """How many of `sent` wait for an answer."""
        self.closed: deque[QueuedBatch] = deque()
        self.parking: deque[QueuedBatch] = deque()
        self.sequences = PartitionSequences()
        self.sender: Leader | None = None
        self.leader_epoch = -1
        self.likely = 0
        """The size of the batch before: the next one will probably be as large."""
        self.blocked = False
        """Backing off after an error."""
        self.absent_since: float | None = None
        """Since when the topic is known to lack this partition, on the loop's clock."""
        self.vanished = False
        """The leader said that there is no such partition, to a request that named the topic: what
        was sent after it may be in another topic's log, which takes any first sequence."""
        self.incarnation: Hashable = None
        """Which topic of this name `sequences` are about; None while that is not known."""
        self._next_incarnation: Hashable = None
        self._former: dict[Hashable, Incarnation] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        """What it is called in errors; the partition is -1 while it is not known."""
        return TopicPartition(self.topic.name, -1 if self.partition is None else self.partition)

    @property
    def batch_limit(self) -> int:
        """The size of a batch, in bytes."""
        limit = self.topic.batch_limit.size
        return limit if self.partition is not None else min(limit, UNDESIGNATED_BATCH)

    def batches(self) -> Iterator[QueuedBatch]:
        """All that have no outcome yet, the oldest first."""
        yield from self.sent
        yield from self.closed
        if self.open is not None and not self.open.parked:
            yield self.open
        yield from self.parking
        if self.open is not None and self.open.parked:
            yield self.open

    def oldest(self) -> QueuedBatch | None:
        """The first of them."""
        return next(self.batches(), None)

    def close_open(self) -> QueuedBatch | None:
        """End the open batch; it joins the line that it belongs to."""
        batch, self.open = self.open, None
        if batch is not None:
            (self.parking if batch.parked else self.closed).append(batch)
        return batch

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

    def poke(self, *, at_once: bool = False) -> None:
        """There may be something to send; `at_once`: within this call if nothing is under way."""
        if self.sender is not None:
            self.sender.ready(self, at_once=at_once)

    # Sending

    @property
    def more(self) -> bool:
        """Whether there is a batch beside those under way, though it may have to wait."""
        return self.open is not None or bool(self.closed) or self.under_way < len(self.sent)

    def next(self, idle: bool, limit: int) -> QueuedBatch | None:
        """The batch that may leave now; it stays where it is. None if there is none.

        `idle`: nothing is under way to the broker, so that an awaited batch need not linger.
        """
        if self.blocked or self.sequences.state is State.CALMING:
            return None
        if self.under_way >= (1 if self.sequences.single else limit):
            return None
        if self.under_way < len(self.sent):
            return self.sent[self.under_way]
        if not self.closed:
            batch = self.open
            if batch is None or batch.parked or not (batch.due or (batch.demanded and idle)):
                return None
            self.close_open()
        return self.closed[0]

    def leave(self, batch: QueuedBatch) -> None:
        """The batch is being sent."""
        if self.under_way == len(self.sent):
            self.sent.append(self.closed.popleft())
        assert self.sent[self.under_way] is batch
        self.under_way += 1
        batch.sending = True
        batch.refused = False
        batch.attempt += 1

    def come_back(
        self, batch: QueuedBatch, *, refused: bool = False, foreign: bool = False
    ) -> None:
        """The batch is to be sent again, once nothing of the partition is in flight.

        `refused`: it does not follow what the leader has. `foreign`: it was refused because the
        leader's state is not this producer's.
        """
        refused = refused or foreign
        self._answered(batch)
        batch.refused = refused
        if not foreign:
            self.sequences.step(Event.REFUSED if refused else Event.RETURNED)
        else:
            self.sequences.step(Event.FOREIGN)
        self.settle()

    def drain(self) -> None:
        """Send nothing more until nothing is in flight."""
        self.sequences.step(Event.RETURNED)
        self.settle()

    def remove(self, batch: QueuedBatch, *, written: bool = False, base_offset: int = -1) -> None:
        """The batch has its outcome, or its records have moved: it stands in no line any more."""
        if self.open is batch:
            self.open = None
        elif batch in self.sent:
            self._answered(batch)
            self.sent.remove(batch)
            if written and batch.numbers is not None:
                # A topic's id shows already that the log is the same.
                at = base_offset if batch.by_name else -1
                self.sequences.written(batch.numbers, batch.count, at)
            self.sequences.step(Event.WRITTEN if written else Event.LOST)
            self.settle()
        elif batch in self.closed:
            self.closed.remove(batch)
        elif batch in self.parking:
            self.parking.remove(batch)

    def replace(self, batch: QueuedBatch, parts: list[QueuedBatch]) -> None:
        """A batch that was refused as too large goes again as smaller ones, with its numbers."""
        self._answered(batch)
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts
        self.sequences.step(Event.RETURNED)
        self.settle()

    def _answered(self, batch: QueuedBatch) -> None:
        if batch.sending:
            batch.sending = False
            self.under_way -= 1

    # Numbers

    def settle(self) -> None:
        """Decide how to go on, once nothing is in flight after something came back."""
        if self.under_way:
            return
        if self._next_incarnation is not None:
            self._change()
        if self.sequences.state is not State.CALMING:
            return
        head_refused = bool(self.sent) and self.sent[0].refused
        state = self.sequences.calm(left=bool(self.sent), head_refused=head_refused)
        if state is State.RESTARTING:
            # None of these was written: they get new numbers, in the same order.
            for batch in self.sent:
                batch.undecidable = self.vanished and batch.uncertain
                _forget_numbers(batch)
            self.closed.extendleft(reversed(self.sent))
            self.sent.clear()
        self.vanished = self.vanished and bool(self.sent)

    def abandon(self) -> bool:
        """The leader has changed: stop waiting for answers of the old one; True if there were any.

        Safe with numbers: the new leader knows what it has, and the old one is fenced.
        """
        taken = [batch for batch in self.sent if batch.sending]
        for batch in taken:
            batch.attempt += 1
            batch.uncertain = True
            self.come_back(batch)
        return bool(taken)

    # Topics of the same name

    @property
    def changing(self) -> bool:
        """Whether it waits for what is in flight to go over to another topic of the same name."""
        return self._next_incarnation is not None

    def rename(self, incarnation: Hashable) -> None:
        """The topic is the same as before and called so from now on."""
        if not self.changing:
            self.incarnation = incarnation

    def incarnate(self, incarnation: Hashable) -> None:
        """The partition is that of another topic of the same name, once nothing is in flight.

        What has no outcome by then starts there with new numbers. The old ones are kept: metadata
        may be wrong, and when the partition goes back to a topic where it was before, what was
        sent there is sent with the same numbers again and lands once.
        """
        changes = incarnation != self.incarnation
        self._next_incarnation = incarnation if changes else None
        if changes:
            self.sequences.step(Event.RECREATED)
            self.settle()

    def _change(self) -> None:
        sent = {batch: batch.numbers for batch in self.sent if batch.numbers is not None}
        self._former[self.incarnation] = Incarnation(self.sequences, sent)
        self.incarnation, self._next_incarnation = self._next_incarnation, None
        before = self._former.pop(self.incarnation, None) or Incarnation(PartitionSequences(), {})
        if len(self._former) > FORMER:
            del self._former[next(iter(self._former))]
        for batch in self.sent:
            # A request that named the topic may have reached either of the two.
            batch.undecidable = batch.uncertain and batch.by_name and batch.numbers is not None
            _forget_numbers(batch)
        waiting = self.closed
        waiting.extendleft(reversed(self.sent))
        self.sent = []
        while waiting and waiting[0] in before.sent:
            batch = waiting.popleft()
            batch.numbers, batch.uncertain = before.sent[batch], True
            self.sent.append(batch)
        self.sequences = before.sequences
        if self.sequences.producer_id >= 0 and self.sequences.state is not State.RESTARTING:
            self.sequences.step(Event.RETURNED)


QueuedBatch: TypeAlias = ProducerBatch[PartitionQueue]


def _forget_numbers(batch: QueuedBatch) -> None:
    batch.numbers = None
    batch.refused = batch.uncertain = False
    batch.whole = None
