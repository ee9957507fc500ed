"""What a producer, a consumer, an admin, or the connections of a client have measured.

`metrics` has the numbers that a program reads, which all objects with the same client share. The
measures here belong to one object, and are read only when they are pushed (KIP-714). They are
cumulative. Whoever reads them computes rates and averages from two readings. Only a largest and a
smallest value need a time span of their own, which `restart` begins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from aiokclient.errors.local import ArgumentTypeError
from aiokclient.metrics import OTHER, SERIES, Counter, Gauge, Histogram, Labels

__all__ = [
    "ApplicationMetric",
    "ApplicationMetrics",
    "EMPTY",
    "ClientMeasures",
    "Measures",
    "Quantity",
    "Reading",
    "Spread",
    "counted",
    "gauged",
    "merged",
    "observed",
]

UNCOUNTED = 64
"""Number of observations that a spread collects before it adds them up."""


_numbers = itertools.count(1)

ENDED = 100
"""Number of closed objects whose last measures are kept for the next push."""


class Reading(NamedTuple):
    """Observations since the object began; `largest` and `smallest` since the last `restart`.

    A number that is not made of observations is both the `number` and the `total`.
    """

    number: float = 0
    total: float = 0
    largest: float = -math.inf
    smallest: float = math.inf


EMPTY = Reading()

Series: TypeAlias = Iterable[tuple[Labels, Reading]]


def counted(value: float) -> Reading:
    """Return the reading of a number that only increases."""
    return Reading(value, value)


def gauged(value: float) -> Reading:
    """Return the reading of a number that can increase and decrease."""
    return Reading(value, value, value, value)


def observed(histogram: Histogram) -> Reading:
    """Return the reading of a histogram."""
    return Reading(histogram.count, histogram.total, histogram.recent_maximum)


def merged(readings: Iterable[Reading]) -> Reading:
    """Return the reading of several quantities together."""
    number = total = 0.0
    largest, smallest = -math.inf, math.inf
    for reading in readings:
        number += reading.number
        total += reading.total
        largest = max(largest, reading.largest)
        smallest = min(smallest, reading.smallest)
    return Reading(number, total, largest, smallest)


class Quantity:
    """A number that only increases. A hot path adds to `value` itself."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, n: float = 1) -> None:
        self.value += n

    def reading(self) -> Reading:
        return counted(self.value)

    def restart(self) -> None:
        """Do nothing: a number that only increases has no largest value."""


class Spread:
    """The number, the sum, the largest, and the smallest of observations.

    An observation is only appended to a list, which is added up when it is long or is read.
    """

    __slots__ = ("_count", "_largest", "_smallest", "_total", "_uncounted")

    def __init__(self) -> None:
        self._count = 0
        self._total: float = 0
        self._largest, self._smallest = -math.inf, math.inf
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

    def reading(self) -> Reading:
        self._add_up()
        return Reading(self._count, self._total, self._largest, self._smallest)

    def restart(self) -> None:
        """Begin a new time span for the largest and the smallest value."""
        self._add_up()
        self._largest, self._smallest = -math.inf, math.inf


class Timed:
    """A context manager that adds the seconds for which it was entered to a quantity."""

    __slots__ = ("_began", "_quantity", "_time")

    def __init__(self, quantity: Quantity, time: Callable[[], float]) -> None:
        self._quantity = quantity
        self._time = time
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._time()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._quantity.add(self._time() - self._began)


class ApplicationMetric(NamedTuple):
    """A metric of the application: a function that returns a number, or an instrument."""

    name: str
    labels: Labels
    unit: str
    source: Callable[[], float] | Counter | Gauge | Histogram


