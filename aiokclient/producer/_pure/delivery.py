"""Deliveries: light handles on the outcome that all records of a batch share.

The response to a produce request decides a whole batch at a time, so the outcome is stored once, in
a `DeliveryBatch`, and a `Delivery` is only a batch and an index. It creates a waiter only if it is
awaited before the outcome is known. The cost of completing a batch does not depend on its number of
records.

Records may move to another batch before they have an outcome. This happens when the partitions of
their topic become known, and when the broker refuses their batch as too large, so that it is split.
The old batch then has a forward (a range of indices and the new batch), which each delivery follows
the next time it is used. A batch whose records have all moved is done.

A failure counts as retrieved once the application has seen it: by an await, `result()`,
`exception()` or `gather`. At the first retrieval, the batch allocates one byte per record to store
which failures were retrieved.
"""

from __future__ import annotations

import asyncio
import contextvars
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

from aiokclient.errors import KafkaError
from aiokclient.producer._pure.waiter import Owner, OwnerHooks
from aiokclient.types import RecordMetadata, encode_answer

__all__ = ["Delivery", "DeliveryBatch", "DeliveryHooks", "Forward", "Run"]

PENDING = "The record has no outcome yet; await its delivery."


class DeliveryHooks(OwnerHooks, Protocol):
    """The methods of a producer that its batches call."""

    def demand(self, batch: DeliveryBatch) -> None:
        """Send this batch as soon as possible, because a task waits for it."""

    def retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Count `count` more failures of the batch as retrieved by the application."""


class Forward(NamedTuple):
    """The batch to which a range of records was moved."""

    start: int
    end: int
    batch: DeliveryBatch
    first: int


class Run(NamedTuple):
    """Records of one batch from index `first` on, all with the same timestamp."""

    batch: DeliveryBatch
    first: int
    size: int
    timestamp: int


class DeliveryBatch(Owner):
    """The outcome of the records in one batch. `partition` is None until a partition is chosen."""

    __slots__ = (
        "_forwards",
        "_hooks",
        "_retrieved",
        "append_time",
        "base_offset",
        "count",
        "demanded",
        "error",
        "in_overflow",
        "log_start",
        "moved",
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
        """Index of the first record that has not moved to another batch."""
        self.demanded = False
        self.in_overflow = False
        """Whether the batch is in the overflow queue."""
        self.error: KafkaError | None = None
        self.base_offset = -1
        self.append_time = -1
        """The broker's timestamp in milliseconds if the topic uses LogAppendTime, otherwise -1."""
        self.log_start = -1
        """The first offset of the log when the batch was written, or -1 if unknown."""
        self.unretrieved = 0
        self.report: Any = None
        """The object that logs the failure when it can no longer be retrieved."""
        self._hooks: DeliveryHooks = hooks
        self._forwards: list[Forward] | None = None
        self._retrieved: bytearray | None = None

    # -- what the producer does

    def succeed(self, base_offset: int, append_time: int = -1, log_start: int = -1) -> None:
        """Complete the batch. A base offset of -1 means that the broker returned none."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start = log_start
        self._settle()

    def fail(self, error: KafkaError) -> None:
        """Fail the records that are still in this batch."""
        self.error = error
        self.unretrieved = self.count - self.moved
        self._settle()

    def keep_report(self, report: object) -> None:
        """Keep the object that logs the failure when it can no longer be retrieved."""
        self.report = report

    def forward(self, count: int, batch: DeliveryBatch, index: int) -> None:
        """Move the next `count` records to `batch`, where they begin at `index`."""
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
        """Mark the batch as done after all of its records have moved."""
        self._settle()

    def partition_of(self, index: int) -> int | None:
        """Return the partition of a record, or None if it is not chosen yet."""
        return self.partition

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp with which a record was sent, or -1 if it was not stored."""
        return -1

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Return the metadata of a written record that was sent with `timestamp`."""
        base, partition = self.base_offset, self.partition
        assert partition is not None
        time = self.append_time if self.append_time >= 0 else timestamp
        offset = base + index if base >= 0 else -1
        made = RecordMetadata(self.topic, partition, offset, time)
        made._answer = encode_answer(self.append_time, self.log_start)
        return made

    def _settle(self) -> None:
        self.done = True
        if self.moved:
            self.hand_over()
        self.run()

    # -- what the user's handles do

    @property
    def forwards(self) -> Sequence[Forward]:
        """Return the ranges of records that have moved to other batches, in order."""
        return self._forwards or ()

    @property
    def targets(self) -> list[DeliveryBatch]:
        """Return the batches to which records of this batch have moved."""
        return [] if self._forwards is None else [f.batch for f in self._forwards]

    def locate(self, index: int) -> tuple[DeliveryBatch, int]:
        """Return the batch in which the record is now, and its index there."""
        batch = self
        while index < batch.moved:
            forwards = batch._forwards
            assert forwards is not None
            found = forwards[bisect_right(forwards, index, key=_start) - 1]
            batch, index = found.batch, found.first + index - found.start
        return batch, index

    def demand(self) -> None:
        """Send the batch without lingering, because a task waits for it."""
        if not self.demanded:
            self.demanded = True
            if not self.done:
                self._hooks.demand(self)

    def retrieve(self, index: int) -> KafkaError | None:
        """Return the error of a record, or None if it was written. The error is marked as seen."""
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
        """Return the error of `count` records, or None if they were written. Mark it as seen."""
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
        """Return whether the application has seen the failure of this record."""
        return self._retrieved is not None and bool(self._retrieved[index])


def _start(forward: Forward) -> int:
    return forward.start


class Delivery:
    """The handle of one record that was sent, with its offset once it is delivered.

    Awaiting a delivery returns the `RecordMetadata`, or raises the `KafkaError` that prevented the
    delivery. It has an outcome at most `delivery_timeout_ms` after the send. Any number of tasks
    may await it, any number of times. Cancelling a task that awaits it does not cancel the
    delivery: the record is still sent. A delivery is not a Future, but `asyncio.gather`,
    `wait_for`, `shield`, `as_completed` and `timeout` accept it. For many deliveries,
    `producer.gather` is much cheaper.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: DeliveryBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def origin(self) -> tuple[DeliveryBatch, int, int]:
        """The batch to which the record was first appended, its index there, and its timestamp."""
        return self._batch, self._index, self._timestamp

    def located(self) -> tuple[DeliveryBatch, int]:
        """Return the batch in which the record is now, and its index there."""
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
        """The partition, or None while the topic is unknown and no partition was chosen."""
        batch, index = self.located()
        return batch.partition_of(index)

    @property
    def offset(self) -> int:
        """The record's offset; -1 if the broker returned none (`acks=0`) or the record failed.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._finished()
        return batch.base_offset + index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self) -> int:
        """The record's timestamp in milliseconds since the epoch.

        If the topic uses LogAppendTime, it is the broker's timestamp. Raises
        `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, _ = self._finished()
        return batch.append_time if batch.append_time >= 0 else self._timestamp

    def done(self) -> bool:
        """Return whether the record was delivered or has failed."""
        return self.located()[0].done

    def cancelled(self) -> bool:
        """Return False: a delivery cannot be cancelled."""
        return False

    def result(self) -> RecordMetadata:
        """Return the metadata of the record, or raise its failure, which then counts as retrieved.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._finished()
        error = batch.retrieve(index)
        if error is not None:
            raise error.with_traceback(None)
        return batch.metadata(index, self._timestamp)

    def exception(self) -> KafkaError | None:
        """Return the failure of the record, or None if the record was delivered.

        A returned failure counts as retrieved.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._finished()
        return batch.retrieve(index)

    def add_done_callback(
        self,
        callback: Callable[[Delivery], Any],
        *,
        context: contextvars.Context | None = None,
    ) -> None:
        """Call `callback(delivery)` from the event loop when the delivery is done.

        Callbacks and the tasks that await the delivery run in the order in which they were added,
        as they do for an asyncio.Future. A callback alone does not retrieve a failure. Raises
        WrongThreadError in another thread, and WrongLoopError in another event loop.
        """
        if not callable(callback):
            raise TypeError(
                f"add_done_callback() takes a function of one delivery, not {callback!r}."
            )
        batch, index = self.located()
        batch.call_when_done(self, index, callback, context)

    def remove_done_callback(self, callback: Callable[[Delivery], Any]) -> int:
        """Remove all occurrences of a callback, and return how many were removed.

        Callbacks of a delivery that is done are not removed.
        """
        batch, index = self.located()
        return batch.drop_callback(index, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self.located()
        if batch.done and batch.calls:
            batch.check_caller()
            yield  # Callbacks that were added earlier must run first.
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
        where = f"topic={batch.topic!r} partition={self.partition}"
        if not batch.done:
            return f"<Delivery {where} pending>"
        if batch.error is not None:
            return f"<Delivery {where} failed: {type(batch.error).__name__}>"
        return f"<Delivery {where} offset={self.offset}>"
