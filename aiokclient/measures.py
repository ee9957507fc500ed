"""The measures of a producer, a consumer, an admin, or the connections of a client.

`metrics` has the numbers that a program reads, which all objects with the same client share. The
measures here belong to one object, and are read only when they are pushed (KIP-714). They are
cumulative: rates and averages are computed from two readings. Only a largest and a smallest value
need a time span of their own.

`take` copies the numbers of an object at one moment, in the event loop. Everything else is done
with that copy, a `Sample`, in the thread that encodes a push.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aiokclient.clock import Clock
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.metrics import OTHER, SERIES, Counter, Gauge, Histogram, Labels

__all__ = [
    "ApplicationMetric",
    "ApplicationMetrics",
    "EMPTY",
    "ClientMeasures",
    "Measures",
    "Reading",
    "Sample",
    "Series",
    "Spread",
    "counted",
    "gauged",
    "merged",
    "observed",
]

T = TypeVar("T")

UNCOUNTED = 64
"""Number of observations that a spread collects before it adds them up."""


ENDED = 100
"""Number of closed objects whose last measures are kept for the next push."""

ENDED_TOPICS = 10_000
"""The largest number of deleted topics to remember. If there are more, all are forgotten.

There can be more only if nothing calls `take_ended_topics`.
"""

NUMBERS = count(1)
"""The source of ids for `Measures`."""


class Reading(NamedTuple):
    """Observations of one object.

    `number` and `total` are those since the object began. `largest` and `smallest` are those of a
    time span; see `Spread.take`.

    The value of a counter or gauge is both the `number` and the `total`.
    """

    number: float = 0
    total: float = 0
    largest: float = -math.inf
    smallest: float = math.inf


EMPTY = Reading()

Series: TypeAlias = Iterable[tuple[Labels, Reading]]
Sources: TypeAlias = Mapping[str, Series | Callable[[], Series]]
"""Series by key, or functions that compute them from copied numbers when a thread calls them."""


def counted(value: float) -> Reading:
    """Return the reading of a number that only increases."""
    return Reading(value, value)


def gauged(value: float) -> Reading:
    """Return the reading of a number that can increase and decrease."""
    return Reading(value, value, value, value)


def observed(histogram: Histogram, *, again: bool | None) -> Reading:
    """Return the reading of a histogram; see `Spread.take`."""
    return Reading(histogram.count, histogram.total, histogram.take_maximum(again=again))


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

    __slots__ = ("_count", "_extremes", "_largest", "_smallest", "_total", "_uncounted")

    def __init__(self) -> None:
        self._count = 0
        self._total: float = 0
        self._largest, self._smallest = -math.inf, math.inf
        self._extremes = (-math.inf, math.inf)
        """The largest and the smallest observation of the time span that the last `take` ended."""
        self._uncounted: list[float] = []

    def observe(self, value: float) -> None:
        uncounted = self._uncounted
        uncounted.append(value)
        if len(uncounted) >= UNCOUNTED:
            self._add_up()

    def observe_all(self, values: Iterable[float]) -> None:
        self._uncounted.extend(values)
        self._add_up()

    def _add_up(self) -> None:
        values = self._uncounted
        if values:
            self._count += len(values)
            self._total += sum(values)
            self._largest = max(self._largest, max(values))
            self._smallest = min(self._smallest, min(values))
            values.clear()

    @property
    def total(self) -> float:
        """The sum of the observations."""
        self._add_up()
        return self._total

    def take(self, *, again: bool | None) -> Reading:
        """Return the number and the sum of all observations, and the extremes of a time span.

        The time span begins with the previous reading and ends with this one. `again` is true if no
        broker has accepted the previous reading: then the time span of that reading is included.
        With None, this reading does not end the time span.
        """
        self._add_up()
        largest, smallest = self._largest, self._smallest
        if again is None:
            return Reading(self._count, self._total, largest, smallest)
        if again:
            largest, smallest = max(largest, self._extremes[0]), min(smallest, self._extremes[1])
        self._extremes = largest, smallest
        self._largest, self._smallest = -math.inf, math.inf
        return Reading(self._count, self._total, largest, smallest)


class Timed:
    """A context manager that adds the seconds for which it was entered to a counter."""

    __slots__ = ("_began", "_counter", "_time")

    def __init__(self, counter: Counter, time: Callable[[], float]) -> None:
        self._counter = counter
        self._time = time
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._time()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._counter.add(self._time() - self._began)


class ApplicationMetric(NamedTuple):
    """A metric of the application: a function that returns a number, or an instrument."""

    name: str
    labels: Labels
    unit: str
    source: Callable[[], float] | Counter | Gauge | Histogram


class Sample:
    """The measures of one object at one moment. They can be read in any thread."""

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
        """An id of the object, which is unique as long as the process runs."""
        self.kind = kind
        self.membership = membership
        self.resource = resource
        self._counts = counts
        self._series = series
        self._sums = sums
        self._read: dict[str, dict[Labels, Reading]] = {}

    def has(self, key: str) -> bool:
        """Return whether the object measures a key."""
        return key in self._counts or key in self._series or key in self._sums

    def read(self, key: str) -> dict[Labels, Reading]:
        """Return the readings of a key by labels. May take long."""
        found = self._read.get(key)
        if found is None:
            counts, series = self._counts.get(key, ()), self._series.get(key, ())
            found = {labels: counted(value) for labels, value in counts}
            found.update(series() if callable(series) else series)
            for part in self._sums.get(key, ()):
                for labels, reading in self.read(part).items():
                    found[labels] = counted(found.get(labels, EMPTY).number + reading.number)
            self._read[key] = found
        return found


class Measures:
    """The measures of one object, by key and labels.

    `kind` is "producer", "consumer", or "admin", and "" for the connections of a client.
    `resource` returns the attributes by which an operator recognizes the object, such as its group.
    `membership` is "assigned" for a consumer without a group, the group protocol for a consumer in
    a group, and "member" for a `GroupMember`.
    """

    def __init__(
        self,
        kind: str = "",
        resource: Callable[[], Labels | None] = tuple,
        membership: str = "",
    ) -> None:
        self.number = next(NUMBERS)
        """An id that no other object of this class has."""
        self.kind = kind
        self.membership = membership
        self._resource = resource
        self._attributes: dict[str, str] = {}
        self._quantities: dict[str, dict[Labels, Counter]] = {}
        self._spreads: dict[str, dict[Labels, Spread]] = {}
        self._computed: dict[str, Callable[[], Series]] = {}
        self._sums: dict[str, tuple[str, ...]] = {}
        self._sources: list[Callable[[bool | None], Sources]] = []
        self._of_partitions: Callable[[bool | None], Sources] = _nothing
        self._updates: list[Callable[[], None]] = []
        self._forgetting: list[Callable[[], None]] = []

    @property
    def resource(self) -> Labels:
        """The attributes, sorted by name.

        An attribute that has ended keeps its last value, so that the last push of a member that has
        left its group still names the group.
        """
        self.note_resource()
        return tuple(sorted(self._attributes.items()))

    def note_resource(self) -> None:
        """Store the present attributes, some of which are about to end."""
        self._attributes.update(self._resource() or ())

    def quantity(self, key: str, **labels: str) -> Counter:
        """Return the counter with this key and these labels. A hot path adds to its `value`."""
        return _get(self._quantities.setdefault(key, {}), labels, Counter)

    def spread(self, key: str, **labels: str) -> Spread:
        """Return the spread with this key and these labels."""
        return _get(self._spreads.setdefault(key, {}), labels, Spread)

    def timed(self, key: str, time: Callable[[], float]) -> Timed:
        """Return a context manager that adds the seconds spent in its body to a counter."""
        return Timed(self.quantity(key), time)

    def present(self, key: str, source: Callable[[], float | None]) -> None:
        """Compute a key's value when it is taken. If `source` returns None, the key is left out."""

        def compute() -> Series:
            value = source()
            return [] if value is None else [((), gauged(value))]

        self._computed[key] = compute

    def compute(self, key: str, source: Callable[[], Series]) -> None:
        """Compute the series of a key when they are taken."""
        self._computed[key] = source

    def add_up(self, key: str, *parts: str) -> None:
        """Compute the series of a key as the sums of those of other keys."""
        self._sums[key] = parts

    def offer(self, source: Callable[[bool | None], Sources]) -> None:
        """Compute the series of several keys when they are taken.

        `source(again)` takes readings as `Spread.take` does.
        """
        self._sources.append(source)

    def offer_partitions(self, source: Callable[[bool | None], Sources]) -> None:
        """Compute the series of partitions when they are taken, unless there are too many."""
        self._of_partitions = source

    def before_reading(self, update: Callable[[], None]) -> None:
        """Call `update()` before values are taken, so that it counts the collected events."""
        self._updates.append(update)

    def at_forgetting(self, forget: Callable[[], None]) -> None:
        """Call `forget()` when series of topics may have been removed.

        The owner of stored series must then look them up again.
        """
        self._forgetting.append(forget)

    def update(self) -> None:
        """Count all events, so that values can be taken."""
        for update in self._updates:
            update()

    def present_value(self, key: str) -> float:
        """Return the value of a key that has no labels, or 0 if it is left out."""
        compute = self._computed.get(key)
        return sum(reading.total for _, reading in compute()) if compute is not None else 0

    def take(self, *, again: bool | None, partitions: bool = True) -> Sample:
        """Copy all values. Call `update` first. `again` has the same meaning as in `Spread.take`.

        The series of partitions are left out unless `partitions` is true.
        """
        counts = {
            key: [(labels, each.value) for labels, each in counters.items()]
            for key, counters in self._quantities.items()
        }
        series: dict[str, Series | Callable[[], Series]] = {
            key: [(labels, each.take(again=again)) for labels, each in spreads.items()]
            for key, spreads in self._spreads.items()
        }
        for key, compute in self._computed.items():
            series[key] = list(compute())
        for source in self._sources:
            series.update(source(again))
        if partitions:
            series.update(self._of_partitions(again))
        return Sample(
            self.number, self.kind, self.membership, self.resource, counts, series, self._sums
        )

    def keep_topics(self, exists: Callable[[str], bool]) -> set[str]:
        """Forget the series of all topics that do not exist, and return these topics."""
        self.update()
        gone: set[str] = set()
        every: list[dict[Labels, Any]] = [*self._quantities.values(), *self._spreads.values()]
        for series in every:
            gone |= _keep_topics(series, exists)
        for forget in self._forgetting:
            forget()
        return gone


