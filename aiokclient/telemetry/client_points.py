"""The points of one client, computed from samples by the rows of the table (`table.py`).

The samples were taken at one moment. The points are computed in the thread that encodes them,
because this may take long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Final

from aiokclient.metrics import Labels, Sample
from aiokclient.telemetry.computing import NOTHING, Change, changes, compute
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.table import COUNT, ROWS, SHARED_ROWS, Row, Way

__all__ = ["ClientPoints", "rows_of_partitions"]

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


class ClientPoints:
    """The points of one client at one moment. Call the object once to compute them.

    `before` has the samples at the beginning of the time span, by the ids of their objects, and
    `seconds` is the length of the time span. `lag` is the lag of the event loop. `partitions` says
    whether the series of partitions are included.
    """

    def __init__(
        self,
        connections: Sample,
        children: Sequence[Sample],
        before: dict[int, Sample],
        seconds: float,
        lag: HistogramValue,
        wanted: Callable[[str], bool],
        *,
        partitions: bool,
    ) -> None:
        self._connections = connections
        self._children = children
        self._before = before
        self._seconds = seconds
        self._lag = lag
        self._wanted = wanted
        self._partitions = partitions
        self.further = 0
        """The number of series without the label `partition`, after the points were computed."""

    @property
    def most(self) -> int:
        """An upper estimate of the number of points."""
        found = 0
        for (kind, membership), count in Counter(map(_sort, self._children)).items():
            rows = rows_of(kind, membership, self._partitions)
            wanted = [row for row in rows if self._wanted(row.name)]
            found += count * sum(MANY if row.labels else 1 for row in wanted)
        for kind in {child.kind for child in self._children}:
            found += sum(self._wanted(row.name) for row in SHARED_ROWS[kind])
        return found

    def __call__(self) -> list[Point]:
        """Compute the points. This may be called in any thread."""
        points: list[Point] = []
        series = further = 0
        counts = self._wanted(COUNT)
        for sample, rows, resource in self._tasks():
            for row in rows:
                if row.name == COUNT:
                    continue
                before = len(points)
                if self._wanted(row.name):
                    points += self._points(sample, row, resource)
                    count = len(points) - before
                else:
                    count = sum(1 for _ in self._values(sample, row)) if counts else 0
                series += count
                further += 0 if "partition" in row.labels else count
        self.further = further
        if counts:
            for _, resource in _sharers(self._children):
                number = self._connections.number
                points.append(Point(COUNT, PointKind.GAUGE, float(series), (), resource, number))
        return points

    def _tasks(self) -> Iterator[tuple[Sample, Sequence[Row], Labels]]:
        """Yield all samples, with their rows and attributes."""
        for child in self._children:
            rows = rows_of(child.kind, child.membership, self._partitions)
            yield child, rows, child.resource
        for kind, resource in _sharers(self._children):
            yield self._connections, SHARED_ROWS[kind], resource

    def _points(self, sample: Sample, row: Row, resource: Labels) -> Iterator[Point]:
        kind = KINDS.get(row.way, PointKind.GAUGE)
        for labels, value in self._values(sample, row):
            yield Point(row.name, kind, value, labels, resource, sample.number)

    def _values(self, sample: Sample, row: Row) -> Iterator[tuple[Labels, float | HistogramValue]]:
        if row.way is Way.HISTOGRAM:
            yield (), self._lag
            return
        divisors: dict[Labels, Change] = {}
        if row.divisor:
            divisors = dict(self._read(sample, row.divisor, row.labels))
        for labels, change in self._read(sample, row.key, row.labels):
            yield labels, compute(row, change, divisors.get(labels), self._seconds)

    def _read(
        self, sample: Sample, key: str, names: tuple[str, ...]
    ) -> Sequence[tuple[Labels, Change]]:
        """Return the changes of a key in this time span.

        If the object does not measure the key, the changes are those of the connections.
        """
        source = sample if sample.has(key) else self._connections
        found = changes(source, self._before.get(source.number), key)
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
