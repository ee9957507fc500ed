"""What came of a record: a light handle on the outcome that its whole batch shares.

Theory of operation. A produce request has one outcome for a whole batch, so the outcome lives
once, in a `DeliveryBatch`, and a `Delivery` is no more than a batch and an index. It makes a
future only when somebody awaits it while the outcome is open; completing a batch of ten thousand
records touches no record at all.

Records may move to another batch before they have an outcome: from the queue of a topic whose
partitions are not known yet to those of its partitions, and from a batch that was refused as too
large to smaller ones. The old batch then holds a forward, a run of indices and where it went, and
each handle follows it when it is next looked at. A batch whose records have all moved is done.

A failure counts as retrieved once somebody was told: by an await, `result()`, `exception()` or
`gather`. The batch keeps one byte a record for that, from the first retrieval on.
"""

from __future__ import annotations

import asyncio
import contextvars
from bisect import bisect_right
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from aiokclient.errors import KafkaError
from aiokclient.producer._pure.waiter import Owner, OwnerHooks
from aiokclient.types import RecordMetadata

__all__ = ["Delivery", "DeliveryBatch", "DeliveryHooks", "Forward", "Run"]

PENDING = "The record has no outcome yet; await its delivery."


class DeliveryHooks(OwnerHooks, Protocol):
    """What a batch asks of the producer it belongs to."""

    def demand(self, batch: DeliveryBatch) -> None:
        """Somebody waits for this batch: send it as soon as that is allowed."""

    def retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """That many more failures of a failed batch were seen by the user."""


class Forward(NamedTuple):
    """Where a run of records went."""

    start: int
    end: int
    batch: DeliveryBatch
    first: int


class Run(NamedTuple):
    """So many records of one batch, from `first` on, all with one timestamp."""

    batch: DeliveryBatch
    first: int
    size: int
    timestamp: int


class DeliveryBatch(Owner):
    """The outcome that the records of one batch share. `partition` is None until it is chosen."""

    __slots__ = (
        "_forwards",
        "_hooks",
        "_retrieved",
        "append_time",
        "base_offset",
        "count",
        "demanded",
        "error",
        "moved",
        "parked",
        "partition",
        "report",
        "topic",
        "unretrieved",
    )

    def __init__(self, topic: str, partition: int | None, hooks: DeliveryHooks) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.moved = 0
        """Records 0 up to this one live in another batch now."""
        self.demanded = False
        self.parked = False
        self.error: KafkaError | None = None
        self.base_offset = -1
        self.append_time = -1
        """Milliseconds, when the broker sets the timestamps (LogAppendTime); otherwise -1."""
        self.unretrieved = 0
        self.report: Any = None
        """What logs the failure once nobody can retrieve it any more."""
        self._hooks: DeliveryHooks = hooks
        self._forwards: list[Forward] | None = None
        self._retrieved: bytearray | None = None

    # What the producer does

    def succeed(self, base_offset: int, append_time: int = -1) -> None:
        """The broker has the batch; a base offset of -1 means that it did not say where."""
        self.base_offset = base_offset
        self.append_time = append_time
        self._settle()

    def fail(self, error: KafkaError) -> None:
        """None of the records that are still here will be delivered."""
        self.error = error
        self.unretrieved = self.count - self.moved
        self._settle()

    def forward(self, count: int, batch: DeliveryBatch, index: int) -> None:
        """The next `count` records that are still here are now in `batch`, from `index` on."""
        start = self.moved
        self.moved = start + count
        if self._forwards is None:
            self._forwards = []
        if self._forwards:
            last = self._forwards[-1]
            if last.batch is batch and last.first + last.end - last.start == index:
                self._forwards[-1] = last._replace(end=self.moved)
                return
        self._forwards.append(Forward(start, self.moved, batch, index))

    def emptied(self) -> None:
        """All records have moved: nothing more happens here."""
        self._settle()

    def partition_of(self, index: int) -> int | None:
        """The partition of one of its records, if it is chosen."""
        return self.partition

    def timestamp_of(self, index: int) -> int:
        """The timestamp that one of its records was sent with; -1 where that is not kept."""
        return -1

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Where a written record is; `timestamp` is the one it was sent with."""
        base, partition = self.base_offset, self.partition
        assert partition is not None
        time = self.append_time if self.append_time >= 0 else timestamp
        return RecordMetadata(self.topic, partition, base + index if base >= 0 else -1, time)

    def _settle(self) -> None:
        self.done = True
        if self.moved:
            self.hand_over()
        self.run()

    # What the user's handles do

    @property
    def targets(self) -> list[DeliveryBatch]:
        """The batches that records of this one have moved to."""
        return [] if self._forwards is None else [f.batch for f in self._forwards]

    def locate(self, index: int) -> tuple[DeliveryBatch, int]:
        """Where the record is now."""
        batch = self
        while index < batch.moved:
            forwards = batch._forwards
            assert forwards is not None
            found = forwards[bisect_right(forwards, index, key=_start) - 1]
            batch, index = found.batch, found.first + index - found.start
        return batch, index

    def demand(self) -> None:
        """Somebody waits: the batch need not linger."""
        if not self.demanded:
            self.demanded = True
            if not self.done:
                self._hooks.demand(self)

    def retrieve(self, index: int) -> KafkaError | None:
        """The error of a record, marked as seen by the user; None when it was delivered."""
        error = self.error
        if error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            if not self._retrieved[index]:
                self._retrieved[index] = 1
                self.unretrieved -= 1
                self._hooks.retrieved(self, 1)
        return error

    def retrieve_run(self, index: int, count: int) -> KafkaError | None:
        """The same for a run of records."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            end = index + count
            fresh = count - sum(self._retrieved[index:end])
            self._retrieved[index:end] = b"\x01" * count
            self.unretrieved -= fresh
            self._hooks.retrieved(self, fresh)
        return self.error

    def is_retrieved(self, index: int) -> bool:
        """Whether the user has seen the failure of this record."""
        return self._retrieved is not None and bool(self._retrieved[index])