class Measures:
    """The measures of one object, by key and labels.

    `kind` is "producer", "consumer", or "admin", and "" for the connections of a client.
    `resource` returns the attributes by which an operator recognizes the object, such as its group.
    `membership` is "assigned" for a consumer without a group, the group protocol for one with a
    group, and "member" for another member of a group.
    """

    def __init__(
        self,
        kind: str = "",
        resource: Callable[[], Labels | None] = tuple,
        membership: str = "",
    ) -> None:
        self.number = next(_numbers)
        """A number that no other object of this class has."""
        self.kind = kind
        self.membership = membership
        self._resource = resource
        self._attributes: dict[str, str] = {}
        self._kept: dict[str, dict[Labels, Quantity | Spread]] = {}
        self._computed: dict[str, Callable[[], Series]] = {}
        self._updates: list[Callable[[], None]] = []
        self._restarts: list[Callable[[], None]] = []

    @property
    def resource(self) -> Labels:
        """The attributes, sorted by name.

        One that has ended keeps its last value, so that the last push of a member that has left
        its group still names it.
        """
        self.note_resource()
        return tuple(sorted(self._attributes.items()))

    def note_resource(self) -> None:
        """Note the present attributes, some of which are about to end."""
        self._attributes.update(self._resource() or ())

    def quantity(self, key: str, **labels: str) -> Quantity:
        """Return the quantity with this key and these labels."""
        return cast(Quantity, self._get(Quantity, key, labels))

    def spread(self, key: str, **labels: str) -> Spread:
        """Return the spread with this key and these labels."""
        return cast(Spread, self._get(Spread, key, labels))

    def _get(
        self, make: type[Quantity] | type[Spread], key: str, labels: dict[str, str]
    ) -> Quantity | Spread:
        series = self._kept.setdefault(key, {})
        name = tuple(labels.items())
        found = series.get(name)
        if found is None:
            if "topic" in labels and len(series) >= SERIES:
                name = (("topic", OTHER),)
            found = series.setdefault(name, make())
        return found

    def timed(self, key: str, time: Callable[[], float]) -> Timed:
        """Return a context in which the seconds on this clock are added to a quantity."""
        return Timed(self.quantity(key), time)

    def present(self, key: str, source: Callable[[], float | None]) -> None:
        """Compute a number when it is read. None leaves it out."""

        def compute() -> Series:
            value = source()
            return [] if value is None else [((), gauged(value))]

        self._computed[key] = compute

    def compute(self, key: str, source: Callable[[], Series]) -> None:
        """Compute the series of a key when they are read."""
        self._computed[key] = source

    def before_reading(self, update: Callable[[], None]) -> None:
        """Call `update()` before values are read, for events that are counted later."""
        self._updates.append(update)

    def at_restart(self, restart: Callable[[], None]) -> None:
        """Call `restart()` when a new time span begins for largest and smallest values."""
        self._restarts.append(restart)

    def update(self) -> None:
        """Count all events, so that values can be read."""
        for update in self._updates:
            update()

    def read(self, key: str) -> list[tuple[Labels, Reading]]:
        """Return the series of a key. Call `update` first."""
        found = [(labels, one.reading()) for labels, one in self._kept.get(key, {}).items()]
        if key in self._computed:
            found += self._computed[key]()
        return found

    def has(self, key: str) -> bool:
        """Return whether a key is measured here."""
        return key in self._kept or key in self._computed

    def restart(self) -> None:
        """Begin a new time span for largest and smallest values."""
        for series in self._kept.values():
            for one in series.values():
                one.restart()
        for restart in self._restarts:
            restart()

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Forget the series of all topics that do not exist."""
        self.update()
        for series in self._kept.values():
            for labels in [labels for labels in series if labels and labels[0][0] == "topic"]:
                if labels[0][1] != OTHER and not exists(labels[0][1]):
                    del series[labels]


class ApplicationMetrics:
    """The metrics that the application has registered with a client (KIP-1076)."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, Labels], ApplicationMetric] = {}

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
        key = tuple(sorted((str(label), str(value)) for label, value in labels.items()))
        self._metrics[name, key] = ApplicationMetric(name, key, unit, source)

    def unregister(self, name: str) -> None:
        """Remove all metrics with this name."""
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

    def __init__(self) -> None:
        self.connections = Measures()
        self.application = ApplicationMetrics()
        self.are_collected = False
        """Whether something reads the measures, so that those of closed objects are kept."""
        self._children: dict[Measures, None] = {}
        self._ended: dict[Measures, None] = {}

    @property
    def children(self) -> list[Measures]:
        """The measures of all objects, also of those that were closed and not pushed since."""
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
            child.keep_topics(exists)

    def drop_ended(self) -> None:
        """Forget the objects that were closed, because their last measures were pushed."""
        self._ended.clear()
