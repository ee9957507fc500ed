"""The collector: the points of one client at one moment.

    metrics of the connections ──┐
    metrics of each owner ───────┼──▶ samples ──▶ rows of the table ──▶ points
    metrics of the application ──┘

The rows of the table (`table.py`) say how each metric is computed. `take_metrics` copies all
numbers in the event loop, at one moment. The points are computed from these samples in the thread
that encodes them, because this may take long.

Sums are cumulative since the object began. Rates, averages, and largest values concern the time
since the last push that a broker has accepted. The collector therefore keeps the samples that it
has taken last, and `begin_span` makes them the beginning of the next time span. Observations
between the calls of `take_metrics` and `begin_span` belong to the next time span.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections import Counter as Count
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from types import MappingProxyType
from typing import Final

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import (
    EMPTY,
    SECONDS,
    Histogram,
    Labels,
    Metrics,
    OwnMetrics,
    Reading,
    Sample,
    counted,
    gauged,
)
from aiokclient.telemetry.application import ApplicationMetrics, ApplicationPoints
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.table import COUNT, ROWS, SHARED_ROWS, Row, Way
from aiokclient.types.named_tuple import NamedTuple

SERIES_LIMIT: Final = 10_000
"""Maximum number of series. The series of partitions are left out if there would be more."""
SHORTEST_S: Final = 1e-3
"""The shortest time span, in seconds, so that rates are finite."""


class Collected(NamedTuple):
    """The metrics of one client at one moment."""

    client: ClientPoints | None
    """The metrics of the client itself."""
    application: list[Point]
    """The metrics that the application has registered."""
    most: int
    """An upper estimate of the number of points."""
    ended_topics: frozenset[str] = frozenset()
    """Topics that have ended since the last call. If one returns, its series begin at zero."""

    def compute_points(self) -> list[Point]:
        """Return all points. May take long, and may be called in any thread."""
        return (
            self.application
            if self.client is None
            else self.client.compute_points() + self.application
        )


class ClientCollector:
    """The source of all points of one client, for one reporter.

    Rates, averages, and maxima are those of the time since the last call of `begin_span`.
    """

    def __init__(
        self, metrics: Metrics, application: ApplicationMetrics, clock: Clock, log: ClientLog
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._began = self._taken_at = metrics.began
        """The beginning of the present time span (`_began`), and of the next one (`_taken_at`)."""
        self._before: dict[int, Sample] = {}
        self._samples: dict[int, Sample] = {}
        """The samples at the beginning of the next time span, by the ids of their objects.

        `_before` has those at the beginning of the present one.
        """
        self._ended: list[OwnMetrics] = []
        """The objects that were already closed when the last samples were taken."""
        self._again = False
        """Whether samples were taken and no push of them was accepted yet."""
        self._lag = LoopLag()
        self._application = ApplicationPoints(application, clock, log)
        self._log = log
        self._points: ClientPoints | None = None
        """The points that were taken last."""
        self._left_out = 0
        self._is_left_out = False
        metrics.are_collected = True
        self._offer_series(metrics.connections)

    def _offer_series(self, connections: OwnMetrics) -> None:
        """Add the metrics that belong to no producer, consumer, or admin."""
        connections.gauge("start", lambda: self._metrics.began_ms)
        connections.compute_series("left.out", lambda: [((), counted(self._left_out))])
        connections.compute_series("loop.held", lambda: [((), counted(self._lag.held_s))])
        connections.compute_series("threads.calls", lambda: _pools(0))
        connections.compute_series("threads.waiting", lambda: _pools(1))

    def take_metrics(self, wanted: Container[str]) -> Collected:
        """Take the metrics whose names are wanted, all at one moment. Synchronous."""
        self._lag.begin_timer()
        owners = self._metrics.owners
        every = [self._metrics.connections, *owners]
        for own in every:
            own.update_values()
        partitions = self._has_room_for_partitions(owners)
        taken = [own.take_sample(again=self._again, partitions=partitions) for own in every]
        self._again, self._taken_at = True, self._clock.monotonic()
        self._samples = {sample.number: sample for sample in taken}
        self._ended = self._metrics.ended_owners
        application = self._application.collect_points(wanted)
        self._points = points = ClientPoints(
            taken[0],
            taken[1:],
            self._before,
            max(self._taken_at - self._began, SHORTEST_S),
            self._lag.value,
            wanted,
            partitions,
        )
        gone = self._metrics.take_ended_topics()
        return Collected(points, application, points.most_points + len(application), gone)

    def collect_points(self, wanted: Container[str]) -> list[Point]:
        """Take the metrics whose names are wanted, and return their points at once."""
        return self.take_metrics(wanted).compute_points()

    def read_rows(
        self, own: OwnMetrics, rows: Sequence[Row]
    ) -> Iterator[tuple[Row, Labels, float | HistogramValue]]:
        """Yield the values of these rows, none of which may depend on a time span.

        `own` are the metrics of an owner, or of the connections. The call does not change the next
        push, so tools that read the values may call it at any time.
        """
        own.update_values()
        partitions = any("partition" in row.labels for row in rows)
        sample, connections = own.take_sample(again=None, partitions=partitions), None
        for row in rows:
            if row.way is Way.HISTOGRAM:
                yield row, (), self._lag.value
            elif not sample.membership or sample.membership in row.groups:
                source = sample
                if not sample.has_key(row.key):
                    connections = connections or self._metrics.connections.take_sample(again=None)
                    source = connections
                for labels, reading in source.read_key(row.key).items():
                    yield row, labels, compute(row, NOTHING._replace(now=reading), None, 1.0)

    def read_application(self) -> list[Point]:
        """Return the points of the metrics that the application has registered. Synchronous."""
        return self._application.collect_points(None)

    def watch_loop(self) -> None:
        """Measure the lag of the event loop from now on, as after a call of `take_metrics`."""
        self._lag.begin_timer()

    def begin_span(self) -> None:
        """Begin a new time span at the moment of the last `take_metrics`.

        Call it when a broker has accepted all metrics that were taken then.
        """
        self._began, self._before, self._again = self._taken_at, self._samples, False
        self._metrics.drop_owners(self._ended)

    def close(self) -> None:
        """Stop measuring the event loop. Synchronous, idempotent."""
        self._lag.end_timer()
        self._metrics.are_collected = False

    def _has_room_for_partitions(self, owners: list[OwnMetrics]) -> bool:
        count = 0 if self._points is None else self._points.further
        for own in owners:
            count += int(own.gauge_value("assigned")) * rows_of_partitions(own.kind)
        if count <= SERIES_LIMIT:
            self._is_left_out = False
            return True
        self._left_out += 1
        if not self._is_left_out:
            self._is_left_out = True
            self._log.log(
                logging.INFO,
                "The metrics of partitions are not pushed, because there would be %d series. "
                "At most %d are pushed.",
                count,
                SERIES_LIMIT,
                extra={"event": "telemetry_partitions_left_out"},
            )
        return False


def _pools(part: int) -> list[tuple[Labels, Reading]]:
    return [((("pool", name),), gauged(work[part])) for name, work in threads.work().items()]


# -- the values of the rows

HOUR_S = 3600.0


class Change(NamedTuple):
    """All observations (`now`), and the number and the sum of those in the present time span."""

    now: Reading
    number: float
    total: float


def _quotient(dividend: float, divisor: float) -> float:
    """Return the quotient, or NaN if the divisor is 0, as Kafka's clients do."""
    return dividend / divisor if divisor else math.nan


