"""Counters, gauges and histograms: plain numbers, no locks, no clock, no IO.

They belong to one event loop. Keep the object that `counter()` returns and call `add` on it: a
lookup by name for every record would cost more than all other work for the record. Rates are
computed by the collector of the numbers; nothing is averaged over time here.

The number of series is bounded. Metrics with many labels are either computed when they are read
(`collect`), so that they contain only objects that still exist, or their owner removes them
(`remove`). A metric by topic has at most `SERIES` topics. All other topics are counted together,
under `OTHER`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from aiokclient.log.tables import Column, Table

__all__ = [
    "BYTES",
    "Counter",
    "Gauge",
    "Histogram",
    "Labels",
    "MetricValue",
    "Metrics",
    "MetricsSnapshot",
    "SECONDS",
    "TopicCounters",
]

Instrument = TypeVar("Instrument", "Counter", "Gauge", "Histogram")

Labels: TypeAlias = tuple[tuple[str, str], ...]
Number: TypeAlias = int | float
Value: TypeAlias = int | float | dict[str, Any]
Collected: TypeAlias = Iterable[tuple[Mapping[str, object], int | float | None]]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram's buckets: seconds, from a millisecond to ten seconds."""
BYTES = tuple(float(1 << shift) for shift in range(8, 25, 2))
"""Upper bounds of a histogram's buckets: sizes in bytes, from 256 to 16 Mi."""
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))

UNSORTED = 64
"""Number of observations that a histogram collects before it sorts them into buckets."""

SERIES = 1000
"""Largest number of topics that have their own series in a metric by topic."""
OTHER = "(other)"
"""The label for all further topics. No topic can have this name."""


class MetricValue(NamedTuple):
    """The current value of one series.

    `kind` is "counter", "gauge" or "histogram". `unit` is for example "s", "By" or "".
    """

    name: str
    labels: dict[str, str]
    kind: str
    unit: str
    value: Value


class Counter:
    """A number that only increases."""

    __slots__ = ("value",)

    kind = "counter"

    def __init__(self) -> None:
        self.value: int | float = 0

    def add(self, n: int | float = 1) -> None:
        self.value += n


class Gauge:
    """A number that can increase and decrease. Its owner sets it, or it is computed when read.

    A source that returns None is left out.
    """

    __slots__ = ("_sources", "_value", "source")

    kind = "gauge"

    def __init__(self) -> None:
        self._value: int | float = 0
        self._sources: dict[Callable[[], int | float], None] = {}
        self.source: Callable[[], int | float | None] | None = None

    @property
    def value(self) -> int | float | None:
        value = self._value if self.source is None else self.source()
        return None if value is None else value + sum(source() for source in self._sources)

    def include(self, source: Callable[[], int | float]) -> Callable[[], None]:
        """Add the result of `source` to the value. Return a function that removes the source."""
        self._sources[source] = None

        def end() -> None:
            self._sources.pop(source, None)

        return end

    def set(self, value: int | float) -> None:
        self._value = value

    def add(self, n: int | float = 1) -> None:
        self._value += n


