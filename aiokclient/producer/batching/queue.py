"""The queues of a topic: the batches of each partition, in the order of their sends.

A queue has, from the oldest to the newest: the batches that were sent (in the order of their
sequences), the closed batches, the open batch, and the batches in the overflow queue. A batch that
was sent keeps its position until it has its outcome, whether it is in flight or waits to be sent
again. Records are appended to the open batch. While batches are in the overflow queue, the open
batch is the newest of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.cluster.metadata.snapshot import TopicInfo, differ
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.sequences import (
    BatchIdentity,
    PartitionSequences,
    SequenceEvent,
    SequenceState,
)
from aiokclient.producer.batching.stages import BatchStage, InLog
from aiokclient.producer.delivery import delivery
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.producer.sending.sender import Sender

REQUIRED = 150
"""Number of batches that must be written before the full size is first tried again."""
MOST_REQUIRED = 1 << 20
"""The largest number of batches that must be written before the full size is tried again."""


class BatchLimit:
    """The largest size of a topic's batches, in bytes, which adapts to what the brokers accept.

    When the broker refuses a batch as too large, the limit is halved. After a number of written
    batches the full size is tried again. Each failed attempt doubles that number.
    """

    __slots__ = ("_largest", "_probing", "_required", "_written", "lowered", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        """The current limit for the size of a batch, in bytes."""
        self.lowered = False
        """Whether the current limit is below the configured one."""
        self._largest = size
        self._written = 0
        """Number of batches of about the limit's size written since the last refusal."""
        self._required = REQUIRED
        self._probing = False
        """Whether the full size was restored since the last refusal."""

    def halve_limit(self, size: int) -> int:
        """Lower the limit after a batch of `size` bytes was refused. Return the limit of its parts.

        If the refused batch was the attempt to use the full size again, the next attempt comes
        after twice as many batches.
        """
        limit = size // 2
        self._set_limit(min(self.size, limit))
        self._written = 0
        if self._probing:
            self._probing = False
            self._required = min(2 * self._required, MOST_REQUIRED)
        return limit

    def note_written(self, size: int) -> None:
        """Count a batch of `size` bytes that was written while the limit was lowered.

        After enough such batches the full size is restored.
        """
        if 2 * size < self.size:
            return
        self._written += 1
        if self._written >= self._required:
            self._probing = True
            self._set_limit(self._largest)

    def _set_limit(self, size: int) -> None:
        self.size = size
        self.lowered = size < self._largest


NO_ID = UUID(int=0)


class TopicStatus:
    """The state of a topic that all its queues share."""

    __slots__ = (
        "_cluster_id",
        "_known_id",
        "batch_limit",
        "incarnation",
        "info",
        "missing_since",
        "moving",
        "name",
        "recreations",
        "topic_id",
    )

    def __init__(self, name: str, batch_limit: int) -> None:
        self.name = name
        self.batch_limit = BatchLimit(batch_limit)
        self.info: TopicInfo | None = None
        """The latest metadata of the topic, or None before the first response."""
        self.topic_id = NO_ID
        """Kafka's id of the topic; all zeros if the brokers have no topic ids."""
        self.missing_since: float | None = None
        """The time at which the brokers began to report an error, on the loop's clock."""
        self.moving = False
        """Whether records are being moved to the queues of their partitions."""
        self.incarnation: Hashable = None
        """The topic id, or if the brokers have no topic ids, the cluster id."""
        self.recreations = 0
        """Number of times that the topic was found to be another one of the same name."""
        self._known_id = NO_ID
        """The last topic id that was not all zeros."""
        self._cluster_id: str | None = None

    @property
    def partition_count(self) -> int:
        """Number of partitions that the metadata lists."""
        return 0 if self.info is None else len(self.info.partitions)

    def store_metadata(self, info: TopicInfo, now: float) -> bool:
        """Store new metadata. Return whether it is the first to report an error."""
        self.info, self.topic_id = info, info.topic_id
        if not info.error:
            self.missing_since = None
            return False
        if self.missing_since is not None:
            return False
        self.missing_since = now
        return True

    def store_identity(self, found: UUID, cluster_id: str | None) -> bool:
        """Store the identity of the topic. Return whether it is a different topic than before.

        If the brokers have no topic ids, only a different cluster id shows a different topic.
        """
        moved = differ(self._cluster_id, cluster_id)
        known = self._known_id
        if not found.int and not moved:
            found = known
        changed = known != found if known.int and found.int else moved
        self.recreations += changed
        self._known_id = found
        self._cluster_id = cluster_id or self._cluster_id
        self.incarnation = found if found.int else self._cluster_id
        return changed

    def begin_moving(self) -> None:
        """Store that the topic's records are being moved to the queues of their partitions."""
        self.moving = True

    def end_moving(self) -> None:
        """Store that all records of the topic were moved to the queues of their partitions."""
        self.moving = False