def _bounded(value: float) -> float:
    """Return an extreme value, or NaN if it is infinite because there were no observations."""
    return value if math.isfinite(value) else math.nan


WAYS: Mapping[Way, Callable[[Change, Change, float], float]] = MappingProxyType(
    {
        Way.TOTAL: lambda change, other, seconds: change.now.number,
        Way.SUM: lambda change, other, seconds: change.now.total,
        Way.RATE: lambda change, other, seconds: change.number / seconds,
        Way.SUM_RATE: lambda change, other, seconds: change.total / seconds,
        Way.PER_HOUR: lambda change, other, seconds: change.number / seconds * HOUR_S,
        Way.AVERAGE: lambda change, other, seconds: _quotient(change.total, change.number),
        Way.MAXIMUM: lambda change, other, seconds: _bounded(change.now.largest),
        Way.MINIMUM: lambda change, other, seconds: _bounded(change.now.smallest),
        Way.GAUGE: lambda change, other, seconds: change.now.total,
        Way.INT: lambda change, other, seconds: change.now.total,
        Way.RATIO: lambda change, other, seconds: _quotient(change.total, other.total),
        Way.EACH: lambda change, other, seconds: _quotient(change.number, other.number),
    }
)

NOTHING = Change(EMPTY, 0, 0)


