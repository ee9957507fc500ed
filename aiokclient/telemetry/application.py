"""The points of the metrics that the application has registered (KIP-1076)."""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections.abc import Callable

from aiokclient.clock import Clock
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import ApplicationMetric, ApplicationMetrics, Counter, Gauge, Histogram
from aiokclient.telemetry.points import HistogramValue, Point, PointKind

__all__ = ["ApplicationPoints"]

LONGEST_S = 0.010
"""Maximum number of seconds that the function of a metric may take. Slower metrics are dropped."""
WARNINGS = 100
"""Maximum number of warnings about metrics that are left out."""


class ApplicationPoints:
    """The reader of an application's metrics. It logs once for each metric that it leaves out."""

    def __init__(self, metrics: ApplicationMetrics, clock: Clock, log: ClientLog) -> None:
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._warned: set[str] = set()
        """The names of metrics for which a warning was logged. There are at most `WARNINGS`."""

    def collect(self, wanted: Callable[[str], bool]) -> list[Point]:
        """Return the points of all metrics that are wanted and can be read."""
        points = []
        for metric in self._metrics:
            if wanted(metric.name):
                point = self._point(metric)
                if point is not None:
                    points.append(point)
        return points

    def _point(self, metric: ApplicationMetric) -> Point | None:
        name, labels, unit, source = metric
        began = self._clock.monotonic()
        try:
            if isinstance(source, Histogram):
                bounds, counts = source.buckets
                value: float | HistogramValue = HistogramValue(bounds, counts, source.total)
                return Point(name, PointKind.HISTOGRAM, value, labels, unit=unit)
            if isinstance(source, Counter):
                return Point(name, PointKind.SUM, float(source.value), labels, unit=unit)
            number = source.value if isinstance(source, Gauge) else source()
            if number is None and isinstance(source, Gauge):
                return None  # The function of a gauge may return None to skip it.
            value = float(number)  # type: ignore[arg-type]
        except (Exception, CancelledError) as error:
            # The function may read the result of a cancelled future, which raises CancelledError.
            self._warn("The metric %s is missing from a push: %r.", metric, error)
            return None
        seconds = self._clock.monotonic() - began
        if seconds > LONGEST_S:
            self._metrics.drop(metric)
            text = "The metric %s is not pushed any more: its function took %.0f ms, not 10 ms."
            self._warn(text, metric, seconds * 1000)
            return None
        if not math.isfinite(value):
            return None
        return Point(name, PointKind.GAUGE, value, labels, unit=unit)

    def _warn(self, text: str, metric: ApplicationMetric, why: object) -> None:
        if metric.name not in self._warned and len(self._warned) < WARNINGS:
            self._warned.add(metric.name)
            extra = {"event": "telemetry_metric_left_out", "metric": metric.name}
            self._log.warning(text, metric.name, why, extra=extra)
