"""All queues of a producer and the memory that they use.

A record is appended to the open batch of its queue. A batch reserves memory in steps as it grows,
so that most sends only compare the record's size with the reserve. If the buffer has no room (see
`Memory`), the batch is closed and the next one is opened in the overflow queue. As memory becomes
free, batches move from there into the buffer: the oldest batch of a queue first, and one batch of
each queue in turn. The memory of a batch is released when the batch has its outcome and no request
uses its bytes.

A batch is *due* when its linger time has passed. A batch is closed when it is full. Batches whose
compression would block the event loop for more than about a millisecond are compressed in a thread
as soon as they are closed. That does not change the order within a queue, because a sender takes
only the first batch. For smaller batches, a thread would increase the cost by a third.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokclient.clock import get_loop_clock
from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.config.codecs import SLOW_BYTES, Compression
from aiokclient.errors import KafkaError
from aiokclient.memory import MOST_BYTES, BufferPool
from aiokclient.policy import Scope
from aiokclient.producer.batching.batch import FIRST_RESERVE, RECORD_OVERHEAD, ProducerBatch
from aiokclient.producer.batching.meters import ProducerMeters
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.delivery import DeliveryBatch, WakeQueue
from aiokclient.producer.delivery.failures import NON_TRANSACTIONAL, TRANSACTIONAL
from aiokclient.record import batch as record_batch
from aiokclient.types import Headers

if TYPE_CHECKING:
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.producer.engine import Engine


class Room(Enum):
    """The pool that has room for a record, if any."""

    BUFFER = auto()
    OVERFLOW = auto()
    NOWHERE = auto()


_BUFFER = Room.BUFFER
"""The pool of nearly all batches, which is looked up only once."""


class Pool:
    """One of the two pools: its limit, and the bytes that partitions hold in it."""

    __slots__ = ("free", "half", "limit", "quarter", "total", "unsendable")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.half = limit // 2
        self.quarter = limit // 4
        self.total = 0
        """Bytes that all partitions hold."""
        self.unsendable = 0
        self.free = limit
        """Bytes that a sendable partition may still take."""

    @property
    def in_use(self) -> int:
        """Bytes in use from the point of view of a sendable partition."""
        return self.limit - self.free

    def compute_room(self, unsendable: bool, held: int) -> int:
        """Return how many more bytes a partition that holds `held` bytes may take."""
        if not unsendable:
            return self.free
        shares = min(self.quarter - held, self.half - self.unsendable)
        return min(shares, self.limit - self.total)

    def add_bytes(self, unsendable: bool, size: int) -> None:
        """Add `size` bytes to those in use. A negative size releases bytes."""
        self.total += size
        if unsendable:
            self.unsendable += size
            sendable = self.total - self.unsendable
            self.free = min(
                self.limit - sendable - min(self.unsendable, self.half),
                self.limit + self.half - self.total,
            )
        else:
            self.free -= size


class Memory:
    """The limits for the memory that each partition of a producer may hold.

    There are two pools of `buffer_memory` bytes each: the *buffer*, for records that can be sent,
    and the *overflow queue*, for records that the application sent although the buffer was full. A
    partition is *unsendable* if its topic is not known yet, if it has no leader, or if its leader
    is unreachable or has been silent for a second. One unsendable partition may hold a quarter of
    each pool, and all unsendable partitions together may hold half of each, so that they do not
    block the sendable ones. If partitions already hold more when they become unsendable, they get
    no more, and the bytes beyond that half do not reduce the room of the sendable partitions, until
    the pool holds one and a half times its limit. That is the real bound: it is reached only if
    partitions fill a pool before they become unsendable. Records that were accepted are never
    dropped to make room.
    """

    __slots__ = ("buffer", "overflow")

    def __init__(self, limit: int) -> None:
        self.buffer = Pool(limit)
        self.overflow = Pool(limit)

    def find_pool(self, queue: PartitionQueue, size: int) -> Room:
        """Return the pool to which `size` more bytes of a partition may go.

        If the partition has batches in the overflow queue, new bytes go there too, to keep the
        order.
        """
        buffer = self.buffer
        if not queue.overflowed:
            dead = queue.unsendable
            if size <= (buffer.compute_room(True, queue.buffered) if dead else buffer.free):
                return _BUFFER
        # Batches may exceed the limit of the buffer (see `may_move_in`). The excess bytes reduce
        # the room in the overflow queue, so that both pools together do not exceed their limits.
        excess = min(0, buffer.free)
        if size <= self.overflow.compute_room(queue.unsendable, queue.overflowed) + excess:
            return Room.OVERFLOW
        return Room.NOWHERE

    def is_within_both(self, queue: PartitionQueue, size: int) -> bool:
        """Return whether a record that is too large for one pool fits into both pools together.

        The limits for unsendable partitions do not apply if no unsendable partition holds memory
        yet: the topic of the record may simply not be known so far. The record then fits if the
        overflow queue has room for it.
        """
        if not queue.unsendable:
            return size > self.buffer.half and size <= min(
                self.compute_room(queue), self.sendable_room()
            )
        if size <= self.buffer.quarter:
            return False
        if size <= min(self.compute_room(queue), self.shared_room()):
            return True
        first = not self.buffer.unsendable and not self.overflow.unsendable
        return first and size <= self.overflow.limit - self.overflow.total

    def compute_room(self, queue: PartitionQueue) -> int:
        """Return how many bytes the partition may take in both pools together."""
        overflow = max(0, self.overflow.compute_room(queue.unsendable, queue.overflowed))
        if queue.overflowed:
            return overflow
        return overflow + max(0, self.buffer.compute_room(queue.unsendable, queue.buffered))

    def sendable_room(self) -> int:
        """Return how many bytes sendable partitions may take in both pools together."""
        return self.buffer.free + self.overflow.free

    def shared_room(self) -> int:
        """Return how many bytes all unsendable partitions may take in both pools together."""
        return sum(max(0, pool.half - pool.unsendable) for pool in (self.buffer, self.overflow))

    def take_bytes(
        self, queue: PartitionQueue, size: int, in_overflow: bool, unsendable: bool
    ) -> None:
        """Account for `size` more bytes of a partition.

        `unsendable` is that of the queue, which the caller has read: reading it takes long.
        """
        if in_overflow:
            queue.overflowed += size
            self.overflow.add_bytes(unsendable, size)
        else:
            queue.buffered += size
            buffer = self.buffer
            if unsendable:
                buffer.add_bytes(True, size)
            else:  # The same as `add_bytes`, inlined because this runs for every batch.
                buffer.total += size
                buffer.free -= size

    def release_bytes(self, queue: PartitionQueue, size: int, in_overflow: bool) -> None:
        """Release `size` bytes of a partition."""
        self.take_bytes(queue, -size, in_overflow, queue.unsendable)

    def set_unsendable(self, queue: PartitionQueue, unsendable: bool) -> None:
        """Set whether the batches of the partition cannot be sent now."""
        if queue.unsendable is unsendable:
            return
        for pool, held in ((self.buffer, queue.buffered), (self.overflow, queue.overflowed)):
            pool.add_bytes(queue.unsendable, -held)
            pool.add_bytes(unsendable, held)
        queue.unsendable = unsendable

    def may_move_in(self, queue: PartitionQueue, size: int, *, beyond: bool = False) -> bool:
        """Return whether a batch in the overflow queue may move into the buffer.

        A batch of a sendable partition may move if it fits and less than three quarters of the
        buffer are in use. With `beyond`, the batch need not fit: a large batch might never find
        room, because unsendable partitions may hold half of the buffer.

        One unsendable partition may hold a quarter of the buffer, and all of them together may hold
        half. A batch of an unsendable partition may move if it fits, and if less than three
        quarters of that quarter and less than three quarters of that half are in use.
        """
        buffer = self.buffer
        if not queue.unsendable:
            in_use = buffer.in_use
            fits = beyond or in_use + size <= buffer.limit or not in_use
            return fits and in_use * 4 < buffer.limit * 3
        if size > buffer.compute_room(True, queue.buffered):
            return False
        own, shared = queue.buffered, buffer.unsendable
        return own * 4 < buffer.quarter * 3 and shared * 4 < buffer.half * 3


EARLY_S = 0.0001
"""Seconds by which the loop runs timers early, because of the resolution of its clock."""
AGES = 10
"""A batch that cannot be sent accepts records for the delivery timeout divided by this number."""
MANY = "The records of send_many()", "Use send_all(), which waits for room."
ROWS = (
    "The rows of send_arrow()",
    "Await drain() or flush(), or send the batch in slices (batch.slice).",
)
"""The subject of the error message for a full buffer, and the advice at its end."""
PLENTY = 4
"""A batch reserves its expected size at once if the buffer has room for this many such batches."""
SLACK = 2 * FIRST_RESERVE
"""Unused reserved bytes of a closed batch that are kept until the whole batch is released."""
KEPT_PART = 8
KEPT_BYTES = 4 * 1024 * 1024
"""The memory of written batches that is kept for new ones: at most this part of `buffer_memory`,
and at most this number of bytes."""
BATCH_OVERHEAD = 61
"""Size of the header of a record batch, in bytes."""

# Every batch needs these. In the compiled module, they are numbers in C.
_OVERHEAD, _RESERVE, _PLENTY, _SLACK = BATCH_OVERHEAD, FIRST_RESERVE, PLENTY, SLACK


UNDESIGNATED_BATCH = 32 * 1024
"""The largest size, in bytes, of a batch for a topic whose partitions are not known.

