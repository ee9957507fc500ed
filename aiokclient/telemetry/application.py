"""The metrics that the application has registered with a client (KIP-1076), and their points."""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from aiokclient.clock import Clock
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Counter, Gauge, Histogram, Labels
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.types.named_tuple import NamedTuple

LONGEST_S = 0.010
"""Maximum number of seconds that the function of a metric may take. Slower metrics are dropped."""
WARNINGS = 100
"""Maximum number of warnings about metrics that are left out."""


class ApplicationMetric(NamedTuple):
    """A metric of the application: a function that returns a number, or an instrument."""

    name: str
    labels: Labels
    unit: str
    source: Callable[[], float] | Counter | Gauge | Histogram


class ApplicationMetrics:
    """The metrics that the application has registered with a client (KIP-1076)."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, Labels], ApplicationMetric] = {}
        self._watchers: dict[object, Callable[[ApplicationMetric], None]] = {}

    def register_metric(self, name: Any, source: Any, labels: Mapping[str, str], unit: Any) -> None:
        """Add a metric, or replace the one with the same name and labels."""
        if not isinstance(name, str) or not name or not isinstance(unit, str):
            raise ArgumentTypeError(
                f"{name!r} and {unit!r} are not the name and the unit of a metric. Pass strings."
            )
        if not isinstance(source, Counter | Gauge | Histogram) and not callable(source):
            raise ArgumentTypeError(
                f"{source!r} is neither a function nor a Counter, Gauge, or Histogram."
            )
        given: Any = labels
        if not isinstance(given, Mapping):
            raise ArgumentTypeError(
                f"{given!r} is not a mapping from labels to values. Pass a dict."
            )
        key = tuple(sorted((str(label), str(value)) for label, value in labels.items()))
        metric = self._metrics[name, key] = ApplicationMetric(name, key, unit, source)
        for watcher in list(self._watchers.values()):
            watcher(metric)

    def watch_metrics(self, watcher: Callable[[ApplicationMetric], None]) -> Callable[[], None]:
        """Call `watcher(metric)` for each metric, and for those that are registered later.

        Return a function that ends these calls.
        """
        key = object()
        self._watchers[key] = watcher
        for metric in self:
            watcher(metric)

        def end() -> None:
            self._watchers.pop(key, None)

        return end

    def unregister_metrics(self, name: str) -> None:
        """Remove all metrics with this name."""
        given: Any = name
        if not isinstance(given, str):
            raise ArgumentTypeError(f"{given!r} is not the name of a metric. Pass a str.")
        for key in [key for key in self._metrics if key[0] == name]:
            del self._metrics[key]

    def drop_metric(self, metric: ApplicationMetric) -> None:
        """Remove a metric that must not be read again."""
        if self._metrics.get((metric.name, metric.labels)) is metric:
            del self._metrics[metric.name, metric.labels]

    def __iter__(self) -> Iterator[ApplicationMetric]:
        return iter(list(self._metrics.values()))


class ApplicationPoints:
    """The reader of an application's metrics. It logs once for each metric that it leaves out."""

    def __init__(self, metrics: ApplicationMetrics, clock: Clock, log: ClientLog) -> None:
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._warned: set[str] = set()
        """The names of metrics for which a warning was logged. There are at most `WARNINGS`."""

    def collect_points(self, wanted: Container[str] | None) -> list[Point]:
        """Return the points of all wanted metrics that can be read. None means all metrics."""
        points = []
        for metric in self._metrics:
            if wanted is None or metric.name in wanted:
                point = self._read_metric(metric)
                if point is not None:
                    points.append(point)
        return points

    def _read_metric(self, metric: ApplicationMetric) -> Point | None:
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
            self._warn_once("The metric %s is missing from a push: %r.", metric, error)
            return None
        seconds = self._clock.monotonic() - began
        if seconds > LONGEST_S:
            self._metrics.drop_metric(metric)
            text = "The metric %s is not pushed any more: its function took %.0f ms, not 10 ms."
            self._warn_once(text, metric, seconds * 1000)
            return None
        if not math.isfinite(value):
            return None
        return Point(name, PointKind.GAUGE, value, labels, unit=unit)

    def _warn_once(self, text: str, metric: ApplicationMetric, why: object) -> None:
        if metric.name not in self._warned and len(self._warned) < WARNINGS:
            self._warned.add(metric.name)
            extra = {"event": "telemetry_metric_left_out", "metric": metric.name}
            self._log.warning(text, metric.name, why, extra=extra)