FORMER = 4
"""Number of earlier topics of the same name whose sequences a partition keeps."""

# These are compared for every batch, so they are looked up only once.
_IN_FLIGHT = BatchStage.IN_FLIGHT
_FLOWING, _DRAINING = SequenceState.FLOWING, SequenceState.DRAINING

_STEP = 1023
"""The expected size of the next batch is rounded up to a multiple of `_STEP + 1` bytes."""


class Incarnation(NamedTuple):
    """The sequences of a partition in an earlier topic of the same name."""

    sequences: PartitionSequences
    sent: dict[ProducerBatch, BatchIdentity]
    """The batches that were sent to that topic and have no outcome, with their identities."""


class PartitionQueue(delivery.QueueState):
    """The batches of one partition, and whether it may send.

    `partition` is None for the records of a topic whose partitions are not known.
    """

    __slots__ = (
        "_former",
        "_next_incarnation",
        "absent_since",
        "blocked",
        "buffered",
        "closed",
        "in_flight",
        "incarnation",
        "leader_epoch",
        "likely",
        "listed_in",
        "overflow",
        "overflowed",
        "partition",
        "sender",
        "sent",
        "sequences",
        "topic",
        "topic_partition",
        "vanished",
    )

    open: ProducerBatch | None

    def __init__(self, topic: TopicStatus, partition: int | None) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.topic_partition = TopicPartition(topic.name, -1 if partition is None else partition)
        """The topic and partition that errors name; the partition is -1 while it is not known."""
        self.buffered = 0
        """Bytes that the batches hold in the buffer."""
        self.overflowed = 0
        """Bytes that the batches hold in the overflow queue."""
        self.sent: list[ProducerBatch] = []
        self.in_flight = 0
        """Number of batches in `sent` that wait for a response."""
        self.closed: deque[ProducerBatch] = deque()
        self.overflow: deque[ProducerBatch] = deque()
        """Closed batches in the overflow queue."""
        self.sequences = PartitionSequences()
        self.sender: Sender | None = None
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

    def all_batches(self) -> Iterator[ProducerBatch]:
        """Yield all batches without an outcome, the oldest first."""
        yield from self.sent
        yield from self.closed
        if self.open is not None and not self.open.in_overflow:
            yield self.open
        yield from self.overflow
        if self.open is not None and self.open.in_overflow:
            yield self.open

    def leaving_batches(self) -> list[ProducerBatch]:
        """Return the batches that must be moved so that free records reach another partition.

        These are the oldest batch with such records and all later ones, because the records that
        stay must keep their order. None is moved as long as the topic is the same, because a broker
        with old metadata may have omitted the partition.
        """
        if self.topic.topic_id.int and self.listed_in == self.topic.recreations:
            return []
        unsent = [batch for batch in self.all_batches() if batch not in self.sent]
        first = next(
            (at for at, batch in enumerate(unsent) if batch.has_free_records()), len(unsent)
        )
        if first < len(unsent):
            self.close_open_batch()  # The records that stay come into a new batch.
        return [batch for batch in unsent[first:] if batch.may_move]

    def oldest_batch(self) -> ProducerBatch | None:
        """Return the oldest batch without an outcome, or None."""
        return next(self.all_batches(), None)

    # -- filling

    def set_open_batch(self, batch: ProducerBatch) -> None:
        """Append records to this batch from now on."""
        self.open = batch

    def discard_open_batch(self) -> None:
        """Discard the open batch, which has no records."""
        self.open = None

    def close_open_batch(self) -> ProducerBatch | None:
        """Close and return the open batch, if any. It stays in the queue or the overflow queue."""
        batch = self.open
        if batch is not None:
            self._close_batch(batch, self.overflow if batch.in_overflow else self.closed)
        return batch

    def _close_batch(self, batch: ProducerBatch, line: deque[ProducerBatch]) -> None:
        self.open = None
        self.likely = (batch.close_builder() | _STEP) + 1
        line.append(batch)

    def first_in_overflow(self) -> ProducerBatch:
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

    def on_listed(self) -> None:
        """Record that the metadata lists the partition."""
        self.absent_since = None
        self.rename_incarnation(self.topic.incarnation)

    def on_unlisted(self, now: float) -> None:
        """Record that the metadata no longer lists the partition."""
        self.set_leader(None)
        self.absent_since = now

    def set_leader(self, leader: Sender | None, epoch: int | None = None) -> None:
        """Send to this leader from now on; `epoch` is its leader epoch."""
        if self.sender is not None and self.sender is not leader:
            self.sender.lose_queue(self)
        self.sender = leader
        if epoch is not None:
            self.leader_epoch = epoch

    def note_listed(self) -> None:
        """Store that the metadata of the present topic lists the partition."""
        self.listed_in = self.topic.recreations

    def note_vanished(self) -> None:
        """Store that the leader knows no such partition of a topic with this name."""
        self.vanished = True

    def block_sending(self) -> None:
        """Stop sending after an error, until `unblock_sending` is called."""
        self.blocked = True

    def unblock_sending(self) -> None:
        """Resume sending after `block_sending`."""
        self.blocked = False
        self.notify_sender()

    def notify_sender(self, at_once: bool = False) -> None:
        """Notify the sender that there may be something to send.

        With `at_once`, the sender sends within this call if nothing is in flight to the broker.
        """
        if self.sender is not None:
            self.sender.schedule_queue(self, at_once)

    def send_full_batches(self) -> None:
        """Send the closed batches within this call, as far as that is permitted."""
        if self.sender is not None:
            self.sender.send_full_batches(self)

    # -- sending

    @property
    def more(self) -> bool:
        """Whether there is a batch that is not in flight, even if it cannot be sent yet."""
        if self.open is not None or self.closed:
            return True
        return self.in_flight < len(self.sent)

    def next_batch(self, idle: bool, limit: int) -> ProducerBatch | None:
        """Return the batch that may be sent now, without removing it, or None.

        `idle` says that nothing is in flight to the broker, so that an awaited batch need not
        linger.
        """
        in_flight, sequences, closed = self.in_flight, self.sequences, self.closed
        if self.blocked or sequences.state is _DRAINING:
            return None
        if in_flight and (
            # Until the leader has accepted a batch of an epoch, only one is sent (see `single`).
            in_flight >= limit or (sequences.producer_id >= 0 and not sequences.proven)
        ):
            return None
        if in_flight < len(self.sent):
            return self.sent[in_flight]
        if closed:
            return closed[0]
        batch = self.open
        if batch is None or batch.in_overflow or not (batch.due or (batch.skips_linger and idle)):
            return None
        self._close_batch(batch, closed)
        return batch

    def mark_in_flight(self, batch: ProducerBatch) -> bool:
        """Mark the batch as in flight, because a request with it is about to be sent.

        Return whether there is another batch that is not in flight (see `more`).
        """
        sent, at = self.sent, self.in_flight
        if at == len(sent):
            sent.append(self.closed.popleft())
        assert sent[at] is batch
        batch.begin_attempt()
        at += 1
        self.in_flight = at
        return self.open is not None or at < len(sent) or len(self.closed) > 0

    def requeue_batch(
        self, batch: ProducerBatch, *, refused: bool = False, foreign: bool = False
    ) -> None:
        """Send the batch again, once nothing of the partition is in flight.

        `refused` says that the leader refused it because an earlier batch is missing. `foreign`
        says that the leader refused it because the leader has the state of another producer.
        """
        refused = refused or foreign
        batch.return_to_queue(refused=refused)
        self.in_flight -= 1
        if foreign:
            self.sequences.apply_event(SequenceEvent.FOREIGN)
        else:
            self.sequences.apply_event(SequenceEvent.REFUSED if refused else SequenceEvent.RETURNED)
        self.continue_when_idle()

    def pause_until_drained(self) -> None:
        """Stop sending until no batch is in flight."""
        self.sequences.apply_event(SequenceEvent.RETURNED)
        self.continue_when_idle()

    def remove_batch(
        self, batch: ProducerBatch, written: bool = False, base_offset: int = -1
    ) -> None:
        """Remove a batch that has its outcome, or whose records have moved."""
        sent = self.sent
        if batch in sent:
            sequences = self.sequences
            if batch.stage is _IN_FLIGHT:
                self.in_flight -= 1
            if sent[0] is batch:  # Usually so, and faster than to compare all.
                del sent[0]
            else:
                sent.remove(batch)
            if written and batch.identity is not None:
                # With the topic's id in the request, the log cannot be that of another topic, so
                # the offset need not be checked.
                at = base_offset if batch.by_name else -1
                sequences.mark_written(batch.identity, batch.count, at)
            if not written or sequences.state is not _FLOWING:
                event = SequenceEvent.WRITTEN if written else SequenceEvent.LOST
                sequences.apply_event(event)
            if sequences.state is _DRAINING or self._next_incarnation is not None:
                self.continue_when_idle()
        elif self.open is batch:
            self.open = None
        elif batch in self.closed:
            self.closed.remove(batch)
        elif batch in self.overflow:
            self.overflow.remove(batch)

    def replace_batch(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch that was in flight by the parts into which it was split."""
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts
        self.in_flight -= 1
        self.sequences.apply_event(SequenceEvent.RETURNED)
        self.continue_when_idle()

    # -- sequences

    def continue_when_idle(self) -> None:
        """Decide how to continue after a batch failed or must be sent again.

        Do nothing yet if another batch is in flight.
        """
        if self.in_flight:
            return
        if self._next_incarnation is not None:
            self._change_topic()
        if self.sequences.state is not SequenceState.DRAINING:
            return
        head_refused = bool(self.sent) and self.sent[0].refused
        state = self.sequences.on_drained(left=bool(self.sent), head_refused=head_refused)
        if state is SequenceState.RESTARTING:
            # None of these batches was written, so they get new sequences in the same order.
            for batch in self.sent:
                batch.requeue_without_identity(
                    unknowable=self.vanished and batch.in_log is not InLog.NO
                )
            self.closed.extendleft(reversed(self.sent))
            self.sent.clear()
        self.vanished = self.vanished and bool(self.sent)

    def ignore_responses(self) -> None:
        """Stop waiting for the responses of a former leader.

        With sequences this is safe: the new leader recognizes batches that were already written,
        and the old leader can no longer commit writes.
        """
        for batch in [batch for batch in self.sent if batch.stage is BatchStage.IN_FLIGHT]:
            batch.ignore_response()
            self.requeue_batch(batch)

    # -- topics of the same name

    @property
    def changing(self) -> bool:
        """Whether the queue will change to another topic of the same name when it is drained."""
        return self._next_incarnation is not None

    def rename_incarnation(self, incarnation: Hashable) -> None:
        """Store another identifier of the topic. It is still the same topic."""
        if not self.changing:
            self.incarnation = incarnation

    def change_incarnation(self, incarnation: Hashable) -> None:
        """Change to another topic of the same name, once nothing is in flight.

        Batches that have no outcome by then are sent to the new topic with new sequences. The old
        sequences are kept, because the metadata may be wrong. If the partition returns to an
        earlier topic, batches that were sent there are sent again with their former sequences, so
        that they are written once.
        """
        changes = incarnation != self.incarnation
        self._next_incarnation = incarnation if changes else None
        if changes:
            self.sequences.apply_event(SequenceEvent.RECREATED)
            self.continue_when_idle()

    def _change_topic(self) -> None:
        sent = {batch: batch.identity for batch in self.sent if batch.identity is not None}
        self._former[self.incarnation] = Incarnation(self.sequences, sent)
        self.incarnation, self._next_incarnation = self._next_incarnation, None
        before = self._former.pop(self.incarnation, None) or Incarnation(PartitionSequences(), {})
        if len(self._former) > FORMER:
            del self._former[next(iter(self._former))]
        for batch in self.sent:
            # A request that named the topic may have reached the old topic or the new one.
            ambiguous = batch.by_name and batch.identity is not None
            batch.requeue_without_identity(unknowable=ambiguous and batch.in_log is not InLog.NO)
        waiting = self.closed
        waiting.extendleft(reversed(self.sent))
        self.sent = []
        while waiting and waiting[0] in before.sent:
            batch = waiting.popleft()
            batch.resume_identity(before.sent[batch])
            self.sent.append(batch)
        self.sequences = before.sequences
        if self.sequences.producer_id >= 0 and self.sequences.state is not SequenceState.RESTARTING:
            self.sequences.apply_event(SequenceEvent.RETURNED)


class Topic(delivery.TopicState):
    """The queues of a topic. While `known` is false all records wait in `undesignated`."""

    __slots__ = ("absent", "leaving", "status", "sticky_more", "undesignated", "unseen")

    queues: list[PartitionQueue]
    sticky: PartitionQueue | None

    def __init__(self, name: str, batch_limit: int) -> None:
        super().__init__(name)
        self.status = TopicStatus(name, batch_limit)
        self.undesignated = self.make_queue(None)
        self.absent: dict[int, PartitionQueue] = {}
        """The queues of partitions that the metadata does not list, or no longer."""
        self.leaving: deque[ProducerBatch] = deque()
        """Batches of absent partitions whose records are being moved to others."""
        self.sticky_more = 0
        """Number of bytes by which the sticky queue may be kept to fill its batch."""
        self.unseen: set[int] = set()
        """Those of them that it has never listed."""

    def make_queue(self, partition: int | None) -> PartitionQueue:
        """Make the queue of a partition, or of the records whose partitions are not known."""
        return PartitionQueue(self.status, partition)

    def all_queues(self) -> list[PartitionQueue]:
        """Return the queues of all partitions, listed or absent, and the undesignated one."""
        return [*self.queues, *self.absent.values(), self.undesignated]

    def add_partition(self) -> PartitionQueue:
        """Add the next partition that the metadata lists. Return its queue.

        A partition that was absent gets its former queue back.
        """
        index = len(self.queues)
        self.unseen.discard(index)
        queue = self.absent.pop(index, None) or self.make_queue(index)
        queue.on_listed()
        self.queues.append(queue)
        return queue

    def add_absent_partition(self, partition: int, now: float) -> PartitionQueue:
        """Add a partition that the metadata does not list. Return its queue."""
        queue = self.absent[partition] = self.make_queue(partition)
        self.unseen.add(partition)
        queue.on_unlisted(now)
        return queue

    def forget_unseen_partitions(self) -> None:
        """Drop the partitions that no metadata has listed and for which no record waits."""
        for partition in [p for p in self.unseen if self.absent[p].oldest_batch() is None]:
            self.unseen.discard(partition)
            del self.absent[partition]

    def leave_absent_partitions(self) -> bool:
        """Let records of absent partitions go to others unless the application chose the partition.

        Return whether there are such records.
        """
        if not self.leaving:
            for partition in sorted(self.absent):
                self.leaving.extend(self.absent[partition].leaving_batches())
        return bool(self.leaving)

    def next_waiting(self) -> ProducerBatch | None:
        """Return the next batch whose records are to be moved to their partitions, or None."""
        while self.leaving:
            batch = self.leaving.popleft()
            if batch.may_move and batch.queue.partition in self.absent:
                return batch
        return self.undesignated.oldest_batch()

    def drop_partitions(self, count: int, now: float) -> list[PartitionQueue]:
        """Keep only the first `count` partitions. Return the queues of the others, now absent."""
        dropped = self.queues[count:]
        del self.queues[count:]
        for queue in dropped:
            assert queue.partition is not None
            self.absent[queue.partition] = queue
            queue.on_unlisted(now)
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

    def stick_to_queue(self, queue: PartitionQueue, size: int, first: int) -> None:
        """Let records without a key go to this queue for `size` bytes, which include `first`."""
        self.sticky = queue
        self.sticky_left = size - first
        self.sticky_more = size

    def stick_for_longer(self, size: int, first: int) -> bool:
        """Keep the sticky queue for `size` more bytes, which include `first`.

        Return False, and change nothing, once it was kept for as many bytes as at first.
        """
        if self.sticky_more <= 0:
            return False
        self.sticky_left = size - first
        self.sticky_more -= size
        return True

    def leave_sticky(self) -> None:
        """Let the next record without a key go to another partition."""
        self.sticky_left = 0
