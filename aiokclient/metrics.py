"""The registry of a client's metrics: counters, gauges, histograms, and spreads.

All are plain numbers without locks, clock, or IO, and belong to one event loop. Keep the object
that `counter()` returns and call `add` on it: a lookup by name for every record would cost more
than all other work for the record. Rates are computed by the collector of the numbers; nothing is
averaged over time here.

`Metrics` is the registry. An instrument has a name, labels, and an owner: the client itself, or one
producer, consumer, admin, or member of a group (`OwnMetrics`). `metrics()`, Prometheus, and
OpenTelemetry read the instruments of the client, and those of its owners that `show_series` names,
as one sum for all owners. Pushes (KIP-714) read the instruments of each owner. For that,
`OwnMetrics.take_sample` copies the numbers of an owner at one moment, in the event loop. Everything
else is done with that copy, a `Sample`, in the thread that encodes a push.

The number of series is bounded. Metrics with many labels are either computed when they are read
(`collect_series`), so that they contain only objects that still exist, or their owner removes them
(`remove_series`). A metric by topic has at most `SERIES` topics. All other topics are counted
together, under `OTHER`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter as Count
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from aiokclient.clock import Clock, SystemClock
from aiokclient.log.tables import Column, Table
from aiokclient.types.named_tuple import NamedTuple

T = TypeVar("T")
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

UNCOUNTED = 64
"""Number of observations that a spread or a histogram collects before it counts them."""

SERIES = 1000
"""Largest number of topics that have their own series in a metric by topic."""
OTHER = "(other)"
"""The label for all further topics. No topic can have this name."""
OTHER_TOPICS = (("topic", OTHER),)

FORMER = 16
"""Number of ended owners that are kept apart, because some of their events are counted late."""
UNPUSHED = 100
"""Number of ended owners whose last metrics are kept for the next push."""
ENDED_TOPICS = 10_000
"""The largest number of deleted topics to remember. If there are more, all are forgotten.