class Histogram:
    """Observations sorted into fixed buckets; the last bucket takes what exceeds all bounds.

    An observation is only appended to a list, because observing must be cheap for requests. The
    list is sorted into the buckets when it is long or when the histogram is read.
    """

    __slots__ = ("_bounds", "_counts", "_maximum", "_recent", "_taken", "_total", "_unsorted")

    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = tuple(sorted(bounds))
        self._counts = [0] * (len(self._bounds) + 1)
        self._total: int | float = 0
        self._maximum: int | float = 0
        self._recent: int | float = -math.inf
        self._taken: int | float = -math.inf
        """The result of the last `take_maximum`. `_recent` is the maximum since that call."""
        self._unsorted: list[int | float] = []

    def observe(self, value: int | float) -> None:
        unsorted = self._unsorted
        unsorted.append(value)
        if len(unsorted) >= UNSORTED:
            self._sort()

    def observe_all(self, values: Iterable[int | float]) -> None:
        self._unsorted.extend(values)
        self._sort()

    def _sort(self) -> None:
        """Put the latest observations into their buckets."""
        values = self._unsorted
        if not values:
            return
        values.sort()
        self._total += sum(values)
        self._maximum = max(self._maximum, values[-1])
        self._recent = max(self._recent, values[-1])
        begin = 0
        for index, bound in enumerate(self._bounds):
            end = bisect_right(values, bound, begin)
            self._counts[index] += end - begin
            begin = end
        self._counts[-1] += len(values) - begin
        values.clear()

    @property
    def count(self) -> int:
        """Number of observations."""
        self._sort()
        return sum(self._counts)

    @property
    def total(self) -> int | float:
        """The sum of the observations."""
        self._sort()
        return self._total

    @property
    def buckets(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """The upper bounds of the buckets, and the counts, which have one element more."""
        self._sort()
        return self._bounds, tuple(self._counts)

    def take_maximum(self, *, again: bool | None) -> int | float:
        """Return the largest observation since the last call, or minus infinity.

        With `again`, the result of the last call counts as an observation, too. A call with None
        changes nothing.
        """
        self._sort()
        if again is None:
            return self._recent
        taken = max(self._recent, self._taken) if again else self._recent
        self._taken, self._recent = taken, -math.inf
        return taken

    def quantile(self, q: float) -> float:
        """Return an upper bound of the q-th quantile (0 to 1): the upper bound of its bucket."""
        wanted, seen = q * self.count, 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return min(bound, self._maximum)
        return self._maximum

    @property
    def value(self) -> dict[str, Any]:
        """Count, sum, mean, max, quantiles, and the number of observations in each bucket.

        The keys of `buckets` are the upper bounds of the buckets as text, with "+Inf" for the last
        one. The counts are not cumulative: a bucket does not include the ones below it.
        """
        count = self.count
        bounds = [f"{bound:g}" if bound < 1e6 else str(int(bound)) for bound in self._bounds]
        return {
            "count": count,
            "sum": self._total,
            "mean": self._total / count if count else 0.0,
            "max": self._maximum,
            **{name: self.quantile(q) for name, q in QUANTILES},
            "buckets": dict(zip([*bounds, "+Inf"], self._counts, strict=True)),
        }


class MetricsSnapshot(dict[str, Any]):
    """All values at one time, by `name` or `name{label=value,...}`. A dict for use with JSON."""

    def _table(self) -> Table:
        rows = [(name, _shown(value)) for name, value in self.items()]
        return Table((Column("metric"), Column("value", numeric=True)), rows)

    def _repr_html_(self) -> str:
        return self._table().html()

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each series; needs pandas.

        A histogram has its count, mean, max and quantiles in columns of their own.
        """
        columns = ("count", "mean", "max", *(name for name, _ in QUANTILES))
        rows = []
        for name, value in self.items():
            whole = isinstance(value, dict)
            parts = tuple(value[column] if whole else None for column in columns)
            rows.append((name, value["sum"] if whole else value, *parts))
        return Table(tuple(map(Column, ("metric", "value", *columns))), rows).pandas()


class Metrics:
    """The instruments of one client, by name and labels.

    The same name and labels return the same instrument.
    """

    def __init__(self) -> None:
        self._instruments: dict[tuple[str, Labels], Counter | Gauge | Histogram] = {}
        self._units: dict[str, str] = {}
        self._by_topic: dict[str, TopicCounters] = {}
        self._sharers: dict[Labels, dict[object, None]] = {}
        self._collectors: dict[object, tuple[str, str, Callable[[], Collected]]] = {}
        self._updates: dict[object, Callable[[], None]] = {}

    def counter(self, name: str, *, unit: str = "", **labels: object) -> Counter:
        """Return the counter with this name and these labels."""
        return self._get(Counter, name, unit, labels)

    def gauge(
        self,
        name: str,
        source: Callable[[], int | float | None] | None = None,
        *,
        unit: str = "",
        **labels: object,
    ) -> Gauge:
        """Return the gauge with this name and these labels. `source`, if given, computes it."""
        gauge = self._get(Gauge, name, unit, labels)
        if source is not None:
            gauge.source = source
        return gauge

    def histogram(
        self, name: str, bounds: Sequence[float] = SECONDS, *, unit: str = "", **labels: object
    ) -> Histogram:
        """Return the histogram with this name and these labels.

        `bounds` has an effect only in the call that creates the histogram.
        """
        return self._get(Histogram, name, unit, labels, bounds)

    def by_topic(self, name: str, *, unit: str = "") -> TopicCounters:
        """Return counters by topic."""
        found = self._by_topic.get(name)
        if found is None:
            found = self._by_topic[name] = TopicCounters(self, name, unit=unit)
        return found

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Remove the counters of all topics that do not exist."""
        self._update()
        for counters in self._by_topic.values():
            counters.keep(exists)

    def collect(
        self, name: str, source: Callable[[], Collected], *, unit: str = ""
    ) -> Callable[[], None]:
        """Compute the series of a gauge when they are read. Return a function that removes them.

        `source()` returns the labels and the value of each series. If two sources return series
        with the same labels, the larger value is used.
        """
        key = object()
        self._collectors[key] = (name, unit, source)

        def end() -> None:
            self._collectors.pop(key, None)

        return end

    def before_reading(self, update: Callable[[], None]) -> Callable[[], None]:
        """Call `update()` before values are read. Return a function that ends these calls.

        It is for owners that collect frequent events and count them later, all at once.
        """
        key = object()
        self._updates[key] = update

        def end() -> None:
            if self._updates.pop(key, None) is not None:
                update()

        return end

    def _update(self) -> None:
        for update in list(self._updates.values()):
            update()

    def remove(self, **labels: object) -> None:
        """Remove every instrument with all of these labels, for example those of one broker."""
        gone = set(_labels(labels))
        for key in [key for key in self._instruments if gone.issubset(key[1])]:
            del self._instruments[key]

    def share(self, **labels: object) -> Callable[[], None]:
        """Return a function to call when the caller no longer uses instruments with these labels.

        When all callers of `share` have called the function that they got, the instruments are
        removed. This is for objects that end before their client, such as the consumers of a group.
        """
        key, mine = _labels(labels), object()
        self._sharers.setdefault(key, {})[mine] = None

        def end() -> None:
            sharers = self._sharers.get(key, {})
            if sharers.pop(mine, self) is None and not sharers:
                del self._sharers[key]
                self.remove(**labels)

        return end

    def discard(self, name: str, **labels: object) -> None:
        """Remove the instrument with exactly this name and these labels, if it exists."""
        self._instruments.pop((name, _labels(labels)), None)

    def values(self, prefix: str = "") -> list[MetricValue]:
        """Return the values of all series whose names begin with `prefix`.

        They are sorted by name and labels.
        """
        self._update()
        found: dict[tuple[str, Labels], MetricValue] = {}
        for (name, labels), instrument in list(self._instruments.items()):
            if name.startswith(prefix) and _finite(value := instrument.value):
                unit = self._units.get(name, "")
                found[name, labels] = MetricValue(
                    name, dict(labels), instrument.kind, unit, cast(Value, value)
                )
        for name, unit, source in list(self._collectors.values()):
            if not name.startswith(prefix):
                continue
            for given, number in source():
                key = (name, _labels(given))
                before = found.get(key)
                if number is None or not _finite(number):
                    continue
                if before is None or cast(Number, before.value) < number:
                    found[key] = MetricValue(name, dict(key[1]), "gauge", unit, number)
        return [value for _, value in sorted(found.items(), key=lambda item: item[0])]

    def snapshot(self) -> MetricsSnapshot:
        """Return all current values by `name` or `name{label=value,...}`, sorted."""
        return MetricsSnapshot(
            (_written(value.name, tuple(value.labels.items())), value.value)
            for value in self.values()
        )

    def _get(
        self,
        kind: Callable[..., Instrument],
        name: str,
        unit: str,
        labels: dict[str, object],
        *args: object,
    ) -> Instrument:
        key = (name, _labels(labels))
        instrument = self._instruments.get(key)
        if instrument is None:
            instrument = self._instruments[key] = kind(*args)
            self._units[name] = unit or self._units.get(name, "")
        elif type(instrument) is not kind:
            raise TypeError(
                f"The metric {_written(*key)} already exists as a {type(instrument).__name__}."
            )
        return cast(Instrument, instrument)


class TopicCounters:
    """One counter for each topic. Above `SERIES` topics, all others share the counter `OTHER`."""

    def __init__(self, metrics: Metrics, name: str, *, unit: str = "") -> None:
        self._metrics = metrics
        self._name = name
        self._unit = unit
        self._counters: dict[str, Counter] = {}

    def of(self, topic: str) -> Counter:
        """Return the counter of a topic. Do not store it, because `forget` may replace it."""
        if (counter := self._counters.get(topic)) is None:
            shown = topic if len(self._counters) < SERIES else OTHER
            counter = self._metrics.counter(self._name, unit=self._unit, topic=shown)
            if shown is topic:
                self._counters[topic] = counter
        return counter

    def forget(self, topic: str) -> None:
        """Remove the series of a deleted topic. A topic that returns begins at zero."""
        if self._counters.pop(topic, None) is not None:
            self._metrics.discard(self._name, topic=topic)

    def keep(self, exists: Callable[[str], bool]) -> None:
        """Remove the series of topics that do not exist."""
        for topic in [topic for topic in self._counters if not exists(topic)]:
            self.forget(topic)


def _labels(labels: Mapping[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))


def _written(name: str, labels: Labels) -> str:
    if not labels:
        return name
    return f"{name}{{{','.join(f'{label}={value}' for label, value in labels)}}}"


def _finite(value: Value | None) -> bool:
    """Return whether a value can be shown in JSON."""
    return value is not None and (isinstance(value, dict) or math.isfinite(value))


def _shown(value: Value) -> str:
    if not isinstance(value, dict):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    parts = (f"{name} {value[name]:.6g}" for name in ("count", "mean", "p50", "p99", "max"))
    return ", ".join(parts)