def compute(row: Row, change: Change, other: Change | None, seconds: float) -> float:
    """Return the value of a row. `other` is the change of the row's divisor."""
    value = WAYS[row.way](change, other or NOTHING, seconds)
    return int(value) if row.way is Way.INT else float(value) * row.scale


def changes(sample: Sample, before: Sample | None, key: str) -> list[tuple[Labels, Change]]:
    """Return the changes since an earlier sample of the same object, by labels."""
    earlier = {} if before is None else before.read_key(key)
    return [
        (labels, _change(reading, earlier.get(labels, EMPTY)))
        for labels, reading in sample.read_key(key).items()
    ]


def _change(now: Reading, before: Reading) -> Change:
    if before.number > now.number:
        before = EMPTY  # The count began again, because a forgotten topic has returned.
    return Change(now, now.number - before.number, now.total - before.total)


# -- the points

MANY: Final = 1_000
"""The assumed number of points of a row that has labels."""
KINDS = {
    Way.TOTAL: PointKind.SUM,
    Way.SUM: PointKind.SUM,
    Way.INT: PointKind.GAUGE_INT,
    Way.HISTOGRAM: PointKind.HISTOGRAM,
}
"""The kinds of points by the way of their row. Points of all other rows are gauges."""


@cache
def rows_of(kind: str, membership: str, partitions: bool) -> tuple[Row, ...]:
    """Return the rows of `table.py` for an object; see `aiokclient.metrics.OwnMetrics`."""
    rows = (row for row in ROWS[kind] if not membership or membership in row.groups)
    return tuple(row for row in rows if partitions or "partition" not in row.labels)


@cache
def rows_of_partitions(kind: str) -> int:
    """Return the number of series that each partition has."""
    return sum("partition" in row.labels for row in ROWS[kind])


