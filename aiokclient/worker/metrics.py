"""The metrics of one worker, in the registry of its consumer's client.

So `metrics()` of the client, Prometheus, and OpenTelemetry have them. All have the label `worker`.
Those of runs have the label `handler` as well. A run is one call of the handler; with `batch`, it
processes several records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokclient.metrics import SECONDS
from aiokclient.worker.retry import Outcome

if TYPE_CHECKING:
    from aiokclient.metrics import Collected, Metrics
    from aiokclient.worker.worker import Worker


class WorkerMetrics:
    """The metrics of one worker."""

    def __init__(self, metrics: Metrics, worker: Worker, handler: str) -> None:
        self._metrics = metrics
        self._read_health = worker.health
        self._worker = {"worker": worker.name}
        self._labels = {"worker": worker.name, "handler": handler}
        self.runs = metrics.counter("worker.runs", **self._labels)
        self._retries = metrics.counter("worker.retries", **self._labels)
        self._dead_letters = metrics.counter("worker.dead.letters", unit="{record}", **self._labels)
        self.in_lane = metrics.histogram("worker.lane.seconds", SECONDS, unit="s", **self._labels)
        self.in_handler = metrics.histogram(
            "worker.handler.seconds", SECONDS, unit="s", **self._labels
        )
        self._ends = [
            metrics.collect_series("worker.lag", self._measure_lag, unit="{record}"),
            metrics.collect_series("worker.oldest.seconds", self._measure_oldest, unit="s"),
            metrics.collect_series("worker.ready", self._measure_ready),
            metrics.collect_series("worker.lanes.busy", self._count_busy_lanes),
            metrics.collect_series("worker.retries.waiting", self._count_waiting_retries),
        ]

    def count_calls(self) -> None:
        """Sort what was appended to `in_lane.uncounted` and `in_handler.uncounted` into buckets."""
        self.in_lane.count_latest()
        self.in_handler.count_latest()

    def on_failure(self, error: BaseException) -> None:
        """Count a call that has failed."""
        name = type(error).__name__
        self._metrics.counter("worker.failures", error=name, **self._labels).add()

    def on_retry(self, records: int) -> None:
        """Count records whose handler will be called again after a delay."""
        self._retries.add(records)

    def on_given_up(self, outcome: Outcome) -> None:
        """Count a record that was written to a retry topic or to the dead letters."""
        if outcome is Outcome.TOPIC:
            self._retries.add()
        elif outcome is Outcome.DEAD_LETTER:
            self._dead_letters.add()

    def remove_values(self) -> None:
        """Remove the gauges, because the worker has ended. Sums remain, and never decrease."""
        for end in self._ends:
            end()

    def _measure_lag(self) -> Collected:
        for tp, lag in self._read_health().lag.items():
            yield {**self._worker, "topic": tp.topic, "partition": tp.partition}, lag

    def _measure_oldest(self) -> Collected:
        oldest = self._read_health().oldest
        yield self._worker, 0.0 if oldest is None else oldest.age_s

    def _measure_ready(self) -> Collected:
        yield self._worker, int(self._read_health().ready)

    def _count_busy_lanes(self) -> Collected:
        yield self._worker, self._read_health().lanes_busy

    def _count_waiting_retries(self) -> Collected:
        yield self._worker, self._read_health().retries_waiting


def name_handler(handler: Any) -> str:
    """Return the name of a handler for people. It is the same in each process."""
    named = getattr(handler, "__qualname__", None) or type(handler).__qualname__
    return str(named).replace("<locals>.", "")
