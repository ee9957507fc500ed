"""A batch of records of one partition, from its first record to its outcome.

`stages` has the table of a batch's stages. Everything that changes a batch is a method here; other
modules read its attributes. The exception is `left`, which the path of each record decreases.
"""

from __future__ import annotations

from array import array
from typing import Generic, Protocol, TypeVar

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.sequences import BatchIdentity, advance
from aiokclient.producer.batching.stages import TRANSITIONS, BatchStage, InLog, StageError
from aiokclient.producer.delivery.delivery import DeliveryBatch, DeliveryHooks
from aiokclient.producer.state import BatchState
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import TopicPartition

__all__ = ["RECORD_OVERHEAD", "FailedRecords", "ProducerBatch"]

RECORD_OVERHEAD = 40
"""An upper bound, in bytes, of what a record without headers takes beyond its key and value:
length, attributes, deltas of timestamp and offset, the lengths of key and value, no headers."""

FIRST_RESERVE = 1024
"""What an open batch reserves at first beyond its first record. The reserve grows fourfold as it
fills."""

EMPTY = RecordBatchBuilder(limit=0)
"""The builder of batches that have their outcome."""


class BatchQueue(Protocol):
    """What a batch asks of the queue that it belongs to."""

    @property
    def partition(self) -> int | None:
        """The partition; None while the partitions of the topic are not known."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition that errors name."""


Q_co = TypeVar("Q_co", bound=BatchQueue, covariant=True)


