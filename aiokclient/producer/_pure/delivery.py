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

Each batch has one list of the tasks that await its records and of the callbacks, in the order in
which they were added. When the batch has its outcome, the event loop runs all of them, in order, in
its next iteration, or with the native class, at the end of the read of the response. A callback
that is added later is scheduled in the same way. An await or a flush ends after all callbacks that
were added before it, even if it begins when the batch has its outcome and these callbacks have not
run yet. If records move to another batch, their waiters and callbacks move with them.

`BatchState`, `QueueState`, and `TopicState` have only what the native `send()` reads and changes:
the open batch, its queue, and its topic. Classes that derive from them have all other attributes.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from array import array
from asyncio import _get_running_loop
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from aiokclient.errors import KafkaError, WrongLoopError, WrongThreadError
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import Headers, RecordMetadata
from aiokclient.types.named_tuple import NamedTuple

WRONG_LOOP = (
    "This delivery belongs to a producer that was started in another event loop. Await it there; "
    "from another thread send with producer.send_threadsafe()."
)
WRONG_THREAD = (
    "This delivery belongs to a producer that runs in another thread. Use it in the thread of the "
    "producer's event loop; from another thread send with producer.send_threadsafe()."
)


def refuse_caller(hooks: DeliveryHooks, no_loop: bool = False) -> None:
    """Raise WrongThreadError or WrongLoopError unless the caller is in the producer's event loop.

    `no_loop` says that no event loop runs in the calling thread. Such a call is permitted, too, if
    it comes from the producer's thread.
    """
    if not no_loop:
        raise WrongLoopError(WRONG_LOOP)
    if threading.get_ident() != hooks.thread:
        raise WrongThreadError(WRONG_THREAD)


class Waiter:
    """A task that waits for a batch.

    `delivery` is the delivery that the task awaits, or None if it waits for any change.
    """

    __slots__ = ("delivery", "future", "owner")

    def __init__(
        self, future: asyncio.Future[None], owner: Owner, delivery: Delivery | None
    ) -> None:
        self.future = future
        self.owner = owner
        self.delivery = delivery

    def stop_waiting(self) -> None:
        """Stop waiting."""
        self.owner._line.pop(self, None)


class DeliveryCallback:
    """A callback of a delivery."""

    __slots__ = ("callback", "context", "delivery")

    def __init__(
        self,
        delivery: Delivery,
        callback: Callable[[Any], Any],
        context: contextvars.Context,
    ) -> None:
        self.delivery = delivery
        self.callback = callback
        self.context = context


