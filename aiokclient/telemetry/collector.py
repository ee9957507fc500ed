"""The collector: the points of one client at one moment.

    metrics of the connections ──┐
    metrics of each owner ───────┼──▶ samples ──▶ rows of the table ──▶ points
    metrics of the application ──┘

`take` copies all numbers in the event loop, at one moment. The points are computed from these
samples in the thread that encodes them.

Sums are cumulative since the object began. Rates, averages, and largest values concern the time
since the last push that a broker has accepted. The collector therefore keeps the samples that it
has taken last, and `restart` makes them the beginning of the next time span. Observations between
the calls of `take` and `restart` belong to the next time span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Labels, Metrics, OwnMetrics, Reading, Sample, counted, gauged
from aiokclient.telemetry.application import ApplicationMetrics, ApplicationPoints
from aiokclient.telemetry.client_points import ClientPoints, rows_of_partitions
from aiokclient.telemetry.computing import NOTHING, compute
from aiokclient.telemetry.loop_lag import LoopLag
from aiokclient.telemetry.points import Collected, HistogramValue, Point
from aiokclient.telemetry.table import Row, Way

__all__ = ["SERIES_LIMIT", "ClientCollector"]

SERIES_LIMIT: Final = 10_000
"""Maximum number of series. The series of partitions are left out if there would be more."""
SHORTEST_S: Final = 1e-3
"""The shortest time span, in seconds, so that rates are finite."""


class ClientCollector:
    """The source of all points of one client; see `aiokclient.telemetry.points.Collector`."""

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
        self._offer(metrics.connections)

    def _offer(self, connections: OwnMetrics) -> None:
        """Add the metrics that belong to no producer, consumer, or admin."""
        connections.gauge("start", lambda: self._metrics.began_ms)
        connections.compute_series("left.out", lambda: [((), counted(self._left_out))])
        connections.compute_series("loop.held", lambda: [((), counted(self._lag.held_s))])
        connections.compute_series("threads.calls", lambda: _pools(0))
        connections.compute_series("threads.waiting", lambda: _pools(1))

    def take(self, wanted: Callable[[str], bool]) -> Collected:
        """Take the metrics whose names are wanted, all at one moment. Synchronous."""
        self._lag.begin()
        owners = self._metrics.owners
        every = [self._metrics.connections, *owners]
        for own in every:
            own.update()
        partitions = self._has_room_for_partitions(owners)
        taken = [own.take_sample(again=self._again, partitions=partitions) for own in every]
        self._again, self._taken_at = True, self._clock.monotonic()
        self._samples = {sample.number: sample for sample in taken}
        self._ended = self._metrics.ended_owners
        application = self._application.collect(wanted)
        self._points = points = ClientPoints(
            taken[0],
            taken[1:],
            self._before,
            max(self._taken_at - self._began, SHORTEST_S),
            self._lag.value,
            wanted,
            partitions=partitions,
        )
        gone = self._metrics.take_ended_topics()
        return Collected(lambda: points() + application, points.most + len(application), gone)

    def collect(self, wanted: Callable[[str], bool]) -> list[Point]:
        """Take the metrics whose names are wanted, and return their points at once."""
        return [*self.take(wanted).points()]

    def present(
        self, own: OwnMetrics, rows: Sequence[Row]
    ) -> Iterator[tuple[Row, Labels, float | HistogramValue]]:
        """Yield the values of these rows, none of which may depend on a time span.

        `own` are the metrics of an owner, or of the connections. The call does not change the next
        push, so tools that read the values may call it at any time.
        """
        own.update()
        partitions = any("partition" in row.labels for row in rows)
        sample, connections = own.take_sample(again=None, partitions=partitions), None
        for row in rows:
            if row.way is Way.HISTOGRAM:
                yield row, (), self._lag.value
            elif not sample.membership or sample.membership in row.groups:
                source = sample
                if not sample.has(row.key):
                    connections = connections or self._metrics.connections.take_sample(again=None)
                    source = connections
                for labels, reading in source.read(row.key).items():
                    yield row, labels, compute(row, NOTHING._replace(now=reading), None, 1.0)

    def application(self) -> list[Point]:
        """Return the points of the metrics that the application has registered. Synchronous."""
        return self._application.collect(lambda name: True)

    def watch_loop(self) -> None:
        """Measure the lag of the event loop from now on, as after a call of `take`."""
        self._lag.begin()

    def restart(self) -> None:
        """Begin a new time span at the last `take`. Call it when all that it took was accepted."""
        self._began, self._before, self._again = self._taken_at, self._samples, False
        self._metrics.drop_owners(self._ended)

    def close(self) -> None:
        """Stop measuring the event loop. Synchronous, idempotent."""
        self._lag.end()
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
