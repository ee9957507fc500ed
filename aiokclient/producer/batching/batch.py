"""A batch on its way: the outcome its records share, and what the producer knows about it."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from aiokclient.errors import KafkaError
from aiokclient.producer.batching.sequences import Numbers
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

SPENT = RecordBatchBuilder(limit=0)
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
        "attempts",
        "by_name",
        "compressing",
        "created",
        "due",
        "first_sent",
        "numbers",
        "pins",
        "queue",
        "ready",
        "refused",
        "sending",
        "size",
        "uncertain",
        "undecidable",
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
        self.created = self.first_sent = created
        """The times of its first record and of its first request, on the loop's clock."""
        self.due = False
        """It has lingered long enough."""
        self.ready = False
        """Closed and compressed: it can be sealed."""
        self.compressing = False
        self.size = 0
        """Bytes on the wire, once ready."""
        self.numbers: Numbers | None = None
        self.attempt = 0
        """The number of the attempt that counts; what comes of earlier ones is ignored."""
        self.attempts = 0
        """Failures that it met, for the backoff."""
        self.refused = False
        """The last answer was that it does not follow what the leader has."""
        self.sending = False
        """It waits for an answer."""
        self.by_name = False
        """The last request named the topic by its name, not by its id."""
        self.uncertain = False
        """An earlier attempt with the same numbers may have been written."""
        self.undecidable = False
        """Whether it was written can never be known: the topic is another one since."""
        self.whole: list[ProducerBatch[Q_co]] | None = None
        """In the first part of a batch that was split after an unknown outcome: all its parts."""
        self.pins = 0
        """Requests that hold its bytes: the memory is free only after the last of them."""

    def spend(self) -> None:
        """Its bytes are of no more use: whoever keeps a delivery does not keep them."""
        self.use(SPENT)
        self.whole = None

    def seal(self, transactional: bool = False) -> memoryview:
        """The bytes to send with its present numbers."""
        if self.numbers is None:
            return self.builder.seal()
        producer_id, epoch, sequence = self.numbers
        return self.builder.seal(producer_id, epoch, sequence, transactional=transactional)

    def finish(self) -> None:
        """Close and compress it; in the calling thread."""
        self.builder.close()
        self.size = self.builder.encoded_size

    def expired(self, now: float, timeout: float) -> bool:
        """Whether its time is over."""
        return now - self.created >= timeout

    def place(self, error: KafkaError) -> KafkaError:
        """Return the error with this batch's partition; a copy unless it has that already."""
        return placed(error, self.queue.topic_partition)

    def failed(self, error: KafkaError) -> list[DeliveryBatch]:
        """Let the records fail; return the batches that they are in then.

        That is this one, unless its records were sent to partitions of a topic that is not known:
        each error names the partition that its record was sent to.
        """
        self.count = self.builder.count
        explicit = self.explicit
        if explicit is None or self.moved or max(explicit, default=-1) < 0:
            self.fail(self.place(error))
            return [self]
        parts: dict[int, FailedRecords] = {}
        for index, chosen in enumerate(explicit):
            part = parts.get(chosen)
            if part is None:
                part = parts[chosen] = FailedRecords(self.topic, chosen, self._hooks)
            self.forward(1, part, part.add(self.timestamp_of(index)))
        for chosen, part in parts.items():
            part.fail(placed(error, TopicPartition(self.topic, chosen)))
        self.emptied()
        return [*parts.values()]


def placed(error: KafkaError, place: TopicPartition) -> KafkaError:
    """Return the error with this partition; a copy unless it has that already."""
    return error if error.topic_partition == place else error.with_partition(place)


class FailedRecords(DeliveryBatch):
    """The outcome of records that never got to a partition; -1 stands for none chosen."""

    __slots__ = ("stamps",)

    stamps: list[int]

    def __init__(self, topic: str, partition: int, hooks: DeliveryHooks) -> None:
        super().__init__(topic, partition if partition >= 0 else None, hooks)
        self.stamps = []

    def add(self, timestamp: int) -> int:
        """Take one more record; return its index."""
        self.stamps.append(timestamp)
        self.count += 1
        return self.count - 1

    def timestamp_of(self, index: int) -> int:
        """The timestamp that one of its records was sent with."""
        return self.stamps[index]
