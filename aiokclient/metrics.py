"""Counters, gauges and histograms: plain numbers, no locks, no clock, no IO.

They belong to one event loop. Keep the object that `counter()` returns and call `add` on it; a
look-up by name on every record would cost more than the rest of its path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar, cast

__all__ = ["Counter", "Gauge", "Histogram", "HistogramValue", "Labels", "Metrics"]

Instrument = TypeVar("Instrument", "Counter", "Gauge", "Histogram")

Labels: TypeAlias = tuple[tuple[str, str], ...]

DEFAULT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram's buckets: seconds, from a millisecond to ten seconds."""


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def add(self, n: int | float = 1) -> None:
        self.value += n


class Gauge:
    """A number that goes up and down, set by its owner or read from its sources when asked."""

    __slots__ = ("_sources", "_value", "source")

    def __init__(self) -> None:
        self._value: int | float = 0
        self._sources: dict[Callable[[], int | float], None] = {}
        self.source: Callable[[], int | float] | None = None

    @property
    def value(self) -> int | float:
        value = self._value if self.source is None else self.source()
        return value + sum(source() for source in self._sources)

    def include(self, source: Callable[[], int | float]) -> Callable[[], None]:
        """Adds what one of several owners has to the value; returns a function that ends it."""
        self._sources[source] = None

        def end() -> None:
            self._sources.pop(source, None)

        return end

    def set(self, value: int | float) -> None:
        self._value = value

    def add(self, n: int | float = 1) -> None:
        self._value += n


class HistogramValue:
    """What a histogram has seen: how many, their sum, the largest, and counts per bucket."""

    __slots__ = ("bounds", "count", "counts", "maximum", "total")

    def __init__(
        self,
        count: int,
        total: float,
        maximum: float,
        bounds: tuple[float, ...],
        counts: tuple[int, ...],
    ) -> None:
        self.count = count
        self.total = total
        self.maximum = maximum
        self.bounds = bounds
        self.counts = counts

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, q: float) -> float:
        """An upper bound of the q-th quantile (0 to 1): the end of the bucket that it falls in."""
        wanted, seen = q * self.count, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.maximum)
        return self.maximum

    def __repr__(self) -> str:
        return f"HistogramValue(count={self.count}, mean={self.mean:.6g}, max={self.maximum:.6g})"


class Histogram:
    """Observations sorted into fixed buckets; the last bucket takes what exceeds all bounds."""

    __slots__ = ("_bounds", "_counts", "_maximum", "_total")

    def __init__(self, bounds: Sequence[float] = DEFAULT_BOUNDS) -> None:
        self._bounds = tuple(sorted(bounds))
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0
        self._maximum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value
        self._maximum = max(self._maximum, value)

    @property
    def value(self) -> HistogramValue:
        return HistogramValue(
            sum(self._counts), self._total, self._maximum, self._bounds, tuple(self._counts)
        )


class Metrics:
    """The instruments of one client, by name and labels; asking again gives the same one."""

    def __init__(self) -> None:
        self._instruments: dict[tuple[str, Labels], Counter | Gauge | Histogram] = {}

    def counter(self, name: str, **labels: object) -> Counter:
        """A number that only grows."""
        return self._get(Counter, name, labels)

    def gauge(
        self, name: str, source: Callable[[], int | float] | None = None, **labels: object
    ) -> Gauge:
        """A number that goes up and down; with `source` it is computed when a snapshot is made."""
        gauge = self._get(Gauge, name, labels)
        if source is not None:
            gauge.source = source
        return gauge

    def histogram(
        self, name: str, bounds: Sequence[float] = DEFAULT_BOUNDS, **labels: object
    ) -> Histogram:
        """A distribution; `bounds` counts only when the histogram is made."""
        return self._get(Histogram, name, labels, bounds)

    def remove(self, **labels: object) -> None:
        """Forgets every instrument that carries all of these labels, as of a broker that left."""
        gone = set(_labels(labels))
        for key in [key for key in self._instruments if gone.issubset(key[1])]:
            del self._instruments[key]

    def snapshot(self) -> dict[str, int | float | HistogramValue]:
        """All values now, keyed `name` or `name{label=value,...}`, sorted."""
        return {
            _written(name, labels): instrument.value
            for (name, labels), instrument in sorted(self._instruments.items(), key=lambda i: i[0])
        }

    def _get(
        self, kind: Callable[..., Instrument], name: str, labels: dict[str, object], *args: object
    ) -> Instrument:
        key = (name, _labels(labels))
        instrument = self._instruments.get(key)
        if instrument is None:
            instrument = self._instruments[key] = kind(*args)
        elif type(instrument) is not kind:
            raise TypeError(f"{_written(*key)} is a {type(instrument).__name__} already")
        return cast(Instrument, instrument)


def _labels(labels: dict[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _written(name: str, labels: Labels) -> str:
    if not labels:
        return name
    return f"{name}{{{','.join(f'{label}={value}' for label, value in labels)}}}"
