"""The values of metrics at one moment, which collectors give to the reporter."""

from __future__ import annotations

from enum import Enum

from aiokclient.metrics import Labels
from aiokclient.types.named_tuple import NamedTuple


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
