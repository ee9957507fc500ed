"""The collector: the points of one client at one moment, computed by the table.

    Measures of the connections ─┐
    Measures of each child ──────┼──▶ windows ──▶ rows of the table ──▶ points
    metrics of the application ──┘

Sums are cumulative since the object began. Rates, averages, and largest values concern the time
since the last push that a broker has accepted. `collect` therefore remembers what it has read, and
`restart` makes that the beginning of the next time span. What is measured between the two calls
belongs to the next time span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.log import ClientLog
from aiokclient.measures import ClientMeasures, Measures, Reading, counted, gauged
from aiokclient.metrics import Labels
from aiokclient.telemetry.application import ApplicationPoints
from aiokclient.telemetry.computing import NOTHING, Change, Span, compute
from aiokclient.telemetry.loop_lag import LoopLag
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.table import COUNT, ROWS, SHARED_ROWS, Row, Way

__all__ = ["SERIES_LIMIT", "ClientCollector"]

SERIES_LIMIT = 10_000
"""Number of series above which those of partitions are left out."""

KINDS = {
    Way.TOTAL: PointKind.SUM,
    Way.SUM: PointKind.SUM,
    Way.INT: PointKind.GAUGE_INT,
    Way.HISTOGRAM: PointKind.HISTOGRAM,
}
"""The kinds of points; all others are gauges."""

PARTITION_ROWS = {
    kind: [row for row in rows if "partition" in row.labels] for kind, rows in ROWS.items()
}


class ClientCollector:
    """The source of all points of one client; see `aiokclient.telemetry.points.Collector`."""

    def __init__(self, measures: ClientMeasures, clock: Clock, log: ClientLog) -> None:
        self._measures = measures
        self._clock = clock
        self._span = Span(clock.monotonic())
        self._lag = LoopLag()
        self._application = ApplicationPoints(measures.application, clock, log)
        self._log = log
        self._series = 0
        """Number of series that were read last."""
        self._further = 0
        """Number of those that are not of partitions."""
        self._left_out = 0
        self._is_left_out = False
        measures.are_collected = True
        self._offer(measures.connections)

    def _offer(self, connections: Measures) -> None:
        """Add the measures that belong to no object of the client."""
        started = self._clock.time_ms()
        connections.present("start", lambda: started)
        connections.compute("left.out", lambda: [((), counted(self._left_out))])
        connections.compute("loop.held", lambda: [((), counted(self._lag.held_s))])
        connections.compute("threads.calls", lambda: _pools(0))
        connections.compute("threads.waiting", lambda: _pools(1))

    def collect(self, wanted: Callable[[str], bool]) -> list[Point]:
        """Return the points whose names are wanted, all at one moment. Synchronous."""
        self._lag.begin()
        children = self._measures.children
        for one in (self._measures.connections, *children):
            one.update()
        self._span.begin_reading(self._clock.monotonic())
        with_partitions = self._has_room_for_partitions(children)
        points: list[Point] = []
        self._series = self._further = 0
        for child in children:
            rows = [row for row in ROWS[child.kind] if _applies(row, child)]
            if not with_partitions:
                rows = [row for row in rows if "partition" not in row.labels]
            points += self._points(child, rows, child.resource, wanted)
        for kind, resource in _sharers(children):
            connections, shared = self._measures.connections, SHARED_ROWS[kind]
            points += self._points(connections, shared, resource, wanted)
            if wanted(COUNT):
                points.append(Point(COUNT, PointKind.GAUGE, float(self._series), (), resource))
        for one in (self._measures.connections, *children):
            one.restart()
        return points + self._application.collect(wanted)

    def present(
        self, measures: Measures, rows: Iterable[Row]
    ) -> Iterator[tuple[Row, Labels, float | HistogramValue]]:
        """Yield the values of these rows, which must not concern a time span.

        `measures` are those of an object, or of the connections. For tools that read the values
        in addition to the pushes: nothing that was remembered for a push changes.
        """
        measures.update()
        for row in rows:
            if row.way is Way.HISTOGRAM:
                yield row, (), self._lag_value()
            elif _applies(row, measures):
                source = measures if measures.has(row.key) else self._measures.connections
                for labels, reading in source.read(row.key):
                    yield row, labels, compute(row, NOTHING._replace(now=reading), None, 1.0)

    def application(self) -> list[Point]:
        """Return the points of the metrics that the application has registered. Synchronous."""
        return self._application.collect(lambda name: True)

    def watch_loop(self) -> None:
        """Measure the lag of the event loop from now on, as `collect` does."""
        self._lag.begin()

    def restart(self) -> None:
        """Begin a new time span at the last call of `collect`, because its push was accepted."""
        self._span.restart()
        self._measures.drop_ended()

    def close(self) -> None:
        """Stop measuring the event loop. Synchronous, idempotent."""
        self._lag.end()
        self._measures.are_collected = False

    def _has_room_for_partitions(self, children: list[Measures]) -> bool:
        count = self._further + sum(
            reading.total * len(PARTITION_ROWS[child.kind])
            for child in children
            for _, reading in child.read("assigned")
        )
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

    def _points(
        self,
        measures: Measures,
        rows: list[Row] | tuple[Row, ...],
        resource: Labels,
        wanted: Callable[[str], bool],
    ) -> Iterator[Point]:
        for row in rows:
            if row.name == COUNT:
                continue
            is_wanted, kind = wanted(row.name), KINDS.get(row.way, PointKind.GAUGE)
            is_other, source = "partition" not in row.labels, measures.number
            for labels, value in self._values(measures, row):
                self._series += 1
                self._further += is_other
                if is_wanted:
                    yield Point(row.name, kind, value, labels, resource, source)

    def _values(
        self, measures: Measures, row: Row
    ) -> Iterator[tuple[Labels, float | HistogramValue]]:
        if row.way is Way.HISTOGRAM:
            yield (), self._lag_value()
            return
        divisors: dict[Labels, Change] = {}
        if row.divisor:
            divisors = dict(self._read(measures, row.divisor, row.labels))
        for labels, reading in self._read(measures, row.key, row.labels):
            divisor = divisors.get(labels)
            yield labels, compute(row, reading, divisor, self._span.seconds)

    def _lag_value(self) -> HistogramValue:
        bounds, counts = self._lag.histogram.buckets
        return HistogramValue(bounds, counts, self._lag.histogram.total)

    def _read(
        self, measures: Measures, key: str, names: tuple[str, ...]
    ) -> list[tuple[Labels, Change]]:
        """Return the readings of a key, with what has changed in this time span.

        What a producer or consumer does not measure itself, its connections may measure.
        """
        source = measures if measures.has(key) else self._measures.connections
        found = self._span.read(source, key)
        return found if found or names else [((), NOTHING)]


def _applies(row: Row, child: Measures) -> bool:
    return not child.membership or child.membership in row.groups


def _sharers(children: list[Measures]) -> Iterator[tuple[str, Labels]]:
    """Yield the kinds of objects that use the connections, with the attributes of an only one."""
    by_kind = sorted(children, key=lambda child: child.kind)
    for kind, members in groupby(by_kind, key=lambda child: child.kind):
        resources = [child.resource for child in members]
        yield kind, resources[0] if len(resources) == 1 else ()


def _pools(part: int) -> list[tuple[Labels, Reading]]:
    return [((("pool", name),), gauged(work[part])) for name, work in threads.work().items()]