All records of such a batch are moved to their partitions without yielding to the event loop.
"""


def largest_batch(queue: PartitionQueue) -> int:
    """Return the largest size of a batch, in bytes."""
    limit = queue.topic.batch_limit.size
    return limit if queue.partition is not None else min(limit, UNDESIGNATED_BATCH)


class Accumulator:
    """All batches without an outcome, and the memory that they use."""

    def __init__(self, config: ProducerConfig, engine: Engine) -> None:
        self.loop = asyncio.get_running_loop()
        self._now = get_loop_clock()
        self.thread = threading.get_ident()
        self.calling: dict[DeliveryBatch, None] = {}
        """Batches that are done but have callbacks that have not run yet."""
        self.wakes = WakeQueue(self.loop)
        self.callbacks = engine.callbacks
        self.memory = memory = Memory(min(config.buffer_memory, MOST_BYTES))
        self._blocks = BufferPool(min(config.buffer_memory // KEPT_PART, KEPT_BYTES))
        """The memory of written batches, which new ones use again. The operating system would
        clear new memory page by page, 32 faults for a batch of 128 KiB."""
        self.pending: dict[ProducerBatch, None] = {}
        """Every batch without an outcome, in the order of their first records."""
        self.active: dict[PartitionQueue, None] = {}
        """All queues with batches, and some that became empty, which are removed now and then."""
        self.errors = NON_TRANSACTIONAL if config.transactional_id is None else TRANSACTIONAL
        self._is_last_alone = False
        """Whether the last batch that was written had one record."""
        self._engine = engine
        self._failures = engine.failures
        self._status = engine.status
        self._expiry_s = min(config.delivery_timeout_ms / AGES, config.max_block_ms) / 1000
        """Seconds after which a new batch must be checked for the first time."""
        self._expiry_timer: asyncio.TimerHandle | None = None
        """One timer for the deadlines of all batches, which is always set to the next deadline."""
        self._expiry_due = math.inf
        """The time of that timer; infinity if there is none. uvloop's handles have no `when()`."""
        self._linger_s = config.linger_ms / 1000
        self._compression = Compression[config.compression_type.upper()]
        self._level = config.compression_level
        self._thread_bytes = self._compression.traits.encode_inline
        """The size from which a batch is compressed in a thread."""
        if self._compression.is_slow(self._level):
            self._thread_bytes = SLOW_BYTES
        self._lingering: deque[ProducerBatch] = deque()
        """The batches whose linger time has not passed, in the order of their first records. Those
        that were sent before stay in it until then."""
        self._linger_timer: asyncio.TimerHandle | None = None
        self._is_resuming = False
        """Whether tasks that waited for batches run now, within the handling of a read."""
        self._overflowing: tuple[dict[PartitionQueue, None], dict[PartitionQueue, None]] = ({}, {})
        """Partitions with batches in the overflow queue, by whether they are unsendable."""
        self._room: dict[asyncio.Future[None], None] = {}
        """The tasks that wait for room, in the order of their calls."""
        self.meters = ProducerMeters(engine.own_metrics)
        self.meters.measure_memory(memory, self.pending)

    def stop(self) -> None:
        """Stop timers and measurements, and wake the tasks that wait for room."""
        self.meters.end_measuring()
        self._wake_waiters()
        self._blocks.clear()
        self.stop_expiry()
        self._cancel_linger_timer()

    # -- deadlines

    def schedule_expiry(self, now: float | None = None) -> None:
        """Check the deadlines in time, because a batch now waits or may have an earlier deadline.

        `now` is the time on the loop's clock, if the caller has just read it.
        """
        when = (self._now() if now is None else now) + self._expiry_s
        if self._expiry_due > when:
            self.stop_expiry()
            self._set_expiry_timer(when)

    def stop_expiry(self) -> None:
        """Check no deadlines any more."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
            self._expiry_due = math.inf

    def _set_expiry_timer(self, when: float) -> None:
        self._expiry_due = when
        self._expiry_timer = self.callbacks.call_at(when, self._on_expiry_timer)

    def _on_expiry_timer(self) -> None:
        self._expiry_timer = None
        self._expiry_due = math.inf
        when = self._engine.expiry.expire_batches(self._now())
        if when is None:
            self._blocks.clear()  # No batch waits, and none has been opened for some time.
        else:
            self._blocks.trim()
            self._set_expiry_timer(when)

    def notify_senders(self) -> None:
        """Notify the senders of all partitions with batches that they may be able to send."""
        for queue in list(self.active):
            queue.notify_sender()

    # -- hooks of the deliveries

    def skip_linger(self, batch: Any) -> None:
        """Send a batch without lingering, because a task waits for it."""
        queue: PartitionQueue = batch.queue
        waiting = queue.open
        if waiting is not None and waiting is batch and queue.sender is not None:
            # A task that awaits each of its sends waits for nothing else. Records that other tasks
            # send in this iteration of the loop get into the same batch, so it is not sent yet.
            is_alone = self._is_last_alone and len(self.pending) == 1
            queue.sender.schedule_queue(queue, is_alone and waiting.builder.count == 1)

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Count failures of a batch as retrieved."""
        self._failures.count_retrieved(batch, count)

    def skip_all_lingers(self) -> None:
        """Send all batches without lingering. A single batch is sent in this call, if possible."""
        self._cancel_linger_timer()
        pending = list(self.pending)
        for batch in pending:
            batch.end_linger()
            if len(pending) == 1:
                batch.queue.notify_sender(at_once=True)
            batch.skip_linger()

    def find_last_answer(self) -> KafkaError | None:
        """Return the last error of the batches without an outcome; a refusal if one has one."""
        last = LastAnswer()
        for batch in self.pending:
            if batch.last_answer is not None:
                last.note_error(batch.last_answer)
        return last.error

    # -- appending

    def append_record(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        need: int,
        forced: bool = False,
    ) -> tuple[ProducerBatch, int]:
        """Add a record that takes at most `need` bytes. Return its batch and index.

        Raise BufferExhaustedError if there is no room, unless `forced`. Nothing is added then.
        """
        batch = queue.open
        if batch is not None:
            index = batch.append_record(need, timestamp, key, value, headers)
            # Without headers, the record takes at least `need - RECORD_OVERHEAD` bytes. If it
            # cannot fit, nothing is reserved that the closed batch would release at once.
            if (
                index < 0
                and batch.compute_room() < need
                and (
                    headers
                    or batch.builder.size + need - RECORD_OVERHEAD <= queue.topic.batch_limit.size
                )
                and self._grow_reserve(batch, need)
            ):
                index = batch.append_record(need, timestamp, key, value, headers)
            if index >= 0:
                return batch, index
            self.close_batch(queue)
        batch = self.open_batch(queue, need, forced)
        try:
            index = batch.append_record(need, timestamp, key, value, headers)
        except BaseException:
            # The first record could not be encoded.
            queue.discard_open_batch()
            self.release_memory(batch)
            raise
        self.on_batch_opened(batch)
        return batch, index

    def append_values(
        self,
        queue: PartitionQueue,
        timestamp: int,
        values: Sequence[bytes | None],
        start: int,
        remaining: int,
    ) -> tuple[ProducerBatch, int, int]:
        """Add as many of the values from `start` on as fit into one batch.

        Return the batch, the index of the first added record, and the number of added records. All
        values from `start` on take at most `remaining` bytes, and there must be room for them (see
        `Memory.compute_room`).
        """
        limit = largest_batch(queue)
        batch = queue.open
        if batch is not None:
            index = batch.builder.count
            missing = min(limit - batch.reserved, remaining - batch.compute_room())
            if missing <= 0 or self._reserve_memory(batch, missing):
                taken = batch.builder.append_values(timestamp, values, start)
                batch.compute_room()
                if taken:
                    if timestamp != batch.stamp:
                        batch.store_timestamp(index, timestamp)
                    return batch, index, taken
            self.close_batch(queue)
        value = values[start]
        first = RECORD_OVERHEAD + (0 if value is None else len(value))
        need = max(first, min(limit, remaining))
        room = self.memory.buffer.compute_room(queue.unsendable, queue.buffered) - BATCH_OVERHEAD
        if not queue.overflowed and first <= room < need:
            # Use the rest of the buffer before the overflow queue.
            batch = self.open_batch(queue, room, limit=room)
        else:
            batch = self.open_batch(queue, need, True)
        taken = batch.builder.append_values(timestamp, values, start)
        batch.compute_room()
        batch.store_timestamp(0, timestamp)
        self.on_batch_opened(batch)
        return batch, 0, taken

    def open_batch(
        self, queue: PartitionQueue, need: int, forced: bool = False, limit: int = 0
    ) -> ProducerBatch:
        """Open a batch for at least `need` bytes.

        The caller must call `on_batch_opened` once the batch has a record. The batch accepts
        at most `limit` bytes of records. If that is 0, the limit of the topic applies.
        """
        memory, unsendable = self.memory, queue.unsendable
        need += _OVERHEAD
        if limit:
            limit += _OVERHEAD
        elif queue.partition is None:
            limit = largest_batch(queue)
        else:
            limit = queue.topic.batch_limit.size
        size, room = need + _RESERVE, _BUFFER
        # This saves a call for nearly all batches.
        if unsendable or queue.overflowed or size > memory.buffer.free:
            room = memory.find_pool(queue, size)
        if room is not _BUFFER:
            size = need
            room = memory.find_pool(queue, need)
            if room is Room.NOWHERE and forced:
                # `require_room` counts records, not what batches reserve for further ones.
                self._trim_all()
                room = memory.find_pool(queue, need)
            elif room is Room.NOWHERE and not memory.is_within_both(queue, need):
                raise self._make_exhausted_error(queue, need)
        in_overflow = room is not _BUFFER
        likely = min(queue.likely, limit)
        if size < likely < memory.buffer.free // _PLENTY and not (in_overflow or unsendable):
            size = likely
        builder = record_batch.new_builder(
            self._compression, self._level, limit, size, self._blocks
        )
        batch = ProducerBatch.__new__(ProducerBatch)
        due = self._linger_s <= 0
        batch.begin(queue.topic.name, queue, self, builder, self._now(), size, in_overflow, due)
        memory.take_bytes(queue, size, in_overflow, unsendable)
        queue.set_open_batch(batch)
        if in_overflow:
            self._overflowing[unsendable][queue] = None
        return batch

    def on_batch_opened(self, batch: ProducerBatch) -> None:
        """Start the delivery timeout and the linger time of a batch that has its first record."""
        queue = batch.queue
        self.pending[batch] = None
        self.active[queue] = None
        if batch.created + self._expiry_s < self._expiry_due:
            self.schedule_expiry(batch.created)
        if batch.in_overflow:
            self._move_overflow(queue.unsendable, beyond=False)
            if batch.in_overflow and not queue.unsendable:
                self.callbacks.call_soon(self._move_overflow, False)
        if batch.due:
            queue.notify_sender(True)
            return
        lingering = self._lingering
        if len(lingering) > 2 * len(self.pending) + 64:
            lingering = self._lingering = deque([each for each in lingering if not each.done])
        lingering.append(batch)
        if self._linger_timer is None and not self._is_resuming:
            self._start_linger_timer()

    def _grow_reserve(self, batch: ProducerBatch, need: int) -> bool:
        """Reserve more memory for an open batch. Return False if its pool has no room."""
        queue = batch.queue
        limit = largest_batch(queue)
        missing = need - batch.left
        wanted = max(missing, min(3 * batch.reserved, limit - batch.reserved))
        return self._reserve_memory(batch, wanted) or self._reserve_memory(batch, missing)

    def _reserve_memory(self, batch: ProducerBatch, size: int) -> bool:
        queue = batch.queue
        pool = self.memory.overflow if batch.in_overflow else self.memory.buffer
        held = queue.overflowed if batch.in_overflow else queue.buffered
        if size > pool.compute_room(queue.unsendable, held):
            return False
        self.memory.take_bytes(queue, size, batch.in_overflow, queue.unsendable)
        batch.reserve_memory(size)
        return True

    def _make_exhausted_error(self, queue: PartitionQueue, need: int) -> KafkaError:
        self.meters.exhausted.add()
        why = f"There is no room for a record of {need} bytes."
        if queue.unsendable:
            why += (
                " The partition cannot be sent now. All such partitions together may hold half of "
                "the memory, and one of them a quarter."
            )
        return self.errors.exhausted(why, topic_partition=queue.topic_partition)

    def require_room(
        self, needs: Mapping[PartitionQueue, tuple[int, int]], *, are_rows: bool = False
    ) -> None:
        """Raise BufferExhaustedError unless each queue has room for the bytes that it needs.

        `needs` has, for each queue, the total size in bytes and the number of the records.
        `are_rows` says that they are rows of an Arrow record batch, for the text of the error.
        """
        memory = self.memory
        total = shared = 0
        for queue, (size, count) in needs.items():
            # Any two consecutive batches together hold more than the limit of one batch.
            batches = min(2 * (size // largest_batch(queue)) + 2, count)
            size += batches * BATCH_OVERHEAD
            total += size
            shared += size if queue.unsendable else 0
            if size > memory.compute_room(queue):
                raise self._make_no_room_error(size, are_rows)
        if (shared and shared > memory.shared_room()) or total > memory.sendable_room():
            raise self._make_no_room_error(total, are_rows)

    def _make_no_room_error(self, size: int, are_rows: bool) -> KafkaError:
        subject, advice = ROWS if are_rows else MANY
        why = f"{subject} take about {size} bytes, more than there is room for. Nothing was sent."
        return self.errors.exhausted(f"{why} {advice}")

    # -- closing

    def close_batch(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue, because the batch or its pool is full."""
        batch = queue.close_open_batch()
        if batch is None:
            return
        size = batch.plain_size
        if batch.reserved - size > _SLACK:
            self._trim_batch(batch)
        # A batch without a partition is not compressed: its records will move to other batches one
        # by one, and no thread may use its builder then.
        if not batch.size and size >= self._thread_bytes and queue.partition is not None:
            self.prepare_batch(batch)
        if not batch.in_overflow:
            queue.send_full_batches()

    def prepare_batch(self, batch: ProducerBatch) -> bool:
        """Compress a closed batch, in a thread if large. Return whether it can be sent now."""
        if batch.compressing:
            return False
        if batch.reserved - batch.plain_size > SLACK:
            self._trim_batch(batch)
        if batch.size:
            return True
        if self._compression is Compression.NONE or batch.plain_size < self._thread_bytes:
            batch.compress_and_measure()
            return True
        batch.begin_compressing()
        self.callbacks.call_in_thread(batch.compress_here, then=partial(self._on_compressed, batch))
        return False

    def _on_compressed(self, batch: ProducerBatch, work: asyncio.Future[int]) -> None:
        error = None if work.cancelled() else work.exception()
        batch.end_compressing(0 if work.cancelled() or error is not None else work.result())
        if batch.done:
            batch.free_memory()
            return
        if work.cancelled():
            return
        if error is not None:
            failure = KafkaError(f"The batch could not be compressed: {error!r}.")
            failure.__cause__ = error
            self.fail_batch(batch, batch.with_partition(failure))
            return
        batch.queue.send_full_batches()

    def _trim_batch(self, batch: ProducerBatch) -> None:
        """Release the memory that a batch reserved and did not use."""
        self.memory.release_bytes(batch.queue, batch.trim_memory(), batch.in_overflow)
        self.on_room()

    def _trim_all(self) -> None:
        """Release all memory that batches reserved for further records."""
        for batch in self.pending:
            if batch.reserved > batch.builder.size:
                self.memory.release_bytes(batch.queue, batch.trim_memory(), batch.in_overflow)
                batch.compute_room()

    def _on_linger_timer(self) -> None:
        self._linger_timer = None
        now = self._now() + EARLY_S
        lingering = self._lingering
        while lingering and (lingering[0].created + self._linger_s <= now or lingering[0].size):
            batch = lingering.popleft()
            batch.end_linger()
            # A batch that is in flight is sent again, if necessary, after its response.
            if not (batch.done or batch.requests or batch.in_overflow):
                batch.queue.notify_sender()
        self._start_linger_timer()

    def resume_collected(self) -> None:
        """Resume the tasks that the present read has woken, then set the timer of their batches.

        A task that awaits each of its sends needs no timer: its batch is sent within its `await`.
        So the timer is not set before all of these tasks have run.
        """
        self._is_resuming = True
        try:
            self.wakes.resume_collected()
        finally:
            self._is_resuming = False
            self._start_linger_timer()

    def _start_linger_timer(self) -> None:
        """Set the timer for the first batch that lingers, unless it is set."""
        lingering = self._lingering
        while lingering:
            batch = lingering[0]
            if not batch.size:
                if self._linger_timer is None:
                    when = batch.created + self._linger_s
                    self._linger_timer = self.callbacks.call_at(when, self._on_linger_timer)
                return
            lingering.popleft()  # It was closed, and does not linger.

    def _cancel_linger_timer(self) -> None:
        """Let no batch linger any longer."""
        self._lingering.clear()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # -- outcomes

    def complete_batch(
        self,
        batch: ProducerBatch,
        base_offset: int = -1,
        append_time: int = -1,
        log_start: int = -1,
    ) -> None:
        """Complete a batch that is in the log, or that needs no acknowledgement (`acks=0`)."""
        queue, topic, count = batch.queue, batch.queue.topic, batch.count
        queue.remove_batch(batch, True, base_offset)
        limit = topic.batch_limit
        if limit.lowered:
            limit.note_written(batch.builder.size)
        batch.acknowledge(base_offset, append_time, log_start)
        origins = self._failures.origins
        if origins is not None:
            origins.forget_batch(batch)
        queued_s = batch.first_sent - batch.created
        self.meters.count_written(topic.name, count, batch.size, queued_s, batch.plain_size)
        self._is_last_alone = count == 1
        self.forget_batch(batch)

    def fail_batch(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail the records that are still in a batch."""
        if batch.done:
            return
        batch.queue.remove_batch(batch)
        self.drop_batch(batch, error)
        self.forget_batch(batch)

    def drop_batch(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail the records of a batch without updating its queue and the memory."""
        self.pending.pop(batch, None)
        if batch.done:
            return
        self.meters.count_failed(batch)
        holders = batch.fail_records(batch.with_partition(self.categorize_error(error)))
        if batch.moved:
            self._failures.on_records_moved(batch)
        for failed in holders:
            self.report_failure(failed)

    def report_failure(self, failed: DeliveryBatch) -> None:
        """Count and report the records of a batch that has just failed."""
        self.meters.count_lost(failed)
        self._failures.on_batch_failed(failed)

    def categorize_error(self, error: KafkaError) -> KafkaError:
        """Return the error with which records fail. Fail the open transaction, too, if any."""
        if self._status is None:
            return error
        return self._status.handle_error(error, scope=Scope.PRODUCE_TXN)

    def forget_batch(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch that is done, unless a request still uses its bytes."""
        self.pending.pop(batch, None)
        if not batch.requests:
            self.release_memory(batch)

    def release_memory(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch whose bytes are no longer used."""
        queue, size = batch.queue, batch.reserved
        if size:
            in_overflow, unsendable = batch.in_overflow, queue.unsendable
            self.memory.take_bytes(queue, -size, in_overflow, unsendable)
            if in_overflow and not queue.overflowed:
                self._overflowing[unsendable].pop(queue, None)
            if self._overflowing[unsendable]:
                self._move_overflow(unsendable)
            if unsendable:  # Sendable queues have more room when unsendable ones have less.
                self._move_overflow(False)
            if self._room:
                self._wake_waiters()
        batch.free_memory()

    def _wake_waiters(self) -> None:
        """Wake the tasks that wait for room."""
        rooms, self._room = self._room, {}
        for waiter in rooms:
            if not waiter.done():
                waiter.set_result(None)

    def replace_by_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch with the smaller ones that it was split into."""
        queue = batch.queue
        queue.replace_batch(batch, parts)
        for part in parts:
            self.memory.take_bytes(queue, part.reserved, False, queue.unsendable)
            self.pending[part] = None
        self._failures.on_records_moved(batch)
        batch.mark_split()
        self.forget_batch(batch)

    async def wait_for_room(self) -> None:
        """Wait until there may be more room for some partition, or the producer ends.

        Room comes with released memory, and with a partition that becomes known or sendable, which
        has other limits then. A cancelled wait leaves no future.
        """
        waiter = self.loop.create_future()
        self._room[waiter] = None
        try:
            await waiter
        finally:
            self._room.pop(waiter, None)

    def has_room(self, queue: PartitionQueue) -> bool:
        """Return whether a record of a usual size that is sent now goes into the buffer."""
        memory, batch = self.memory, queue.open
        size = min(BATCH_OVERHEAD + FIRST_RESERVE, memory.buffer.quarter // 4)
        if batch is not None and not batch.in_overflow and batch.compute_room() >= size:
            return True
        return memory.find_pool(queue, size) is Room.BUFFER

    def on_room(self) -> None:
        """Wake the tasks that wait for room, because there may be more of it."""
        if self._room:
            self._wake_waiters()

    # -- the overflow queue

    def set_unsendable(self, queue: PartitionQueue, unsendable: bool) -> None:
        """Set whether the batches of a queue cannot be sent now."""
        if queue.unsendable is unsendable:
            return
        self.memory.set_unsendable(queue, unsendable)
        if self._overflowing[not unsendable].pop(queue, self) is None:
            self._overflowing[unsendable][queue] = None
        self._move_overflow(unsendable)
        if unsendable:
            self._move_overflow(False)
        self.on_room()

    def _move_overflow(self, unsendable: bool, beyond: bool = True) -> None:
        overflowing = self._overflowing[unsendable]
        moved = True
        while moved and overflowing:
            moved = False
            for queue in list(overflowing):  # Move one batch of each queue in turn.
                if self._move_overflow_batch(queue, beyond):
                    moved = True
                elif not unsendable:
                    return

    def _move_overflow_batch(self, queue: PartitionQueue, beyond: bool) -> bool:
        batch = queue.first_in_overflow()
        size = batch.reserved
        if not self.memory.may_move_in(queue, size, beyond=beyond):
            return False
        self.memory.release_bytes(queue, size, in_overflow=True)
        self.memory.take_bytes(queue, size, False, queue.unsendable)
        queue.leave_overflow()
        if not queue.overflowed:
            self._overflowing[queue.unsendable].pop(queue, None)
        batch.notify_change()
        queue.notify_sender()
        self.on_room()
        return True
