"""The encoding of metrics as OTLP `MetricsData`, by the package opentelemetry-proto.

The package is imported when the first push is due, in the thread that encodes it. Each series is
encoded on its own, as a `MetricsData` with one ResourceMetrics. By the rules of protobuf, the
concatenation of such messages is the message of all of them, which Kafka's own clients send.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from aiokclient.metrics import Labels
from aiokclient.telemetry.accumulation import Measurement
from aiokclient.telemetry.points import HistogramValue, Point, PointKind

__all__ = ["EncodedSeries", "encode", "is_loaded"]

MODULE: Final = "opentelemetry.proto.metrics.v1.metrics_pb2"
TEXT_LIMIT: Final = 1_000
"""Maximum number of characters of a label's value that are pushed."""


class EncodedSeries(NamedTuple):
    """A series as bytes, and the point from which it was made."""

    data: bytes
    point: Point


def is_loaded() -> bool:
    """Return whether all modules that encoding needs are imported."""
    return MODULE in sys.modules


@cache
def _messages() -> tuple[Any, Any]:
    from opentelemetry.proto.common.v1 import common_pb2
    from opentelemetry.proto.metrics.v1 import metrics_pb2

    return metrics_pb2, common_pb2


def encode(
    measurements: Iterable[Measurement], time_ms: int, *, delta: bool
) -> tuple[list[EncodedSeries], int]:
    """Return the encoded series, and the number of those that could not be encoded.

    An application may register metrics with values or names that protobuf cannot express.
    """
    encoded: list[EncodedSeries] = []
    failed = 0
    for measurement in measurements:
        try:
            data = _series(measurement, time_ms, delta)
        except Exception:
            failed += 1
            continue
        encoded.append(EncodedSeries(data, measurement.point))
    return encoded, failed


def _series(measurement: Measurement, time_ms: int, delta: bool) -> bytes:
    otlp = _messages()[0]
    point, value, start_ms = measurement
    whole = otlp.MetricsData()
    entry = whole.resource_metrics.add()
    _label(entry.resource.attributes, point.resource)
    metric = entry.scope_metrics.add().metrics.add()
    metric.name, metric.unit = point.name, point.unit
    temporality = (
        otlp.AGGREGATION_TEMPORALITY_DELTA if delta else otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    if isinstance(value, HistogramValue):
        metric.histogram.aggregation_temporality = temporality
        made = metric.histogram.data_points.add()
        made.explicit_bounds.extend(value.bounds)
        made.bucket_counts.extend(value.counts)
        made.count = sum(value.counts)
        made.sum = value.total
    elif point.kind is PointKind.SUM:
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = True
        made = metric.sum.data_points.add()
        made.as_double = value
    else:
        made = metric.gauge.data_points.add()
        if point.kind is PointKind.GAUGE_INT:
            made.as_int = int(value)
        else:
            made.as_double = value
    if point.kind in (PointKind.SUM, PointKind.HISTOGRAM):
        made.start_time_unix_nano = start_ms * 1_000_000
    made.time_unix_nano = time_ms * 1_000_000
    _label(made.attributes, point.labels)
    data: bytes = whole.SerializeToString()
    return data


def _label(attributes: Any, labels: Labels) -> None:
    for key, text in labels:
        attribute = attributes.add()
        attribute.key = key
        attribute.value.string_value = text[:TEXT_LIMIT]