There can be more only if nothing calls `take_ended_topics`.
"""

NUMBERS = count(1)
"""The source of ids for owners."""


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

    def add_source(self, source: Callable[[], int | float]) -> Callable[[], None]:
        """Add the result of `source` to the value. Return a function that removes the source."""
        self._sources[source] = None

        def end() -> None:
            self._sources.pop(source, None)

        return end

    def set(self, value: int | float) -> None:
        self._value = value

    def add(self, n: int | float = 1) -> None:
        self._value += n


class Reading(NamedTuple):
    """Observations of one object.

    `number` and `total` are those since the object began. `largest` and `smallest` are those of a
    time span; see `Spread.take_reading`.

    The value of a counter or gauge is both the `number` and the `total`.
    """

    number: float = 0
    total: float = 0
    largest: float = -math.inf
    smallest: float = math.inf


EMPTY = Reading()

Series: TypeAlias = Iterable[tuple[Labels, Reading]]
SeriesByKey: TypeAlias = Mapping[str, Series | Callable[[], Series]]
"""Series by key, or functions that compute them from copied numbers when a thread calls them."""


def counted(value: float) -> Reading:
    """Return the reading of a number that only increases."""
    return Reading(value, value)


def gauged(value: float) -> Reading:
    """Return the reading of a number that can increase and decrease."""
    return Reading(value, value, value, value)


def merged(readings: Iterable[Reading]) -> Reading:
    """Return one reading that combines these: their sums, and their extremes."""
    number = total = 0.0
    largest, smallest = -math.inf, math.inf
    for reading in readings:
        number += reading.number
        total += reading.total
        largest = max(largest, reading.largest)
        smallest = min(smallest, reading.smallest)
    return Reading(number, total, largest, smallest)


class Spread:
    """The number, the sum, the largest, and the smallest of observations.

    An observation is only appended to a list, which is added up when it is long or is read.
    """

    __slots__ = ("_count", "_extremes", "_largest", "_smallest", "_total", "uncounted")

    def __init__(self) -> None:
        self._count = 0
        self._total: int | float = 0
        self._largest: int | float = -math.inf
        self._smallest: int | float = math.inf
        self._extremes: tuple[int | float, int | float] = (-math.inf, math.inf)
        """The extremes of the time span that the last `take_reading` ended."""
        self.uncounted: list[int | float] = []
        """The latest observations.

        A hot path appends to it, and calls `count_latest` when it has `UNCOUNTED` elements.
        """

    def observe(self, value: int | float) -> None:
        uncounted = self.uncounted
        uncounted.append(value)
        if len(uncounted) >= UNCOUNTED:
            self.count_latest()

    def observe_all(self, values: Iterable[int | float]) -> None:
        self.uncounted.extend(values)
        self.count_latest()

    def count_latest(self) -> None:
        """Count the latest observations."""
        values = self.uncounted
        if values:
            self._count += len(values)
            self._total += sum(values)
            self._largest = max(self._largest, max(values))
            self._smallest = min(self._smallest, min(values))
            values.clear()

    @property
    def count(self) -> int:
        """Number of observations."""
        self.count_latest()
        return self._count

    @property
    def total(self) -> int | float:
        """The sum of the observations."""
        self.count_latest()
        return self._total

    def take_reading(self, *, again: bool | None) -> Reading:
        """Return the number and the sum of all observations, and the extremes of a time span.

        The time span begins with the previous reading and ends with this one. `again` is true if no
        broker has accepted the previous reading: then the time span of that reading is included.
        With None, this reading does not end the time span.
        """
        self.count_latest()
        largest, smallest = self._largest, self._smallest
        if again is None:
            return Reading(self._count, self._total, largest, smallest)
        if again:
            largest, smallest = max(largest, self._extremes[0]), min(smallest, self._extremes[1])
        self._extremes = largest, smallest
        self._largest, self._smallest = -math.inf, math.inf
        return Reading(self._count, self._total, largest, smallest)


class Histogram(Spread):
    """Observations sorted into fixed buckets; the last bucket takes what exceeds all bounds.

    An observation is only appended to a list, because observing must be cheap for requests. The
    list is sorted into the buckets when it is long or when the histogram is read.
    """

    __slots__ = ("_bounds", "_counts", "_maximum")

    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        super().__init__()
        self._bounds = tuple(sorted(bounds))
        self._counts = [0] * (len(self._bounds) + 1)
        self._maximum: int | float = 0

    def count_latest(self) -> None:
        """Put the latest observations into their buckets."""
        values = self.uncounted
        if not values:
            return
        values.sort()
        self._count += len(values)
        self._total += sum(values)
        self._maximum = max(self._maximum, values[-1])
        self._largest = max(self._largest, values[-1])
        self._smallest = min(self._smallest, values[0])
        begin = 0
        for index, bound in enumerate(self._bounds):
            end = bisect_right(values, bound, begin)
            self._counts[index] += end - begin
            begin = end
        self._counts[-1] += len(values) - begin
        values.clear()

    def add_all_of(self, other: Histogram) -> None:
        """Add the observations of another histogram, which has the same bounds."""
        self.count_latest()
        other.count_latest()
        self._count += other._count
        self._total += other._total
        self._maximum = max(self._maximum, other._maximum)
        self._counts = [one + two for one, two in zip(self._counts, other._counts, strict=True)]

    @property
    def buckets(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """The upper bounds of the buckets, and the counts, which have one element more."""
        self.count_latest()
        return self._bounds, tuple(self._counts)

    def quantile(self, q: float) -> float:
        """Return an upper bound of the q-th quantile (0 to 1): the upper bound of its bucket."""
        wanted, seen = q * self.count, 0
        for bound, number in zip(self._bounds, self._counts, strict=False):
            seen += number
            if number and seen >= wanted:
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

    def _make_table(self) -> Table:
        rows = [(name, _shown(value)) for name, value in self.items()]
        return Table((Column("metric"), Column("value", numeric=True)), rows)

    def _repr_html_(self) -> str:
        return self._make_table().html()

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


class Timed:
    """A context manager that adds the seconds for which it was entered to a counter."""

    __slots__ = ("_began", "_clock", "_counter")

    def __init__(self, counter: Counter, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._counter.add(self._clock.monotonic() - self._began)


class Sample:
    """The metrics of one owner at one moment. They can be read in any thread."""

    def __init__(
        self,
        number: int,
        kind: str,
        membership: str,
        resource: Labels,
        counts: dict[str, list[tuple[Labels, float]]],
        series: dict[str, Series | Callable[[], Series]],
        sums: Mapping[str, Iterable[str]],
    ) -> None:
        self.number = number
        """An id of the owner, which is unique as long as the process runs."""
        self.kind = kind
        self.membership = membership
        self.resource = resource
        self._counts = counts
        self._series = series
        self._sums = sums
        self._read: dict[str, dict[Labels, Reading]] = {}

    def has_key(self, key: str) -> bool:
        """Return whether the owner has a key."""
        return key in self._counts or key in self._series or key in self._sums

    def read_key(self, key: str) -> dict[Labels, Reading]:
        """Return the readings of a key by labels. May take long."""
        found = self._read.get(key)
        if found is None:
            counts, series = self._counts.get(key, ()), self._series.get(key, ())
            found = {labels: counted(value) for labels, value in counts}
            found.update(series() if callable(series) else series)
            for part in self._sums.get(key, ()):
                for labels, reading in self.read_key(part).items():
                    found[labels] = counted(found.get(labels, EMPTY).number + reading.number)
            self._read[key] = found
        return found


class _Shown(NamedTuple):
    """Series of an owner that are shown in `metrics()`."""

    name: str
    unit: str
    series: dict[Labels, Counter | Histogram]


class Owner(Protocol):
    """A consumer, or a member of a group."""

    @property
    def metric_attributes(self) -> Labels:
        """The present attributes by which an operator recognizes the object."""
        ...


class OwnMetrics:
    """The instruments of one owner, by key and labels.

    `kind` is "producer", "consumer", or "admin", and "" for the connections of a client.
    `attributes` are those by which an operator recognizes the owner, such as its group. Those that
    may change are read from `owner`.
    `membership` is "assigned" for a consumer without a group, the group protocol for a consumer in
    a group, and "member" for a `GroupMember`.

    A key is the name that the rows of `aiokclient.telemetry.table` use for the values. Values are
    cumulative: rates and averages are computed from two readings. Only a largest and a smallest
    value need a time span of their own.
    """

    def __init__(
        self,
        metrics: Metrics,
        kind: str = "",
        membership: str = "",
        *,
        attributes: Labels = (),
        owner: Owner | None = None,
    ) -> None:
        self.metrics = metrics
        """The registry of the client."""
        self.number = next(NUMBERS)
        """An id that no other owner has."""
        self.kind = kind
        self.membership = membership
        self.shown: list[_Shown] = []
        """The series that are also in `metrics()`."""
        self.owner = owner
        self._attributes = dict(attributes)
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._spreads: dict[str, dict[Labels, Spread]] = {}
        """The spreads and histograms."""
        self._computed: dict[str, Callable[[], Series]] = {}
        self._sums: dict[str, tuple[str, ...]] = {}
        self._sources: list[Callable[[bool | None], SeriesByKey]] = []
        self._of_partitions: Callable[[bool | None], SeriesByKey] | None = None
        self._updates: list[Callable[[], None]] = []
        self._forgetting: list[Callable[[], None]] = []

    @property
    def resource(self) -> Labels:
        """The attributes, sorted by name.

        An attribute that has ended keeps its last value, so that the last push of a member that has
        left its group still names the group.
        """
        self.keep_attributes()
        return tuple(sorted(self._attributes.items()))

    def keep_attributes(self) -> None:
        """Keep the present attributes, some of which are about to end."""
        if self.owner is not None:
            self._attributes.update(self.owner.metric_attributes)

    def counter(self, key: str, **labels: str) -> Counter:
        """Return the counter with this key and these labels. A hot path adds to its `value`."""
        return _get(self._counters.setdefault(key, {}), labels, Counter)

    def spread(self, key: str, **labels: str) -> Spread:
        """Return the spread with this key and these labels."""
        return _get(self._spreads.setdefault(key, {}), labels, Spread)

    def histogram(self, key: str) -> Histogram:
        """Return the histogram with this key, in seconds."""
        return cast(Histogram, _get(self._spreads.setdefault(key, {}), {}, Histogram))

    def show_series(self, key: str, name: str, *, unit: str = "") -> None:
        """Show the counters or the histogram of a key in `metrics()`, under this name.

        If several owners of a client show series with the same name and labels, their sum is shown.
        """
        shown = self._spreads if key in self._spreads else self._counters
        series = cast("dict[Labels, Counter | Histogram]", shown.setdefault(key, {}))
        self.shown.append(_Shown(name, unit, series))

    def time_block(self, key: str, clock: Clock) -> Timed:
        """Return a context manager that adds the seconds spent in its body to a counter."""
        return Timed(self.counter(key), clock)

    def gauge(self, key: str, source: Callable[[], float | None]) -> None:
        """Compute a key's value when it is taken. If `source` returns None, the key is left out."""

        def compute() -> Series:
            value = source()
            return [] if value is None else [((), gauged(value))]

        self._computed[key] = compute

    def compute_series(self, key: str, source: Callable[[], Series]) -> None:
        """Compute the series of a key when they are taken."""
        self._computed[key] = source

    def sum_series(self, key: str, *parts: str) -> None:
        """Compute the series of a key as the sums of those of other keys."""
        self._sums[key] = parts

    def offer_series(self, source: Callable[[bool | None], SeriesByKey]) -> None:
        """Compute the series of several keys when they are taken.

        `source(again)` takes readings as `Spread.take_reading` does.
        """
        self._sources.append(source)

    def offer_partitions(self, source: Callable[[bool | None], SeriesByKey]) -> None:
        """Compute the series of partitions when they are taken, unless there are too many."""
        self._of_partitions = source

    def add_updater(self, update: Callable[[], None]) -> None:
        """Call `update()` before values are taken, so that it counts the collected events."""
        self._updates.append(update)

    def add_forget_listener(self, forget: Callable[[], None]) -> None:
        """Call `forget()` when series of topics may have been removed.

        The owner of stored series must then look them up again.
        """
        self._forgetting.append(forget)

    def end_owner(self) -> None:
        """End with the owner: its sums stay in `metrics()`. Synchronous, idempotent."""
        self.metrics.end_owner(self)

    def update_values(self) -> None:
        """Count all events, so that values can be taken."""
        for update in self._updates:
            update()

    def gauge_value(self, key: str) -> float:
        """Return the value of a key that has no labels, or 0 if it is left out."""
        compute = self._computed.get(key)
        return sum(reading.total for _, reading in compute()) if compute is not None else 0

    def take_sample(self, *, again: bool | None, partitions: bool = True) -> Sample:
        """Copy all values. Call `update_values` first. For `again`, see `Spread.take_reading`.

        The series of partitions are left out unless `partitions` is true.
        """
        counts = {
            key: [(labels, each.value) for labels, each in counters.items()]
            for key, counters in self._counters.items()
        }
        series: dict[str, Series | Callable[[], Series]] = {
            key: [(labels, each.take_reading(again=again)) for labels, each in spreads.items()]
            for key, spreads in self._spreads.items()
        }
        for key, compute in self._computed.items():
            series[key] = list(compute())
        for source in self._sources:
            series.update(source(again))
        if partitions and self._of_partitions is not None:
            series.update(self._of_partitions(again))
        return Sample(
            self.number, self.kind, self.membership, self.resource, counts, series, self._sums
        )

    def keep_topics(self, exists: Callable[[str], bool]) -> set[str]:
        """Forget the series of all topics that do not exist, and return these topics."""
        self.update_values()
        gone: set[str] = set()
        every: list[dict[Labels, Any]] = [*self._counters.values(), *self._spreads.values()]
        for series in every:
            gone |= _keep_topics(series, exists)
        for forget in self._forgetting:
            forget()
        return gone


