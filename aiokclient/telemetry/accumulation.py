"""The differences between the values of metrics and the values that the brokers already have.

Collectors give sums since the client began. Brokers want either the difference from the last push
that was accepted (delta), or the sum since the accumulation began (cumulative). When a subscription
changes from one to the other, the accumulation begins again with the last accepted push, so that
nothing is counted twice, and nothing is missing.

A value that is lower than before belongs to a new metric of the same name and labels, which counts
from zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from aiokclient.metrics import Labels
from aiokclient.telemetry.points import HistogramValue, Point, PointKind

__all__ = ["AcceptedValues", "Accumulation", "Measurement"]

MOST_SERIES: Final = 20_000
"""Maximum number of series whose last accepted values are kept. The oldest values are dropped."""

SeriesKey: TypeAlias = tuple[str, Labels, int]
"""The name, the labels, and the source of a series."""
Total: TypeAlias = float | HistogramValue


class _Base(NamedTuple):
    """The value from which a difference is taken, and its time in milliseconds."""

    total: Total | None
    time_ms: int


class Measurement(NamedTuple):
    """A point, with the value to push, and the time since which its sum is counted."""

    point: Point
    value: Total
    start_ms: int


class AcceptedValues:
    """Sums and histograms that were taken at a time, for `Accumulation.accept_values`."""

    __slots__ = ("bases",)

    def __init__(self, points: Iterable[Point], time_ms: int) -> None:
        self.bases: dict[SeriesKey, _Base] = {
            (point.name, point.labels, point.source): _Base(point.value, time_ms)
            for point in points
            if point.kind in (PointKind.SUM, PointKind.HISTOGRAM)
        }


class Accumulation:
    """The values from which the differences of one client are taken. It began at `began_ms`.

    `measure_points` may be called in a thread, while no other method is called.
    """

    def __init__(self, began_ms: int) -> None:
        self._begin = _Base(None, began_ms)
        self._accepted: dict[SeriesKey, _Base] = {}
        self._origins: dict[SeriesKey, _Base] = {}
        """The bases of cumulative values: their differences are taken from here."""
        self._delta: bool | None = None

    @property
    def series(self) -> int:
        """The number of series whose last accepted values are kept."""
        return len(self._accepted)

    def follow_temporality(self, delta: bool) -> None:
        """Measure from the last accepted push if `delta`, otherwise from the beginning.

        If `delta` has just become false, the beginning is the last push that was accepted before.
        """
        if self._delta is not None and self._delta is not delta:
            self._origins = dict(self._accepted)
        self._delta = delta

    def measure_points(self, points: Iterable[Point]) -> list[Measurement]:
        """Return the values to push for these points."""
        bases = self._accepted if self._delta else self._origins
        return [self._measure_point(point, bases) for point in points]

    def _measure_point(self, point: Point, bases: dict[SeriesKey, _Base]) -> Measurement:
        if point.kind in (PointKind.GAUGE, PointKind.GAUGE_INT):
            return Measurement(point, point.value, self._begin.time_ms)
        base = bases.get((point.name, point.labels, point.source), self._begin)
        value = point.value if base.total is None else _difference(point.value, base.total)
        if value is None:
            return Measurement(point, point.value, base.time_ms)
        return Measurement(point, value, base.time_ms)

    def accept_values(self, values: AcceptedValues) -> None:
        """Record that the brokers have these values."""
        new = values.bases
        for key in new:
            self._accepted.pop(key, None)  # The dict stays ordered by the time of the values.
        self._accepted.update(new)
        for bases in (self._accepted, self._origins):
            while len(bases) > MOST_SERIES:
                del bases[next(iter(bases))]

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Forget the series of ended topics. If such a topic returns, its series begin at zero."""
        for bases in (self._accepted, self._origins):
            for key in [key for key in bases if topics.intersection(_topics(key[1]))]:
                del bases[key]


def _topics(labels: Labels) -> list[str]:
    return [value for name, value in labels if name == "topic"]


def _difference(new: Total, old: Total) -> Total | None:
    """Return the increase of a value, or None if it has decreased or has other buckets."""
    if isinstance(new, HistogramValue) and isinstance(old, HistogramValue):
        if new.bounds != old.bounds:
            return None
        counts = tuple(a - b for a, b in zip(new.counts, old.counts, strict=True))
        if any(count < 0 for count in counts):
            return None
        return HistogramValue(new.bounds, counts, new.total - old.total)
    if isinstance(new, HistogramValue) or isinstance(old, HistogramValue) or new < old:
        return None
    return new - old
