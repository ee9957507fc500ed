"""The metrics and the events of a share consumer, and what its health says of the last minute.

The metrics are counted for each answer, list of records, or settlement, not for each record of an
iteration. Their keys are those of the rows in `aiokclient.telemetry.table`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiokclient.errors import KafkaError, LockLostError
from aiokclient.metrics import UNCOUNTED, Counter, Histogram, OwnMetrics
from aiokclient.share.locks import AcknowledgeType, Acquisition, Reason

if TYPE_CHECKING:
    from aiokclient.protocol.messages.share_fetch import ShareFetchResponse
    from aiokclient.share.delivery.record import ShareRecord
    from aiokclient.share.engine import ShareEngine

RECENT_S: Final = 60.0
"""The seconds for which `health()` counts lost locks and throttled fetches."""

MOST_RECENT: Final = 1000
"""The largest number of recent events that are counted."""

SHOWN: Final = (
    ("records", "share.records", "{record}"),
    ("bytes", "share.bytes", "By"),
    ("redelivered", "share.records.redelivered", "{record}"),
    ("acknowledgements", "share.acknowledgements", "{record}"),
    ("renewals", "share.lock.renewals", "{record}"),
    ("locks.lost", "share.locks.lost", "{record}"),
    ("late", "share.late.successes", "{record}"),
    ("undelivered", "share.records.undelivered.released", "{record}"),
    ("throttled", "share.fetch.throttled", "{fetch}"),
)
"""The counters that `metrics()` shows: their keys, names, and units."""


class ShareMeters:
    """The metrics of one share consumer."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self.own_metrics = own = OwnMetrics(
            engine.cluster.metrics, "consumer", "share", owner=engine
        )
        self._records = own.counter("records")
        self._bytes = own.counter("bytes")
        self._requests = own.counter("fetches.requests")
        self._useful = own.spread("fetches.records")
        self._sizes = own.spread("fetches")
        self._seconds = own.spread("fetches.seconds")
        self._throttles = own.spread("fetches.throttles")
        self._sent = own.counter("acknowledgements.sent")
        self._failed = own.counter("acknowledgements.failed")
        self._acknowledged: dict[AcknowledgeType, Counter] = {}
        self._remaining: Histogram = own.histogram("lock.remaining")
        self._counts: Histogram = own.histogram("delivery.count")
        self._polls = own.spread("polls")
        self._idle = own.spread("poll.idle")
        self._polled_at: float | None = None
        self._answered_at = 0.0
        for key, name, unit in SHOWN:
            own.show_series(key, name, unit=unit)
        own.gauge("held", self._count_held)
        own.gauge("poll.age", self._find_poll_age)
        self._lost_at: deque[float] = deque(maxlen=MOST_RECENT)
        self._throttled_at: deque[float] = deque(maxlen=MOST_RECENT)
        engine.cluster.metrics.add_owner(own)

    def end(self) -> None:
        """Forget the metrics, because the consumer is closed. Synchronous."""
        self.own_metrics.end_owner()

    # -- fetches

    def on_fetched(self, answer: ShareFetchResponse, seconds: float) -> None:
        """Count the answer to a fetch."""
        self._requests.add()
        self._seconds.observe(seconds)
        self._throttles.observe(answer.throttle_time_ms / 1000)
        size = records = 0
        for topic in answer.responses:
            for partition in topic.partitions:
                size += len(partition.records or b"")
                for acquired in partition.acquired_records:
                    records += acquired.last_offset - acquired.first_offset + 1
        if records:
            self._sizes.observe(size)
            self._useful.observe(records)
            self._bytes.add(size)

    def on_acquired(self, acquisition: Acquisition) -> None:
        """Count records that were acquired."""
        count = acquisition.delivery_count
        self._counts.observe_all([count] * len(acquisition.states))
        if count > 1:
            self.own_metrics.counter("redelivered").add(len(acquisition.states))

    def on_throttled(self) -> None:
        """Count a fetch whose records were lost by a quota."""
        self.own_metrics.counter("throttled").add()
        self._throttled_at.append(self._clock.monotonic())

    def on_session_reset(self, node_id: int, error: KafkaError | None) -> None:
        """Report that the session with a broker begins anew; None is a lost connection."""
        reason = "disconnected" if error is None else error.name
        self._engine.events.emit("SessionReset", broker=node_id, reason=reason)

    # -- records

    def on_request(self) -> None:
        """Record that the application requests records."""
        now = self._clock.monotonic()
        if self._polled_at is not None:
            between_s = now - self._polled_at
            self._polls.observe(between_s)
            if between_s:
                self._idle.observe((self._answered_at - self._polled_at) / between_s)
        self._polled_at = self._answered_at = now

    def on_request_end(self) -> None:
        """Record that a request for records has ended."""
        self._answered_at = self._clock.monotonic()

    def on_delivered(self, acquisition: Acquisition, count: int) -> None:
        """Count records that were passed to the application."""
        self._records.value += count

    def on_undelivered(self, count: int) -> None:
        """Count records that were released because they had waited too long."""
        if count:
            self.own_metrics.counter("undelivered").add(count)

    def _count_held(self) -> float:
        return float(self._engine.settlements.count_held())

    def _find_poll_age(self) -> float:
        at = self._polled_at
        return -1.0 if at is None else float(int(self._clock.monotonic() - at))

    # -- settlements

    def on_settled(self, kind: AcknowledgeType, count: int) -> None:
        """Count settlements of the application."""
        counter = self._acknowledged.get(kind)
        if counter is None:
            counter = self.own_metrics.counter("acknowledgements", type=kind.name.lower())
            self._acknowledged[kind] = counter
        counter.value += count
        self._sent.value += count

    def on_record_settled(self, kind: AcknowledgeType, remaining_s: float) -> None:
        """Count the settlement of one record, with the time that was left of its lock."""
        try:
            self._acknowledged[kind].value += 1
            self._sent.value += 1
        except KeyError:
            self.on_settled(kind, 1)
        uncounted = self._remaining.uncounted
        uncounted.append(remaining_s)
        if len(uncounted) >= UNCOUNTED:
            self._remaining.count_latest()

    def on_renewed(self, count: int) -> None:
        """Count locks that were renewed."""
        self.own_metrics.counter("renewals").add(count)

    def on_lost(self, reason: Reason, count: int, confirmed: bool | None) -> None:
        """Count locks of held or settled records that were lost."""
        if not count:
            return
        self.own_metrics.counter("locks.lost", reason=reason).add(count)
        if confirmed:
            self.own_metrics.counter("late").add(count)
        self._lost_at.extend([self._clock.monotonic()] * min(count, MOST_RECENT))

    def on_acknowledge_error(self, error: KafkaError) -> None:
        """Count a settlement that has failed."""
        if not (isinstance(error, LockLostError) and error.confirmed):
            self._failed.add()

    def emit_lost(self, record: ShareRecord[Any, Any], reason: Reason) -> None:
        """Report that the lock of a held record was lost."""
        self._engine.events.emit("LockLost", record=record, reason=reason)

    def emit_expiring(self, record: ShareRecord[Any, Any]) -> None:
        """Report that the lock of a held record will end."""
        self._engine.events.emit("LockExpiring", record=record)

    # -- health

    def count_lost(self) -> int:
        """Return the number of locks that were lost in the last minute."""
        return self._count_recent(self._lost_at)

    def _count_recent(self, times: deque[float]) -> int:
        since = self._clock.monotonic() - RECENT_S
        while times and times[0] < since:
            times.popleft()
        return len(times)

    def list_troubles(self) -> list[str]:
        """Return what `health()` says of the last minute, as texts. Synchronous."""
        found = []
        if lost := self.count_lost():
            found.append(f"locks are lost: {lost} in the last minute")
        if throttled := self._count_recent(self._throttled_at):
            found.append(
                f"fetches are throttled: {throttled} in the last minute, whose records are counted "
                "as delivered"
            )
        return found