class Owner:
    """The base class of a batch: it holds the waiting tasks and the callbacks."""

    __slots__ = ("_callbacks", "_line", "calls", "done")

    _hooks: DeliveryHooks

    def __init__(self) -> None:
        self.done = False
        self.calls = 0
        """Number of callbacks that have not run yet."""
        self._line: dict[Waiter | DeliveryCallback, None] = {}
        """Waiters and callbacks, in the order in which they were added."""
        self._callbacks: dict[int, list[DeliveryCallback]] = {}
        """The callbacks that wait for the outcome, by the index of their record."""

    def skip_linger(self) -> None:
        """See `DeliveryBatch.skip_linger`."""
        raise NotImplementedError

    def schedule_all(self) -> None:
        """Schedule the waiters and callbacks, in order, for the loop's next iteration."""
        if self.calls:
            self._hooks.calling[self] = None
        line, self._line, self._callbacks = self._line, {}, {}
        for entry in line:
            if isinstance(entry, DeliveryCallback):
                self._schedule_callback(entry)
            elif not entry.future.done():
                entry.future.set_result(None)

    def notify_change(self) -> None:
        """Wake the tasks that wait for any change."""
        for entry in list(self._line):
            if isinstance(entry, Waiter) and entry.delivery is None:
                del self._line[entry]
                if not entry.future.done():
                    entry.future.set_result(None)

    def hand_over_waiters(self) -> None:
        """Move waiters and callbacks to the batches to which their records have moved."""
        for entry in list(self._line):
            if entry.delivery is None:
                continue
            target, index = entry.delivery.locate_record()
            if target is self:
                continue
            del self._line[entry]
            if isinstance(entry, DeliveryCallback):
                self.calls -= 1
                target._add_callback(entry, index)
            elif not target.done:
                entry.owner = target
                target._line[entry] = None
                target.skip_linger()
            elif not entry.future.done():
                entry.future.set_result(None)

    def _schedule_callback(self, call: DeliveryCallback) -> None:
        # As asyncio.Future does: the callback runs in the context in which it was added.
        self._hooks.loop.call_soon(self._run_callback, call, context=call.context)

    def _run_callback(self, call: DeliveryCallback) -> None:
        try:
            call.callback(call.delivery)
        finally:
            self.calls -= 1
            if not self.calls:
                self._hooks.calling.pop(self, None)

    def add_waiter(self, delivery: Delivery | None = None) -> Waiter:
        """Return a waiter for one task. Its future is done after a change.

        A task that stops waiting before that must call `stop_waiting`.
        """
        self.check_caller()
        waiter = Waiter(self._hooks.loop.create_future(), self, delivery)
        self._line[waiter] = None
        return waiter

    def check_caller(self) -> None:
        """Raise WrongLoopError if the calling task belongs to another event loop."""
        if _get_running_loop() is not self._hooks.loop:
            refuse_caller(self._hooks)

    @property
    def _waiters(self) -> list[Waiter]:
        """Return the waiters, in the order in which they were added."""
        return [entry for entry in self._line if isinstance(entry, Waiter)]

    @property
    def has_callbacks(self) -> bool:
        """Whether the batch has callbacks that have not run yet."""
        return self.calls > 0

    async def wait_for_change(self) -> None:
        """Wait for a change. If the wait is cancelled, its waiter is removed."""
        if self.done:
            await asyncio.sleep(0)  # Callbacks that were added earlier must run first.
            return
        waiter = self.add_waiter()
        try:
            await waiter.future
        finally:
            waiter.stop_waiting()

    def call_when_done(
        self,
        delivery: Delivery,
        index: int,
        callback: Callable[[Any], Any],
        context: contextvars.Context | None = None,
    ) -> None:
        """Add a callback for the record with this index; see `Delivery.add_done_callback`."""
        loop = _get_running_loop()
        if loop is not self._hooks.loop:
            refuse_caller(self._hooks, loop is None)
        if context is None:
            context = contextvars.copy_context()
        self._add_callback(DeliveryCallback(delivery, callback, context), index)

    def _add_callback(self, call: DeliveryCallback, index: int) -> None:
        self.calls += 1
        if self.done:
            self._hooks.calling[self] = None
            self._schedule_callback(call)
            return
        self._callbacks.setdefault(index, []).append(call)
        self._line[call] = None

    def drop_callback(self, index: int, callback: Callable[[Any], Any]) -> int:
        """See `Delivery.remove_done_callback`."""
        known = self._callbacks.get(index, [])
        found = [call for call in known if call.callback == callback]
        for call in found:
            known.remove(call)
            self._line.pop(call, None)
            self.calls -= 1
        return len(found)


PENDING = "The record has no outcome yet; await its delivery."


