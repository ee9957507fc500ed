"""The values of metrics at one moment, which collectors give to the reporter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from aiokclient.metrics import Labels

__all__ = ["Collected", "Collector", "HistogramValue", "Point", "PointKind"]


class PointKind(Enum):
    """The form in which a value is pushed."""

    SUM = "sum"
    """A monotonic sum, as double."""
    GAUGE = "gauge"
    """A gauge, as double."""
    GAUGE_INT = "gauge_int"
    """A gauge, as int."""
    HISTOGRAM = "histogram"


class HistogramValue(NamedTuple):
    """A cumulative histogram: `counts` has one element more than `bounds`."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Point(NamedTuple):
    """One series at one moment.

    Sums and histograms are cumulative since the client began. The reporter computes deltas.
    """

    name: str
    """The full name, such as "org.apache.kafka.producer.record.send.total"."""
    kind: PointKind
    value: float | HistogramValue
    labels: Labels = ()
    resource: Labels = ()
    """The attributes of the producer, consumer, or admin that the series belongs to."""
    source: int = 0
    """A number that identifies the producer, consumer, or admin.

    Its attributes cannot identify it: they may change, and other objects may have the same ones.
    """
    unit: str = ""
    """The unit that the application has given. The metrics of Kafka's clients have none."""


class Collected(NamedTuple):
    """The metrics of one client at one moment."""

    points: Callable[[], Sequence[Point]]
    """A function that returns the points. It may take long, and may be called in any thread."""
    most: int
    """An upper estimate of the number of points."""
    ended_topics: frozenset[str] = frozenset()
    """Topics that have ended since the last `take`. If one returns, its series begin at zero."""


class Collector(Protocol):
    """The source of all points of one client, for one reporter."""

    def take(self, wanted: Callable[[str], bool]) -> Collected:
        """Take the metrics whose names are wanted, all at one moment. Synchronous.

        Rates, averages, and maxima are those of the time since the last call of `restart`.
        """

    def restart(self) -> None:
        """Begin a new time span at the last `take`. Call it when all that it took was accepted."""
