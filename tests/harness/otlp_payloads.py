"""OTLP payloads and the records of their topic, made for the tests of the pipeline on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
SECOND_US = 1_000_000


def payload(
    start_us: int,
    time_us: int,
    sums: Mapping[str, float] | None = None,
    gauges: Mapping[str, float] | None = None,
    *,
    temporality: Any = DELTA,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Return a client's payload with sums, whose interval begins at `start_us`, and gauges."""
    whole = MetricsData()
    entry = whole.resource_metrics.add()
    label(entry.resource.attributes, attributes or {})
    metrics = entry.scope_metrics.add().metrics
    for name, value in (sums or {}).items():
        metric = metrics.add(name=name)
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = True
        metric.sum.data_points.add(
            as_double=value,
            start_time_unix_nano=start_us * 1_000,
            time_unix_nano=time_us * 1_000,
        )
    for name, value in (gauges or {}).items():
        point = metrics.add(name=name).gauge.data_points.add(time_unix_nano=time_us * 1_000)
        point.as_double = value
    data: bytes = whole.SerializeToString()
    return data


def histogram(start_us: int, time_us: int, name: str, bounds: Any, counts: Any) -> bytes:
    """Return a payload with one histogram, labeled with a topic."""
    whole = MetricsData()
    metric = whole.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    metric.histogram.aggregation_temporality = DELTA
    point = metric.histogram.data_points.add(
        start_time_unix_nano=start_us * 1_000, time_unix_nano=time_us * 1_000
    )
    point.explicit_bounds.extend(bounds)
    point.bucket_counts.extend(counts)
    point.count, point.sum = sum(counts), 2.5
    label(point.attributes, {"topic": "orders"})
    data: bytes = whole.SerializeToString()
    return data


def label(attributes: Any, labels: Mapping[str, str]) -> None:
    for key, text in labels.items():
        attributes.add(key=key).value.string_value = text


def headers(instance: str, client: str, *, terminating: bool = False, **more: str) -> list[Any]:
    """Return the headers that the receivers write."""
    texts = {
        "client_id": client,
        "client_instance_id": instance,
        "client_address": "10.0.0.1",
        "software_name": "test",
        "software_version": "1.2",
        "terminating": str(terminating).lower(),
        **more,
    }
    return [(name, text.encode()) for name, text in texts.items()]