def _start(forward: Forward) -> int:
    return forward.start


class Delivery:
    """What will come of one sent record; once it is done, also where the record is.

    Await it, any number of times and from any number of tasks, for the `RecordMetadata`; it raises
    the `KafkaError` that kept the record from being delivered, and ends within
    `delivery_timeout_ms` of the send. Cancelling a task that awaits it never cancels the delivery:
    the record goes its way. It is not a Future, yet `asyncio.gather`, `wait_for`, `shield`,
    `as_completed` and `timeout` work on it; `producer.gather` is the cheap way for many.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: DeliveryBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def origin(self) -> tuple[DeliveryBatch, int, int]:
        """The batch that the record was sent in, its index there, and its timestamp."""
        return self._batch, self._index, self._timestamp

    def located(self) -> tuple[DeliveryBatch, int]:
        """The batch that the record is in now, and its index there."""
        batch, index = self._batch, self._index
        return (batch, index) if index >= batch.moved else batch.locate(index)

    def _finished(self) -> tuple[DeliveryBatch, int]:
        batch, index = self.located()
        if not batch.done:
            raise asyncio.InvalidStateError(PENDING)
        return batch, index

    @property
    def topic(self) -> str:
        """The topic that the record was sent to."""
        return self._batch.topic

    @property
    def partition(self) -> int | None:
        """The partition; None while it is not chosen, the topic being unknown yet."""
        batch, index = self.located()
        return batch.partition_of(index)

    @property
    def offset(self) -> int:
        """The record's offset; -1 when no broker told it (`acks=0`) and when it failed.

        Raises `asyncio.InvalidStateError` until done.
        """
        batch, index = self._finished()
        return batch.base_offset + index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch: the record's, or the broker's with LogAppendTime.

        Raises `asyncio.InvalidStateError` until done.
        """
        batch, _ = self._finished()
        return batch.append_time if batch.append_time >= 0 else self._timestamp

    def done(self) -> bool:
        """Whether the record has its outcome, delivered or failed."""
        return self.located()[0].done

    def cancelled(self) -> bool:
        """Return False: a delivery cannot be cancelled."""
        return False

    def result(self) -> RecordMetadata:
        """Where the record is. Raises what kept it from being delivered, which retrieves it.

        Raises `asyncio.InvalidStateError` until done.
        """
        batch, index = self._finished()
        error = batch.retrieve(index)
        if error is not None:
            raise error.with_traceback(None)
        return batch.metadata(index, self._timestamp)

    def exception(self) -> KafkaError | None:
        """What kept the record from being delivered, or None; this retrieves it.

        Raises `asyncio.InvalidStateError` until done.
        """
        batch, index = self._finished()
        return batch.retrieve(index)

    def add_done_callback(
        self,
        callback: Callable[[Delivery], Any],
        *,
        context: contextvars.Context | None = None,
    ) -> None:
        """Have the loop call `callback(delivery)` once it is done, soon if it is already.

        Callbacks and the tasks that await the delivery run in the order in which they were added,
        as those of an asyncio.Future. A callback alone does not retrieve a failure. Raises
        WrongThreadError and WrongLoopError.
        """
        if not callable(callback):
            raise TypeError(f"add_done_callback takes a function of a delivery, not {callback!r}")
        batch, index = self.located()
        batch.call_when_done(self, index, callback, context)

    def remove_done_callback(self, callback: Callable[[Delivery], Any]) -> int:
        """Remove a callback wherever it was added, and return how often that was.

        A callback of a delivery that is done is not removed any more.
        """
        batch, index = self.located()
        return batch.drop_callback(index, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self.located()
        if batch.done and batch.calls:
            batch.check_caller()
            yield  # The callbacks that were added before run first.
        while not batch.done:
            waiter = batch.wait(self)
            batch.demand()
            try:
                yield from waiter.future
            finally:
                waiter.leave()
            batch, index = self.located()
        if batch.error is not None:
            return self.result()
        return batch.metadata(index, self._timestamp)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Delivery):
            return NotImplemented
        return self._batch is other._batch and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._batch), self._index))

    def __repr__(self) -> str:
        batch, _ = self.located()
        place = f"topic={batch.topic!r} partition={self.partition}"
        if not batch.done:
            return f"<Delivery {place} pending>"
        if batch.error is not None:
            return f"<Delivery {place} failed: {type(batch.error).__name__}>"
        return f"<Delivery {place} offset={self.offset}>"