class ProducerBatch(BatchState, Generic[Q_co]):
    """Records for one partition, or for a topic whose partitions are not known yet.

    The type of its queue is a parameter, because the module of the queues imports this one.
    """

    __slots__ = (
        "attempt",
        "by_name",
        "compressing",
        "created",
        "due",
        "failures",
        "first_sent",
        "identity",
        "in_log",
        "queue",
        "refused",
        "requests",
        "size",
        "stage",
        "whole",
    )

    def __init__(
        self,
        topic: str,
        queue: Q_co,
        hooks: DeliveryHooks,
        builder: RecordBatchBuilder,
        created: float,
    ) -> None:
        super().__init__(topic, queue.partition, hooks, builder)
        self.queue = queue
        self.stage = BatchStage.OPEN
        self.created = self.first_sent = created
        """The times of its first record and of its first request, on the loop's clock."""
        self.due = False
        """Whether it has lingered long enough."""
        self.compressing = False
        """Whether a thread compresses it."""
        self.size = 0
        """Bytes on the wire; 0 until it is compressed."""
        self.identity: BatchIdentity | None = None
        """Its producer id, epoch, and first sequence; None until it is sent."""
        self.attempt = 0
        """The number of its last request. Responses to earlier ones are ignored."""
        self.failures = 0
        """Number of attempts that failed, for the backoff."""
        self.refused = False
        """Whether the last response was that it does not follow what the leader has."""
        self.by_name = False
        """Whether the last request named the topic by its name, not by its id."""
        self.in_log = InLog.NO
        """Whether an earlier request with the same identity has written it."""
        self.whole: list[ProducerBatch[Q_co]] | None = None
        """All parts of a batch that was split after an unknown outcome; only in the first part."""
        self.requests = 0
        """Number of requests that use its bytes. Its memory is free only after the last of them."""

    def _enter(self, stage: BatchStage) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise StageError(self.stage, stage)
        self.stage = stage

    # Filling

    def begin(self, reserved: int, *, parked: bool) -> None:
        """Start with `reserved` bytes of memory; `parked` says that it is in the overflow queue."""
        self.parked = parked
        self.reserved = reserved
        if self.queue.partition is None:
            self.explicit = array("q")
        self.room()

    def reserve(self, size: int) -> None:
        """Note that `size` more bytes of memory are reserved for it."""
        self.reserved += size
        self.left += size

    def trim(self) -> int:
        """Give up memory that is reserved and not used. Return its size."""
        unused = self.reserved - self.builder.size
        self.reserved -= unused
        return unused

    def free(self) -> None:
        """Note that all its memory was given back."""
        self.reserved = self.left = 0
        self.parked = False

    def leave_overflow(self) -> None:
        """Note that it has moved from the overflow queue into the buffer."""
        self.parked = False

    def choose_partitions(self, partition: int, count: int = 1) -> None:
        """Note the partition that the program chose for the last `count` records; -1 for none."""
        assert self.explicit is not None
        self.explicit.extend([partition] * count)

    def backdate(self, created: float) -> None:
        """Let its time run from `created` on, if that is earlier: it has taken an older record."""
        self.created = min(self.created, created)

    def end_linger(self) -> None:
        """Note that it has lingered long enough."""
        self.due = True

    # Encoding

    def close(self) -> None:
        """Accept no more records."""
        self._enter(BatchStage.QUEUED)

    def count_records(self) -> None:
        """Take over the number of records from the builder."""
        self.count = self.builder.count

    def encode(self) -> int:
        """Compress it, in the calling thread. Return its size in bytes."""
        self.builder.close()
        return self.builder.encoded_size

    def begin_compressing(self) -> None:
        """Note that a thread compresses it."""
        self.compressing = True

    def end_compressing(self, size: int) -> None:
        """Note that it is compressed, to `size` bytes; 0 if that failed."""
        self.compressing = False
        self.size = size

    def seal(self, transactional: bool = False) -> memoryview:
        """Return the bytes to send, with its present identity."""
        if self.identity is None:
            return self.builder.seal()
        producer_id, epoch, sequence = self.identity
        return self.builder.seal(producer_id, epoch, sequence, transactional=transactional)

    def release_bytes(self) -> None:
        """Keep no records: a delivery that the program keeps must not keep them, too."""
        self.use(EMPTY)
        self.whole = None

    # Sending

    def identify(self, identity: BatchIdentity) -> None:
        """Give it the identity with which it is sent, now and again."""
        self.identity = identity

    def begin_attempt(self) -> None:
        """Begin an attempt to send it."""
        self._enter(BatchStage.IN_FLIGHT)
        self.refused = False
        self.attempt += 1

    def enter_request(self, now: float, *, by_name: bool) -> None:
        """Note that a request uses its bytes from now on."""
        self.requests += 1
        self.by_name = by_name
        if self.attempt == 1:
            self.first_sent = now

    def leave_request(self) -> bool:
        """Note that a request has let go of its bytes. Return whether they are of no more use."""
        self.requests -= 1
        return self.done and not self.requests

    def abandon(self) -> None:
        """Ignore the response to the last request: another leader gets the batch."""
        self.attempt += 1
        self.note_unknown()

    def note_unknown(self) -> None:
        """Note that the last request may have written it."""
        self.in_log = InLog.MAYBE

    def count_failure(self) -> None:
        """Count a failed attempt, for the backoff."""
        self.failures += 1

    def come_back(self, *, refused: bool) -> None:
        """Wait to be sent again; `refused`: it does not follow what the leader has."""
        self._enter(BatchStage.BACKING_OFF)
        self.refused = refused

    def requeue(self, *, unknowable: bool) -> None:
        """Forget the identity, because the batch begins again with another one.

        `unknowable`: it may be in a log where nobody recognizes its sequence.
        """
        self._enter(BatchStage.QUEUED)
        self.in_log = InLog.UNKNOWABLE if unknowable else InLog.NO
        self.identity = None
        self.refused = False
        self.whole = None

    def resume(self, identity: BatchIdentity) -> None:
        """Return to an earlier identity, with which it may have been written."""
        self._enter(BatchStage.BACKING_OFF)
        self.identity = identity
        if self.in_log is InLog.NO:
            self.in_log = InLog.MAYBE

    # Splitting

    def parts(self, builders: list[RecordBatchBuilder]) -> list[ProducerBatch[Q_co]]:
        """Make smaller batches of the records, one for each builder, and forward deliveries there.

        The batch itself is split then. Its parts stand where it stood: they wait to be sent again,
        with its sequences.
        """
        self._enter(BatchStage.SPLIT)
        parts: list[ProducerBatch[Q_co]] = []
        before = 0
        for builder in builders:
            part = self._part(builder, before)
            self.forward(part.count, part, 0)
            before += part.count
            parts.append(part)
        if self.whole is not None:
            parts[0].whole = [*parts, *self.whole[1:]]
        elif self.in_log is not InLog.NO and self.identity is not None:
            # Only the response to the first part tells whether the whole was written.
            parts[0].whole = parts
        return parts

    def _part(self, builder: RecordBatchBuilder, before: int) -> ProducerBatch[Q_co]:
        part = ProducerBatch(self.topic, self.queue, self._hooks, builder, self.created)
        part.stage = BatchStage.BACKING_OFF
        part.count = builder.count
        part.due = True
        part.demanded = self.demanded
        part.reserved = builder.size
        part.note(0, self.timestamp_of(before))
        part.stamps += [
            (index - before, timestamp)
            for index, timestamp in self.stamps
            if before < index < before + part.count
        ]
        if self.identity is not None:
            first = advance(self.identity.sequence, before)
            part.identity = self.identity._replace(sequence=first)
        return part

    def pass_on_whole(self) -> None:
        """Let the response to the next part tell whether the whole was written."""
        rest = [] if self.whole is None else self.whole[1:]
        if rest:
            rest[0].whole = rest

    def vacate(self) -> None:
        """Note that all records have moved to other batches."""
        if self.stage is not BatchStage.SPLIT:
            self._enter(BatchStage.SPLIT)
        self.emptied()

    # Outcomes

    def acknowledge(self, base_offset: int, append_time: int) -> None:
        """Complete it: the leader has it from `base_offset` on; -1 where that is not known."""
        self._enter(BatchStage.DONE)
        self.succeed(base_offset, append_time)

    def expired(self, now: float, timeout: float) -> bool:
        """Return whether `timeout` seconds have passed since its first record."""
        return now - self.created >= timeout

    def with_partition(self, error: KafkaError) -> KafkaError:
        """Return the error with this batch's partition; a copy unless it has that already."""
        return with_partition(error, self.queue.topic_partition)

    def fail_records(self, error: KafkaError) -> list[DeliveryBatch]:
        """Let the records fail. Return the batches that they are in then.

        That is this one, unless its records were sent to partitions of a topic that is not known:
        each error names the partition that its record was sent to.
        """
        self._enter(BatchStage.DONE)
        self.count_records()
        explicit = self.explicit
        if explicit is None or self.moved or max(explicit, default=-1) < 0:
            self.fail(self.with_partition(error))
            return [self]
        parts: dict[int, FailedRecords] = {}
        for index, chosen in enumerate(explicit):
            part = parts.get(chosen)
            if part is None:
                part = parts[chosen] = FailedRecords(self.topic, chosen, self._hooks)
            self.forward(1, part, part.add(self.timestamp_of(index)))
        for chosen, part in parts.items():
            part.fail(with_partition(error, TopicPartition(self.topic, chosen)))
        self.emptied()
        return [*parts.values()]


def with_partition(error: KafkaError, topic_partition: TopicPartition) -> KafkaError:
    """Return the error with this partition; a copy unless it has that already."""
    if error.topic_partition == topic_partition:
        return error
    return error.with_partition(topic_partition)


class FailedRecords(DeliveryBatch):
    """The outcome of records that never got to a partition; -1 stands for none chosen."""

    __slots__ = ("stamps",)

    stamps: list[int]

    def __init__(self, topic: str, partition: int, hooks: DeliveryHooks) -> None:
        super().__init__(topic, partition if partition >= 0 else None, hooks)
        self.stamps = []

    def add(self, timestamp: int) -> int:
        """Take one more record. Return its index."""
        self.stamps.append(timestamp)
        self.count += 1
        return self.count - 1

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp that one of its records was sent with."""
        return self.stamps[index]