class Metrics:
    """The registry of one client: instruments by name and labels, and the owners of others.

    The same name and labels return the same instrument.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        clock = SystemClock() if clock is None else clock
        self.began, self.began_ms = clock.monotonic(), clock.time_ms()
        """The time at which measuring began, on the monotonic clock and on the wall clock."""
        self.connections = OwnMetrics(self)
        """The metrics of the connections, which have no other owner."""
        self.are_collected = False
        """Whether a collector reads the metrics for pushes.

        Only then are those of ended owners kept for the next push.
        """
        self._owners: dict[OwnMetrics, None] = {}
        self._unpushed: dict[OwnMetrics, None] = {}
        """Owners that have ended after the last push."""
        self._former: deque[list[_Shown]] = deque()
        """The series of the owners that ended last, whose last events may still be counted."""
        self._ended_topics: set[str] = set()
        self._instruments: dict[tuple[str, Labels], Counter | Gauge | Histogram] = {}
        self._units: dict[str, str] = {}
        self._by_topic: dict[str, TopicCounters] = {}
        self._sharers: dict[Labels, dict[object, None]] = {}
        self._collectors: dict[object, tuple[str, str, Callable[[], Collected]]] = {}

    def counter(self, name: str, *, unit: str = "", **labels: object) -> Counter:
        """Return the counter with this name and these labels."""
        return self._get_instrument(Counter, name, unit, labels)

    def gauge(
        self,
        name: str,
        source: Callable[[], int | float | None] | None = None,
        *,
        unit: str = "",
        **labels: object,
    ) -> Gauge:
        """Return the gauge with this name and these labels. `source`, if given, computes it."""
        gauge = self._get_instrument(Gauge, name, unit, labels)
        if source is not None:
            gauge.source = source
        return gauge

    def histogram(
        self, name: str, bounds: Sequence[float] = SECONDS, *, unit: str = "", **labels: object
    ) -> Histogram:
        """Return the histogram with this name and these labels.

        `bounds` has an effect only in the call that creates the histogram.
        """
        return self._get_instrument(Histogram, name, unit, labels, bounds)

    def get_topic_counters(self, name: str, *, unit: str = "") -> TopicCounters:
        """Return counters by topic."""
        return self._by_topic.setdefault(name, TopicCounters(self, name, unit=unit))

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Remove the series of all topics that do not exist."""
        self._update_values()
        for counters in self._by_topic.values():
            counters.keep_topics(exists)
        for shown in self._former:
            for _, _, series in shown:
                _keep_topics(series, exists)
        for own in self.owners:
            self._ended_topics |= own.keep_topics(exists)
        if not self.are_collected or len(self._ended_topics) > ENDED_TOPICS:
            self._ended_topics.clear()

    def take_ended_topics(self) -> frozenset[str]:
        """Return the topics whose series were forgotten since the last call."""
        gone, self._ended_topics = frozenset(self._ended_topics), set()
        return gone

    @property
    def owners(self) -> list[OwnMetrics]:
        """All owners, including those that have ended after the last push."""
        return [*self._unpushed, *self._owners]

    @property
    def ended_owners(self) -> list[OwnMetrics]:
        """The owners that have ended after the last push."""
        return list(self._unpushed)

    def add_owner(self, own: OwnMetrics) -> None:
        """Read the metrics of an owner from now on, until `end_owner`."""
        self._owners[own] = None

    def end_owner(self, own: OwnMetrics) -> None:
        """Keep the sums of an owner that ends. Idempotent."""
        if own not in self._owners:
            return
        own.update_values()
        del self._owners[own]
        if own.shown:
            self._former.append(own.shown)
        if len(self._former) > FORMER:
            self._keep_sums(self._former.popleft())
        if self.are_collected and len(self._unpushed) < UNPUSHED:
            self._unpushed[own] = None

    def drop_owners(self, pushed: Iterable[OwnMetrics]) -> None:
        """Forget these ended owners, because their last values were pushed."""
        for own in pushed:
            self._unpushed.pop(own, None)

    def _keep_sums(self, shown: list[_Shown]) -> None:
        """Add the values that an ended owner has shown to instruments of the client."""
        for name, unit, series in shown:
            for labels, instrument in series.items():
                if isinstance(instrument, Histogram):
                    kept = self.histogram(name, instrument._bounds, unit=unit, **dict(labels))
                    kept.add_all_of(instrument)
                elif _has_topic(labels):
                    self.get_topic_counters(name, unit=unit).get_counter(labels[0][1]).add(
                        instrument.value
                    )
                else:
                    self.counter(name, unit=unit, **dict(labels)).add(instrument.value)

    def collect_series(
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

    def _update_values(self) -> None:
        for own in (self.connections, *self._owners):
            own.update_values()

    def remove_series(self, **labels: object) -> None:
        """Remove every instrument with all of these labels, for example those of one broker."""
        gone = set(_labels(labels))
        for key in [key for key in self._instruments if gone.issubset(key[1])]:
            del self._instruments[key]

    def share_labels(self, **labels: object) -> Callable[[], None]:
        """Return a function to call when the caller no longer uses instruments with these labels.

        When all callers of `share_labels` have called the function that they got, the instruments
        are removed. This is for objects that end before their client, such as the consumers of a
        group.
        """
        key, mine = _labels(labels), object()
        self._sharers.setdefault(key, {})[mine] = None

        def end() -> None:
            sharers = self._sharers.get(key, {})
            if sharers.pop(mine, self) is None and not sharers:
                del self._sharers[key]
                self.remove_series(**labels)

        return end

    def discard_series(self, name: str, **labels: object) -> None:
        """Remove the instrument with exactly this name and these labels, if it exists."""
        self._instruments.pop((name, _labels(labels)), None)

    def collect_values(self, prefix: str = "") -> list[MetricValue]:
        """Return the values of all series whose names begin with `prefix`.

        They are sorted by name and labels.
        """
        self._update_values()
        found: dict[tuple[str, Labels], MetricValue] = {}
        for (name, labels), (unit, instruments) in self._all_instruments(prefix).items():
            if _finite(value := _sum(instruments)):
                kind = instruments[0].kind
                found[name, labels] = MetricValue(
                    name, dict(labels), kind, unit, cast(Value, value)
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

    def _all_instruments(
        self, prefix: str
    ) -> dict[tuple[str, Labels], tuple[str, list[Counter | Gauge | Histogram]]]:
        """Return the units and the instruments of all series: the client's, and its owners'."""
        every: dict[tuple[str, Labels], tuple[str, list[Counter | Gauge | Histogram]]] = {}
        for key, instrument in list(self._instruments.items()):
            if key[0].startswith(prefix):
                every[key] = self._units.get(key[0], ""), [instrument]
        topics: Count[str] = Count(name for name, labels in every if _has_topic(labels))
        for shown in [*self._former, *(own.shown for own in self._owners)]:
            for name, unit, series in shown:
                if not name.startswith(prefix):
                    continue
                for labels, own_instrument in list(series.items()):
                    # A pushed series begins at 0; one of `metrics()`, with its first event.
                    if labels and not own_instrument.value:
                        continue
                    if _has_topic(labels) and (name, labels) not in every:
                        topics[name] += 1
                        labels = labels if topics[name] <= SERIES else OTHER_TOPICS
                    every.setdefault((name, labels), (unit, []))[1].append(own_instrument)
        return every

    def take_snapshot(self) -> MetricsSnapshot:
        """Return all current values by `name` or `name{label=value,...}`, sorted."""
        return MetricsSnapshot(
            (_written(value.name, tuple(value.labels.items())), value.value)
            for value in self.collect_values()
        )

    def _get_instrument(
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

    def get_counter(self, topic: str) -> Counter:
        """Return the counter of a topic. Do not store it, because `forget_topic` may replace it."""
        if (counter := self._counters.get(topic)) is None:
            shown = topic if len(self._counters) < SERIES else OTHER
            counter = self._metrics.counter(self._name, unit=self._unit, topic=shown)
            if shown is topic:
                self._counters[topic] = counter
        return counter

    def forget_topic(self, topic: str) -> None:
        """Remove the series of a deleted topic. A topic that returns begins at zero."""
        if self._counters.pop(topic, None) is not None:
            self._metrics.discard_series(self._name, topic=topic)

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Remove the series of topics that do not exist."""
        for topic in [topic for topic in self._counters if not exists(topic)]:
            self.forget_topic(topic)


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


def _get(series: dict[Labels, T], given: dict[str, str], make: Callable[[], T]) -> T:
    labels = tuple(given.items())
    found = series.get(labels)
    if found is None:
        if "topic" in given and len(series) >= SERIES:
            labels = OTHER_TOPICS
        found = series.setdefault(labels, make())
    return found


def _has_topic(labels: Labels) -> bool:
    """Return whether the series is that of one topic, by its labels."""
    return bool(labels) and labels[0][0] == "topic" and labels != OTHER_TOPICS


def _keep_topics(series: dict[Labels, Any], exists: Callable[[str], bool]) -> set[str]:
    gone = {labels[0][1] for labels in series if _has_topic(labels) and not exists(labels[0][1])}
    for topic in gone:
        del series[("topic", topic),]
    return gone


def _sum(instruments: list[Counter | Gauge | Histogram]) -> Value | None:
    """Return the value of one series, of which several owners may have a part."""
    first = instruments[0]
    if len(instruments) == 1:
        return first.value
    if isinstance(first, Histogram):
        whole = Histogram(first._bounds)
        for each in instruments:
            whole.add_all_of(cast(Histogram, each))
        return whole.value
    return sum(cast(Number, each.value) for each in instruments)