@dataclasses.dataclass(slots=True, eq=False)
class ClientPoints:
    """The points of one client at one moment.

    `before` has the samples at the beginning of the time span, by the ids of their objects, and
    `seconds` is the length of the time span. `lag` is the lag of the event loop. `partitions` says
    whether the series of partitions are included.
    """

    connections: Sample
    children: Sequence[Sample]
    before: dict[int, Sample]
    seconds: float
    lag: HistogramValue
    wanted: Container[str]
    partitions: bool
    further: int = 0
    """The number of series without the label `partition`, after the points were computed."""

    @property
    def most_points(self) -> int:
        """An upper estimate of the number of points."""
        found = 0
        for (kind, membership), count in Count(map(_sort, self.children)).items():
            rows = rows_of(kind, membership, self.partitions)
            wanted = [row for row in rows if row.name in self.wanted]
            found += count * sum(MANY if row.labels else 1 for row in wanted)
        for kind in {child.kind for child in self.children}:
            found += sum(row.name in self.wanted for row in SHARED_ROWS[kind])
        return found

    def compute_points(self) -> list[Point]:
        """Compute the points. Call it once, in any thread."""
        points: list[Point] = []
        series = further = 0
        counts = COUNT in self.wanted
        for sample, rows, resource in self._sample_rows():
            for row in rows:
                if row.name == COUNT:
                    continue
                before = len(points)
                if row.name in self.wanted:
                    points += self._make_points(sample, row, resource)
                    count = len(points) - before
                else:
                    count = sum(1 for _ in self._compute_values(sample, row)) if counts else 0
                series += count
                further += 0 if "partition" in row.labels else count
        self.further = further
        if counts:
            for _, resource in _sharers(self.children):
                number = self.connections.number
                points.append(Point(COUNT, PointKind.GAUGE, float(series), (), resource, number))
        return points

    def _sample_rows(self) -> Iterator[tuple[Sample, Sequence[Row], Labels]]:
        """Yield all samples, with their rows and attributes."""
        for child in self.children:
            rows = rows_of(child.kind, child.membership, self.partitions)
            yield child, rows, child.resource
        for kind, resource in _sharers(self.children):
            yield self.connections, SHARED_ROWS[kind], resource

    def _make_points(self, sample: Sample, row: Row, resource: Labels) -> Iterator[Point]:
        kind = KINDS.get(row.way, PointKind.GAUGE)
        for labels, value in self._compute_values(sample, row):
            yield Point(row.name, kind, value, labels, resource, sample.number)

    def _compute_values(
        self, sample: Sample, row: Row
    ) -> Iterator[tuple[Labels, float | HistogramValue]]:
        if row.way is Way.HISTOGRAM:
            yield (), self.lag
            return
        divisors: dict[Labels, Change] = {}
        if row.divisor:
            divisors = dict(self._read_changes(sample, row.divisor, row.labels))
        for labels, change in self._read_changes(sample, row.key, row.labels):
            yield labels, compute(row, change, divisors.get(labels), self.seconds)

    def _read_changes(
        self, sample: Sample, key: str, names: tuple[str, ...]
    ) -> Sequence[tuple[Labels, Change]]:
        """Return the changes of a key in this time span.

        If the object does not measure the key, the changes are those of the connections.
        """
        source = sample if sample.has_key(key) else self.connections
        found = changes(source, self.before.get(source.number), key)
        return found if found or names else [((), NOTHING)]


def _sort(sample: Sample) -> tuple[str, str]:
    return sample.kind, sample.membership


def _sharers(children: Sequence[Sample]) -> Iterator[tuple[str, Labels]]:
    """Yield each kind of object that uses the connections, with the object's resource.

    The resource is empty if there are several objects of the kind.
    """
    for kind, members in groupby(sorted(children, key=_sort), key=lambda child: child.kind):
        resources = [child.resource for child in members]
        yield kind, resources[0] if len(resources) == 1 else ()


# -- the event loop

TICK_S = 0.25
HELD_S = 0.05
"""A lag of at least this many seconds counts as caused by the program, not by the library."""
UNREAD = 14_400
"""Number of ticks without a collection after which the timer ends."""


class LoopLag:
    """A timer that measures how late the event loop calls it.

    It starts at the first collection of metrics. It holds no reference to a client, so that it
    keeps no client alive.
    """

    def __init__(self) -> None:
        self._histogram = Histogram([bound * 1000 for bound in SECONDS])
        self.held_s = 0.0
        """A lower bound of the seconds for which the program's code has blocked the loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0

    @property
    def value(self) -> HistogramValue:
        """The lags, in milliseconds."""
        return HistogramValue(*self._histogram.buckets, self._histogram.total)

    def begin_timer(self) -> None:
        """Measure from now on."""
        self._unread = 0
        if self._timer is None:
            self._tick_later(asyncio.get_running_loop())

    def end_timer(self) -> None:
        """Stop measuring. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick_later(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + TICK_S
        self._timer = loop.call_at(due, self._on_tick, loop, due)

    def _on_tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        lag = max(loop.time() - due, 0.0)
        self._histogram.observe(lag * 1000)
        if lag >= HELD_S:
            self.held_s += lag
        self._unread += 1
        if self._unread < UNREAD:
            self._tick_later(loop)
        else:
            self._timer = None