class WakeQueue:
    """The tasks and callbacks of a producer's batches that continue, in the order of the outcomes.

    The event loop runs them in its next iteration. The native class can also run them at the end of
    a read, between `collect` and `resume_collected`, which saves that iteration. This class cannot,
    because its tasks wait for futures of asyncio.
    """

    __slots__ = ("can_collect",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.can_collect = False
        """Whether `collect` and `resume_collected` have an effect."""

    def collect(self) -> None:
        """Do nothing."""

    def resume_collected(self) -> None:
        """Do nothing."""


class DeliveryHooks(Protocol):
    """The attributes and methods of a producer that its batches use."""

    loop: asyncio.AbstractEventLoop
    thread: int
    """The thread of the loop, as returned by `threading.get_ident`."""
    calling: dict[Any, None]
    """The batches that are done but have callbacks that have not run yet."""
    wakes: WakeQueue

    def skip_linger(self, batch: DeliveryBatch) -> None:
        """Send this batch as soon as possible, because a task waits for it."""

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
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


def encode_answer(append_time: int, log_start: int) -> int:
    """Return two values of a produce response as the integer `RecordMetadata._answer`.

    `append_time` and `log_start` are -1 if the response lacks them; 0 stands for that.
    """
    return (max(log_start, -1) + 1 << 1) + (append_time >= 0)


class DeliveryBatch(Owner):
    """The outcome of the records in one batch. `partition` is None until a partition is chosen."""

    __slots__ = (
        "_forwards",
        "_hooks",
        "_retrieved",
        "append_time",
        "base_offset",
        "count",
        "error",
        "in_overflow",
        "log_start",
        "moved",
        "partition",
        "report",
        "skips_linger",
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
        self.skips_linger = False
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
        self._mark_done()

    def fail(self, error: KafkaError) -> None:
        """Fail the records that are still in this batch."""
        self.error = error
        self.unretrieved = self.count - self.moved
        self._mark_done()

    def keep_report(self, report: object) -> None:
        """Keep the object that logs the failure when it can no longer be retrieved."""
        self.report = report

    def forward_records(self, count: int, batch: DeliveryBatch, index: int) -> None:
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

    def on_emptied(self) -> None:
        """Mark the batch as done after all of its records have moved."""
        self._mark_done()

    def partition_of(self, index: int) -> int | None:
        """Return the partition of a record, or None if it is not chosen yet."""
        return self.partition

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp with which a record was sent, or -1 if it was not stored."""
        return -1

    def make_metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Return the metadata of a written record that was sent with `timestamp`."""
        base, partition = self.base_offset, self.partition
        assert partition is not None
        time = self.append_time if self.append_time >= 0 else timestamp
        offset = base + index if base >= 0 else -1
        made = RecordMetadata(self.topic, partition, offset, time)
        made._answer = encode_answer(self.append_time, self.log_start)
        return made

    def _mark_done(self) -> None:
        self.done = True
        if self.moved:
            self.hand_over_waiters()
        self.schedule_all()

    # -- what the user's handles do

    @property
    def forwards(self) -> Sequence[Forward]:
        """Return the ranges of records that have moved to other batches, in order."""
        return self._forwards or ()

    @property
    def targets(self) -> list[DeliveryBatch]:
        """Return the batches to which records of this batch have moved."""
        return [] if self._forwards is None else [f.batch for f in self._forwards]

    def locate_record(self, index: int) -> tuple[DeliveryBatch, int]:
        """Return the batch in which the record is now, and its index there."""
        batch = self
        while index < batch.moved:
            forwards = batch._forwards
            assert forwards is not None
            found = forwards[bisect_right(forwards, index, key=_start) - 1]
            batch, index = found.batch, found.first + index - found.start
        return batch, index

    def skip_linger(self) -> None:
        """Send the batch without lingering, because a task waits for it."""
        if not self.skips_linger:
            self.skips_linger = True
            if not self.done:
                self._hooks.skip_linger(self)

    def retrieve_error(self, index: int) -> KafkaError | None:
        """Return the error of a record, or None if it was written. The error is marked as seen."""
        error = self.error
        if error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            if not self._retrieved[index]:
                self._retrieved[index] = 1
                self.unretrieved -= 1
                self._hooks.count_retrieved(self, 1)
        return error

    def retrieve_run_error(self, index: int, count: int) -> KafkaError | None:
        """Return the error of `count` records, or None if they were written. Mark it as seen."""
        if self.error is not None and self.unretrieved:
            if self._retrieved is None:
                self._retrieved = bytearray(self.count)
            end = index + count
            fresh = count - sum(self._retrieved[index:end])
            self._retrieved[index:end] = b"\x01" * count
            self.unretrieved -= fresh
            self._hooks.count_retrieved(self, fresh)
        return self.error


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

    def locate_record(self) -> tuple[DeliveryBatch, int]:
        """Return the batch in which the record is now, and its index there."""
        batch, index = self._batch, self._index
        return (batch, index) if index >= batch.moved else batch.locate_record(index)

    def _require_done(self) -> tuple[DeliveryBatch, int]:
        batch, index = self.locate_record()
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
        batch, index = self.locate_record()
        return batch.partition_of(index)

    @property
    def offset(self) -> int:
        """The record's offset; -1 if the broker returned none (`acks=0`) or the record failed.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._require_done()
        return batch.base_offset + index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self) -> int:
        """The record's timestamp in milliseconds since the epoch.

        If the topic uses LogAppendTime, it is the broker's timestamp. Raises
        `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, _ = self._require_done()
        return batch.append_time if batch.append_time >= 0 else self._timestamp

    def done(self) -> bool:
        """Return whether the record was delivered or has failed."""
        return self.locate_record()[0].done

    def cancelled(self) -> bool:
        """Return False: a delivery cannot be cancelled."""
        return False

    def result(self) -> RecordMetadata:
        """Return the metadata of the record, or raise its failure, which then counts as retrieved.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._require_done()
        error = batch.retrieve_error(index)
        if error is not None:
            raise error.with_traceback(None)
        return batch.make_metadata(index, self._timestamp)

    def exception(self) -> KafkaError | None:
        """Return the failure of the record, or None if the record was delivered.

        A returned failure counts as retrieved.

        Raises `asyncio.InvalidStateError` while the delivery is pending.
        """
        batch, index = self._require_done()
        return batch.retrieve_error(index)

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
        batch, index = self.locate_record()
        batch.call_when_done(self, index, callback, context)

    def remove_done_callback(self, callback: Callable[[Delivery], Any]) -> int:
        """Remove all occurrences of a callback, and return how many were removed.

        Callbacks of a delivery that is done are not removed.
        """
        batch, index = self.locate_record()
        return batch.drop_callback(index, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self.locate_record()
        if batch.done and batch.calls:
            batch.check_caller()
            yield  # Callbacks that were added earlier must run first.
        while not batch.done:
            waiter = batch.add_waiter(self)
            batch.skip_linger()
            try:
                yield from waiter.future
            finally:
                waiter.stop_waiting()
            batch, index = self.locate_record()
        if batch.error is not None:
            return self.result()
        return batch.make_metadata(index, self._timestamp)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Delivery):
            return NotImplemented
        return self._batch is other._batch and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._batch), self._index))

    def __repr__(self) -> str:
        batch, _ = self.locate_record()
        where = f"topic={batch.topic!r} partition={self.partition}"
        if not batch.done:
            return f"<Delivery {where} pending>"
        if batch.error is not None:
            return f"<Delivery {where} failed: {type(batch.error).__name__}>"
        return f"<Delivery {where} offset={self.offset}>"


class BatchState(DeliveryBatch):
    """A batch to which records are appended."""

    __slots__ = (
        "builder",
        "chosen_from",
        "chosen_runs",
        "chosen_to",
        "explicit",
        "left",
        "reserved",
        "stamp",
        "stamps",
    )

    def __init__(
        self, topic: str, partition: int | None, hooks: DeliveryHooks, builder: RecordBatchBuilder
    ) -> None:
        self.attach(topic, partition, hooks, builder)

    def attach(
        self, topic: str, partition: int | None, hooks: DeliveryHooks, builder: RecordBatchBuilder
    ) -> None:
        """Set the topic, the partition, the hooks, and the builder. A new batch has none."""
        DeliveryBatch.__init__(self, topic, partition, hooks)
        self.builder = builder
        self.left = 0
        """A lower bound of the bytes that are still reserved for further records."""
        self.reserved = 0
        """Bytes that `Memory` counts for this batch."""
        self.stamp = -1
        """The timestamp of the last record."""
        self.stamps: list[tuple[int, int]] = []
        """The indices at which the timestamp changes, with the new timestamps."""
        self.explicit: array[int] | None = None
        """The partition that the application chose for each record, or -1 for none.

        It is used only while the partitions of the topic are unknown.
        """

        self.chosen_from = self.chosen_to = 0
        """The indices of the last consecutive records whose partition the application chose."""
        self.chosen_runs: list[tuple[int, int]] | None = None
        """The earlier ones. They are needed when the topic is recreated with fewer partitions."""

    def append_record(
        self,
        size: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> int:
        """Append a record that takes at most `size` bytes. Return its index.

        Return -1 if it does not fit in the batch, or if fewer than `size` bytes are reserved.
        """
        if self.left < size and self.compute_room() < size:
            return -1
        index = self.builder.append(timestamp, key, value, headers)
        if index >= 0:
            self.left -= size
            if timestamp != self.stamp:
                self.store_timestamp(index, timestamp)
        return index

    def partition_of(self, index: int) -> int | None:
        """Return the partition that was chosen for the record or the batch, or None if none was."""
        if self.explicit is None or index >= len(self.explicit):
            return self.partition
        chosen = self.explicit[index]
        return chosen if chosen >= 0 else None

    def mark_chosen(self, index: int) -> None:
        """Store that the application chose the partition of the record with this index."""
        if index != self.chosen_to:
            if self.chosen_runs is None:
                self.chosen_runs = []
            self.chosen_runs.append((self.chosen_from, self.chosen_to))
            self.chosen_from = index
        self.chosen_to = index + 1

    def is_chosen(self, index: int) -> bool:
        """Return whether the application chose the partition of the record with this index."""
        if self.chosen_from <= index < self.chosen_to:
            return True
        return any(start <= index < end for start, end in self.chosen_runs or ())

    def store_timestamp(self, index: int, timestamp: int) -> None:
        """Store the timestamp of the records from this index on."""
        self.stamp = timestamp
        self.stamps.append((index, timestamp))

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp with which a record was sent."""
        at = bisect_right(self.stamps, index, key=_index) - 1
        return self.stamps[at][1] if at >= 0 else -1

    def compute_room(self) -> int:
        """Compute how many of the reserved bytes are left."""
        self.left = self.reserved - self.builder.size
        return self.left


def _index(stamp: tuple[int, int]) -> int:
    return stamp[0]


class QueueState:
    """The state of a partition's queue that a send reads."""

    __slots__ = ("open", "unsendable")

    def __init__(self) -> None:
        self.open: BatchState | None = None
        """The batch to which the next record is appended."""
        self.unsendable = False


class TopicState:
    """The state of a topic that a send reads."""

    __slots__ = ("known", "name", "queues", "sticky", "sticky_left")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[Any] = []
        self.known = False
        """Whether the partitions are known and no record waits to be moved to them."""
        self.sticky: QueueState | None = None
        """The partition queue to which records without a key currently go (KIP-480)."""
        self.sticky_left = 0
        """Number of bytes that may still go to the sticky queue before another one is chosen."""
