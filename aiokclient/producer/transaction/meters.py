"""The metrics of a producer's transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.measures import Measures, Timed
from aiokclient.metrics import Counter, Histogram, Metrics
from aiokclient.producer.transaction.status import TransactionOutcome

if TYPE_CHECKING:
    from aiokclient.clock import Clock

__all__ = ["TransactionMeters"]


class TransactionMeters:
    """The metrics of one producer's transactions. Each is created when it is first needed."""

    def __init__(self, metrics: Metrics, measures: Measures) -> None:
        self._metrics = metrics
        self._measures = measures
        self._counters: dict[TransactionOutcome, tuple[Counter, Counter]] = {}
        self._durations: dict[str, tuple[Histogram, Counter]] = {}

    def ended(self, outcome: TransactionOutcome | None) -> None:
        """Count a transaction that ended."""
        assert outcome is not None
        counters = self._counters.get(outcome)
        if counters is None:
            counters = self._counters[outcome] = (
                self._metrics.counter("producer.transactions", outcome=outcome.value),
                self._measures.quantity("transactions", outcome=outcome.value),
            )
        for counter in counters:
            counter.add()

    def took(self, what: str, seconds: float) -> None:
        """Observe the duration of a "commit" or an "abort"."""
        found = self._durations.get(what)
        if found is None:
            name = f"producer.transaction.{what}.seconds"
            found = self._durations[what] = (
                self._metrics.histogram(name, unit="s"),
                self._measures.quantity(f"{what}.seconds"),
            )
        histogram, sum_s = found
        histogram.observe(seconds)
        sum_s.add(seconds)

    def timed(self, name: str, clock: Clock) -> Timed:
        """Return a context manager that adds the duration of its block to a counter."""
        return self._measures.timed(name, clock.monotonic)

    def restarted(self) -> None:
        """Count a restart."""
        self._metrics.counter("producer.transaction.restarts").add()
