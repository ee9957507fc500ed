"""The failures of a producer: the errors of sends, and the reports of failed deliveries.

Details of a failed batch are kept until all its failures were retrieved, for at most `KEPT`
batches. For further batches only the number of failures is kept, so that a producer whose records
all fail uses little memory.

Without `on_delivery_error`, a failure is logged when the application can no longer retrieve it:
when the last delivery of its batch was garbage-collected, as asyncio does with exceptions of
futures. A failure that was retrieved is never logged.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aiokclient.background import SLICE_S
from aiokclient.errors import (
    AbortableError,
    BufferExhaustedError,
    DeliveryErrors,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.producer.engine import Engine


# The errors of a send that appends no record. Without a transaction, such an error concerns only
# the record. Inside one, everything that a call raises has a category (KIP-1050): the application
# leaves the record out and continues, or it aborts the transaction, as after any AbortableError.


class AbortableBufferExhaustedError(BufferExhaustedError, AbortableError):
    """A BufferExhaustedError of a transactional producer with an open transaction."""


class AbortableRecordTooLargeError(RecordTooLargeError, AbortableError):
    """A RecordTooLargeError of a transactional producer with an open transaction."""


class AbortableUnknownPartitionError(UnknownTopicOrPartitionError, AbortableError):
    """An UnknownTopicOrPartitionError of a transactional producer with an open transaction."""


class SendErrors(NamedTuple):
    """The classes of the errors that a producer raises when it cannot accept a record."""

    exhausted: type[BufferExhaustedError]
    too_large: type[RecordTooLargeError]
    unknown_partition: type[UnknownTopicOrPartitionError]


NON_TRANSACTIONAL: Final = SendErrors(
    BufferExhaustedError, RecordTooLargeError, UnknownTopicOrPartitionError
)
TRANSACTIONAL: Final = SendErrors(
    AbortableBufferExhaustedError, AbortableRecordTooLargeError, AbortableUnknownPartitionError
)


class Moved(NamedTuple):
    """Records that have moved to a batch, where they begin at index `first`.

    They were first appended to the batch `source`, from index `start` on.
    """

    first: int
    size: int
    source: DeliveryBatch
    start: int


class Origins:
    """The first batch and index of each record that has moved, by the batch in which it is now.

    `on_delivery_error` receives a delivery that equals the one that `send` returned. The delivery
    from `send` has the batch to which the record was first appended, but the failure belongs to the
    batch to which the record was moved last. Without `on_delivery_error`, nothing is stored.
    """

    def __init__(self) -> None:
        self._moves: dict[DeliveryBatch, list[Moved]] = {}

    def __len__(self) -> int:
        return len(self._moves)

    def store_moves(self, batch: DeliveryBatch) -> None:
        """Store where the records of a batch came from, after all of them have moved."""
        for start, end, target, first in batch.forwards:
            for index in range(start, end):
                self._add_move(target, first + index - start, *self.find_origin(batch, index))
        self.forget_batch(batch)

    def _add_move(
        self, target: DeliveryBatch, first: int, source: DeliveryBatch, start: int
    ) -> None:
        moves = self._moves.setdefault(target, [])
        if moves:
            last = moves[-1]
            size = last.size
            if last.source is source and (last.first + size, last.start + size) == (first, start):
                moves[-1] = last._replace(size=size + 1)
                return
        moves.append(Moved(first, 1, source, start))

    def find_origin(self, batch: DeliveryBatch, index: int) -> tuple[DeliveryBatch, int]:
        """Return the batch to which a record was appended first, and its index there."""
        moves = self._moves.get(batch)
        if moves:
            moved = moves[bisect_right(moves, index, key=_first) - 1]
            if moved.first <= index < moved.first + moved.size:
                return moved.source, moved.start + index - moved.first
        return batch, index

    def forget_batch(self, batch: DeliveryBatch) -> None:
        """Remove a batch that has an outcome, or whose records have all moved."""
        self._moves.pop(batch, None)


def _first(moved: Moved) -> int:
    return moved.first


KEPT = 10_000
SHOWN = 100
"""Largest number of exceptions in a `DeliveryErrors`, whose message counts all failures."""
LOG_EVERY_S = 10.0
"""Seconds between two log lines for the same topic and error class."""
LOG_KEYS = 1000

Watcher = Callable[[KafkaError | None], None]


class FailedBatch:
    """The details of a failed batch, which are kept after the batch itself was deleted."""

    __slots__ = ("error", "final", "topic", "unretrieved")

    def __init__(self, topic: str, error: KafkaError, unretrieved: int, final: bool) -> None:
        self.topic = topic
        self.error = error
        self.unretrieved = unretrieved
        self.final = final
        """Whether the batch failed because the producer failed."""


class Report:
    """An attribute of a failed batch that notices when the batch is garbage-collected."""

    __slots__ = ("_failures", "failed")

    def __init__(self, failed: FailedBatch, failures: Failures) -> None:
        self.failed = failed
        self._failures = failures

    def __del__(self) -> None:
        if self.failed.unretrieved:
            self._failures.on_dropped(self.failed)


class Failures:
    """The reports of failures, and the number of those that were never retrieved."""

    def __init__(
        self,
        engine: Engine,
    ) -> None:
        self.unretrieved = 0
        self.total = 0
        """Number of all failures so far, retrieved or not."""
        self._watchers: dict[Watcher, None] = {}
        self._engine = engine
        self._clock = engine.cluster.clock
        self._producer = engine.producer
        producer = engine.producer.get()
        self._has_handler = producer is not None and producer._options.on_delivery_error is not None
        """Whether the application has set `on_delivery_error`."""
        self.origins = Origins() if self._has_handler else None
        """The batches to which moved records were first appended, for `on_delivery_error`."""
        self._final = False
        """Whether the producer itself has failed. That is the cause of all later failures."""
        self._batches: dict[FailedBatch, None] = {}
        self._last: KafkaError | None = None
        self._reports: deque[tuple[DeliveryBatch, int]] = deque()
        self._queued = 0
        """Number of batches that were ever added to the reports."""
        self._scheduled = False
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}

    def on_batch_failed(self, batch: DeliveryBatch) -> None:
        """Store a batch that has just failed, and report its failures."""
        self.unretrieved += batch.unretrieved
        self.total += batch.unretrieved
        assert batch.error is not None
        self._last = batch.error
        failed = FailedBatch(batch.topic, batch.error, batch.unretrieved, self._final)
        if len(self._batches) < KEPT:
            self._batches[failed] = None
        batch.keep_report(Report(failed, self))
        producer = self._producer.get()
        if producer is not None:
            producer._forget_batch(batch)
        for watcher in list(self._watchers):
            watcher(None)
        if not self._has_handler:
            return
        self._reports.append((batch, batch.moved))
        self._queued += 1
        if not self._scheduled:
            self._scheduled = True
            self._engine.callbacks.call_soon(self._report_failures)

    def on_records_moved(self, batch: DeliveryBatch) -> None:
        """Follow the records of a batch, all of which have moved to other batches."""
        if self.origins is not None:
            self.origins.store_moves(batch)

    @contextmanager
    def watch_failures(self, watcher: Watcher) -> Iterator[None]:
        """Call `watcher(None)` after each failure, and `watcher(why)` when the producer ends."""
        self._watchers[watcher] = None
        try:
            yield
        finally:
            self._watchers.pop(watcher, None)

    def end_watching(self, why: KafkaError, *, final: bool = False) -> None:
        """Notify all watchers that nothing more will be sent.

        `final` says that the producer itself has failed. All later failures have this cause.
        """
        self._final = self._final or final
        for watcher in list(self._watchers):
            watcher(why)

    def on_final_seen(self) -> None:
        """Tell the producer that the application has seen the error that failed the producer.

        The error was raised, or it was retrieved from a delivery.
        """
        producer = self._producer.get()
        if producer is not None:
            producer._note_failure_seen()

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Count `count` failures of a batch as retrieved."""
        failed: FailedBatch = batch.report.failed
        if failed.final:
            self.on_final_seen()
        # `take_failures` may have counted some of them already.
        count = min(count, failed.unretrieved)
        self.unretrieved -= count
        failed.unretrieved -= count
        if not failed.unretrieved:
            self._batches.pop(failed, None)

    def take_failures(self) -> DeliveryErrors | None:
        """Return the unretrieved failures as one exception, and count them as retrieved."""
        if not self.unretrieved or self._last is None:
            return None
        shown: list[Exception] = []
        for failed in list(self._batches):
            shown += [failed.error] * min(failed.unretrieved, SHOWN - len(shown))
            failed.unretrieved = 0
        self._batches.clear()
        count, self.unretrieved = self.unretrieved, 0
        what = "delivery that was" if count == 1 else "deliveries that were"
        text = f"{count} failed {what} never retrieved"
        return DeliveryErrors(text, shown or [self._last], count)

    def on_dropped(self, failed: FailedBatch) -> None:
        """Log failures that can no longer be retrieved. May be called in any thread."""
        if not self._has_handler:
            self._log_failure(failed)

    async def wait_until_reported(self) -> None:
        """Wait until `on_delivery_error` was called for each failure so far."""
        until = self._queued
        while until > self._queued - len(self._reports):
            # `_report_slice` runs in each iteration of the loop. The handler is never called in the
            # task that waits here.
            assert self._scheduled
            await asyncio.sleep(0)

    def _report_failures(self) -> None:
        self._scheduled = False
        try:
            self._report_slice()
        finally:
            if self._reports and not self._scheduled:
                self._scheduled = True
                self._engine.callbacks.call_soon(self._report_failures)

    def _report_slice(self) -> None:
        assert self.origins is not None
        until = self._clock.monotonic() + SLICE_S
        while self._reports and self._clock.monotonic() < until:
            batch, index = self._reports.popleft()
            delivery = Delivery(*self.origins.find_origin(batch, index), batch.timestamp_of(index))
            if index + 1 < batch.count:
                self._reports.appendleft((batch, index + 1))
            else:
                self.origins.forget_batch(batch)
            try:
                producer = self._producer.get()
                if producer is not None and producer._options.on_delivery_error is not None:
                    producer._options.on_delivery_error(delivery)
            except (SystemExit, KeyboardInterrupt):
                raise  # The event loop raises them itself, as those of asyncio's callbacks.
            except BaseException as error:
                context = {"message": "on_delivery_error raised", "exception": error}
                self._engine.accumulator.loop.call_exception_handler(context)

    def _log_failure(self, failed: FailedBatch) -> None:
        key = (failed.topic, type(failed.error).__name__)
        now = self._clock.monotonic()
        logged, held_back = self._logged.get(key, (-LOG_EVERY_S, 0))
        count = failed.unretrieved + held_back
        if now - logged < LOG_EVERY_S:
            self._logged[key] = (logged, count)
            return
        self._logged.pop(key, None)
        self._logged[key] = (now, 0)
        if len(self._logged) > LOG_KEYS:
            del self._logged[next(iter(self._logged))]
        self._engine.log.error(
            "%d record(s) for topic %s were not delivered: %s",
            count,
            failed.topic,
            failed.error,
            extra={"event": "deliveries_failed", "topic": failed.topic, "count": count},
        )