def _nothing(again: bool | None) -> Sources:
    return {}


def _get(series: dict[Labels, T], given: dict[str, str], make: Callable[[], T]) -> T:
    labels = tuple(given.items())
    found = series.get(labels)
    if found is None:
        if "topic" in given and len(series) >= SERIES:
            labels = (("topic", OTHER),)
        found = series.setdefault(labels, make())
    return found


def _keep_topics(series: dict[Labels, Any], exists: Callable[[str], bool]) -> set[str]:
    gone = {
        labels[0][1]
        for labels in series
        if labels and labels[0][0] == "topic" and labels[0][1] != OTHER and not exists(labels[0][1])
    }
    for topic in gone:
        del series[("topic", topic),]
    return gone


class ApplicationMetrics:
    """The metrics that the application has registered with a client (KIP-1076)."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, Labels], ApplicationMetric] = {}
        self._watchers: dict[object, Callable[[ApplicationMetric], None]] = {}

    def register(self, name: Any, source: Any, labels: Mapping[str, str], unit: Any) -> None:
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

    def watch(self, watcher: Callable[[ApplicationMetric], None]) -> Callable[[], None]:
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

    def unregister(self, name: str) -> None:
        """Remove all metrics with this name."""
        given: Any = name
        if not isinstance(given, str):
            raise ArgumentTypeError(f"{given!r} is not the name of a metric. Pass a str.")
        for key in [key for key in self._metrics if key[0] == name]:
            del self._metrics[key]

    def drop(self, metric: ApplicationMetric) -> None:
        """Remove a metric that must not be read again."""
        if self._metrics.get((metric.name, metric.labels)) is metric:
            del self._metrics[metric.name, metric.labels]

    def __iter__(self) -> Iterator[ApplicationMetric]:
        return iter(list(self._metrics.values()))


class ClientMeasures:
    """The measures of a client: its connections, and everything that uses them."""

    def __init__(self, clock: Clock) -> None:
        self.began, self.began_ms = clock.monotonic(), clock.time_ms()
        """The time at which measuring began, on the monotonic clock and on the wall clock."""
        self.connections = Measures()
        self.application = ApplicationMetrics()
        self.are_collected = False
        """Whether a collector reads the measures.

        Only then are those of closed objects kept for the next push.
        """
        self._children: dict[Measures, None] = {}
        self._ended: dict[Measures, None] = {}
        self._ended_topics: set[str] = set()

    @property
    def children(self) -> list[Measures]:
        """The measures of all objects, including those that were closed after the last push."""
        return [*self._ended, *self._children]

    def add(self, child: Measures) -> Callable[[], None]:
        """Add the measures of an object. Return a function to call when the object is closed."""
        self._children[child] = None

        def end() -> None:
            if child in self._children:
                del self._children[child]
                if self.are_collected and len(self._ended) < ENDED:
                    self._ended[child] = None

        return end

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Forget the series of all topics that do not exist."""
        for child in self.children:
            self._ended_topics |= child.keep_topics(exists)
        if not self.are_collected or len(self._ended_topics) > ENDED_TOPICS:
            self._ended_topics.clear()

    def take_ended_topics(self) -> frozenset[str]:
        """Return the topics whose series were forgotten since the last call."""
        gone, self._ended_topics = frozenset(self._ended_topics), set()
        return gone

    @property
    def ended(self) -> list[Measures]:
        """The measures of objects that were closed after the last push."""
        return list(self._ended)

    def drop_ended(self, pushed: Iterable[Measures]) -> None:
        """Forget these objects, because their last values were pushed."""
        for child in pushed:
            self._ended.pop(child, None)
