"""The points of OTLP payloads (`MetricsData`), decoded by the package opentelemetry-proto."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

__all__ = ["Bucket", "BrokenPayloadError", "Labels", "PayloadPoint", "parse", "points", "time_of"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, sorted by the names."""
KINDS: Final = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
TEMPORALITIES: Final = {1: "delta", 2: "cumulative"}


class BrokenPayloadError(ValueError):
    """A payload without metrics, or one that is not OTLP."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of observations up to a bound, and above the bound of the bucket before it."""

    bound: float
    count: int


@dataclass(frozen=True, slots=True)
class PayloadPoint:
    """One point of a payload. Times are microseconds since 1970, and None if they are not set."""

    time: int | None
    start: int | None
    attributes: Labels
    """The attributes of the resource, such as the id of the group."""
    metric: str
    kind: str
    temporality: str | None
    """ "delta", "cumulative", or None."""
    monotonic: bool
    """Whether the value of a sum, or the counts of a histogram, can only increase."""
    labels: Labels
    value: float | None
    """The number, or the sum of the observations of a histogram or summary."""
    count: int | None
    """The number of observations of histograms and summaries."""
    buckets: tuple[Bucket, ...]
    """The buckets of histograms. The last bound is infinite."""


@cache
def _metrics_data() -> Any:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    return MetricsData


@cache
def _decode_error() -> type[Exception]:
    from google.protobuf.message import DecodeError

    error: type[Exception] = DecodeError
    return error


def parse(payload: bytes) -> Any:
    """Return the message in a payload. Raises BrokenPayloadError."""
    try:
        message = _metrics_data().FromString(payload)
    except _decode_error() as error:
        raise BrokenPayloadError(f"The payload is not OTLP: {error}.") from error
    if not any(True for _ in _metrics(message)):
        # Bytes that are not OTLP may parse as a message whose fields are all unknown.
        raise BrokenPayloadError("The payload has no metrics.")
    return message


def time_of(message: Any) -> int | None:
    """Return the newest time of the points, or None if none has a time."""
    times = (
        point.time_unix_nano
        for _, metric in _metrics(message)
        for point in _data_points(metric, metric.WhichOneof("data"))
    )
    return _microseconds(max(times, default=0))


def points(message: Any) -> Iterator[PayloadPoint]:
    """Yield all points of a message in its order."""
    for attributes, metric in _metrics(message):
        kind = metric.WhichOneof("data")
        if kind not in KINDS:
            continue
        data = getattr(metric, kind)
        temporality = TEMPORALITIES.get(getattr(data, "aggregation_temporality", 0))
        monotonic = getattr(data, "is_monotonic", kind not in ("gauge", "sum"))
        for point in data.data_points:
            value, count, buckets = _amounts(point, kind)
            yield PayloadPoint(
                _microseconds(point.time_unix_nano),
                _microseconds(point.start_time_unix_nano),
                attributes,
                metric.name,
                kind,
                temporality,
                monotonic,
                _labels(point.attributes),
                value,
                count,
                buckets,
            )


def _metrics(message: Any) -> Iterator[tuple[Labels, Any]]:
    for resource in message.resource_metrics:
        attributes = _labels(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield attributes, metric


def _data_points(metric: Any, kind: str | None) -> Any:
    return getattr(metric, kind).data_points if kind else ()


def _microseconds(nanoseconds: int) -> int | None:
    return nanoseconds // 1_000 or None


def _amounts(point: Any, kind: str) -> tuple[float | None, int | None, tuple[Bucket, ...]]:
    if kind in ("gauge", "sum"):
        field = point.WhichOneof("value")
        return (None if field is None else float(getattr(point, field))), None, ()
    buckets: tuple[Bucket, ...] = ()
    if kind == "histogram":
        bounds = (*point.explicit_bounds, math.inf)
        # A histogram may have no buckets at all.
        buckets = tuple(map(Bucket, bounds, point.bucket_counts))
    return point.sum, point.count, buckets


def _labels(attributes: Iterable[Any]) -> Labels:
    return tuple(sorted((each.key, _text(each.value)) for each in attributes))


def _text(value: Any) -> str:
    field = value.WhichOneof("value")
    if field is None:
        return ""
    content = getattr(value, field)
    if field == "bool_value":
        return str(content).lower()
    return content.hex() if field == "bytes_value" else str(content).strip()
