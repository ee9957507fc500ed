"""Failed deliveries: how they are reported, and which ones were never retrieved.

The facts about a failed batch stay here until all its failures were retrieved, for at most `KEPT`
batches. Of more batches only the number of failures is kept, so that a producer whose records all
fail uses little memory.

Without `on_delivery_error`, a failure is logged once the program cannot retrieve it any more: when
the last delivery of its batch is gone, as asyncio does with exceptions of futures. A failure that
is retrieved at some time is never logged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiokclient.background import Callbacks
from aiokclient.clock import Clock
from aiokclient.errors import DeliveryErrors, KafkaError
from aiokclient.log import ClientLog
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch
from aiokclient.producer.fairness import SLICE_S

__all__ = ["FailureHooks", "Failures"]

KEPT = 10_000
SHOWN = 100
"""Number of failures that a `DeliveryErrors` holds as exceptions. All are counted."""
LOG_EVERY_S = 10.0
"""Seconds in which the default report logs one line per topic and kind of error."""
LOG_KEYS = 1000

Watcher = Callable[[KafkaError | None], None]


class FailureHooks(NamedTuple):
    """The calls by which a producer learns of failures."""

    on_delivery_error: Callable[[Delivery], Any] | None
    """The callback of the program, for each failure."""
    on_failed: Callable[[DeliveryBatch], object]
    """Called with each batch that fails."""
    on_final_seen: Callable[[], object]
    """Called when the error that failed the producer is raised, or retrieved from a delivery."""


class FailedBatch:
    """The facts about a failed batch, kept after the batch is gone."""

    __slots__ = ("error", "final", "topic", "unretrieved")

    def __init__(self, topic: str, error: KafkaError, unretrieved: int, final: bool) -> None:
        self.topic = topic
        self.error = error
        self.unretrieved = unretrieved
        self.final = final
        """Whether it failed with the producer."""


class Report:
    """An attribute of a failed batch that reports when the batch is gone."""

    __slots__ = ("failed", "gone")

    def __init__(self, failed: FailedBatch, gone: Callable[[FailedBatch], None]) -> None:
        self.failed = failed
        self.gone = gone

    def __del__(self) -> None:
        if self.failed.unretrieved:
            self.gone(self.failed)


class Failures:
    """Reports each failure, and counts those that were never retrieved."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        callbacks: Callbacks,
        clock: Clock,
        hooks: FailureHooks,
        log: ClientLog,
    ) -> None:
        self.unretrieved = 0
        self.total = 0
        """Number of all failures so far. It changes with each failure."""
        self._watchers: dict[Watcher, None] = {}
        self._loop = loop
        self._callbacks = callbacks
        self._clock = clock
        self._client_log = log
        self._on_delivery_error, self._on_failed, self.on_final_seen = hooks
        self._final = False
        """Whether the producer has failed, so that later failures follow from that."""
        self._batches: dict[FailedBatch, None] = {}
        self._last: KafkaError | None = None
        self._reports: deque[tuple[DeliveryBatch, int]] = deque()
        self._queued = 0
        """Number of batches that were ever added to the reports."""
        self._scheduled = False
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}

    def failed(self, batch: DeliveryBatch) -> None:
        """Take note of a batch that has just failed, and report its failures."""
        self.unretrieved += batch.unretrieved
        self.total += batch.unretrieved
        assert batch.error is not None
        self._last = batch.error
        failed = FailedBatch(batch.topic, batch.error, batch.unretrieved, self._final)
        if len(self._batches) < KEPT:
            self._batches[failed] = None
        batch.report = Report(failed, self._gone)
        self._on_failed(batch)
        for watcher in list(self._watchers):
            watcher(None)
        if self._on_delivery_error is None:
            return
        self._reports.append((batch, batch.moved))
        self._queued += 1
        if not self._scheduled:
            self._scheduled = True
            self._callbacks.soon(self._report)

    @contextmanager
    def watched(self, watcher: Watcher) -> Iterator[None]:
        """Call `watcher(None)` after each failure, and `watcher(why)` at the end."""
        self._watchers[watcher] = None
        try:
            yield
        finally:
            self._watchers.pop(watcher, None)

    def end(self, why: KafkaError, *, final: bool = False) -> None:
        """Tell all watchers that nothing more will be sent.

        `final`: the producer has failed, so that later failures follow from that.
        """
        self._final = self._final or final
        for watcher in list(self._watchers):
            watcher(why)

    def retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Count that many failures of a batch as retrieved."""
        failed: FailedBatch = batch.report.failed
        if failed.final:
            self.on_final_seen()
        count = min(count, failed.unretrieved)  # `take` may have raised them.
        self.unretrieved -= count
        failed.unretrieved -= count
        if not failed.unretrieved:
            self._batches.pop(failed, None)

    def take(self) -> DeliveryErrors | None:
        """Return the failures that were never retrieved as one exception, which retrieves them."""
        if not self.unretrieved or self._last is None:
            return None
        shown: list[Exception] = []
        for failed in list(self._batches):
            shown += [failed.error] * min(failed.unretrieved, SHOWN - len(shown))
            failed.unretrieved = 0
        self._batches.clear()
        count, self.unretrieved = self.unretrieved, 0
        plural = "delivery" if count == 1 else "deliveries"
        text = f"{count} failed {plural} that were never retrieved"
        return DeliveryErrors(text, shown or [self._last], count)

    def _gone(self, failed: FailedBatch) -> None:
        """Log failures that cannot be retrieved any more. May be called in any thread."""
        if self._on_delivery_error is None:
            self._log(failed)

    async def reported(self) -> None:
        """Wait until the callback was called for each failure so far."""
        until = self._queued
        while until > self._queued - len(self._reports):
            self._report_slice()
            await asyncio.sleep(0)

    def _report(self) -> None:
        self._scheduled = False
        self._report_slice()
        if self._reports and not self._scheduled:
            self._scheduled = True
            self._callbacks.soon(self._report)

    def _report_slice(self) -> None:
        assert self._on_delivery_error is not None
        until = self._clock.monotonic() + SLICE_S
        while self._reports and self._clock.monotonic() < until:
            batch, index = self._reports.popleft()
            if index + 1 < batch.count:
                self._reports.appendleft((batch, index + 1))
            delivery = Delivery(batch, index, batch.timestamp_of(index))
            try:
                self._on_delivery_error(delivery)
            except Exception as error:
                context = {"message": "on_delivery_error raised", "exception": error}
                self._loop.call_exception_handler(context)

    def _log(self, failed: FailedBatch) -> None:
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
        self._client_log.error(
            "%d record(s) for topic %s were not delivered: %s",
            count,
            failed.topic,
            failed.error,
            extra={"event": "deliveries_failed", "topic": failed.topic, "count": count},
        )
