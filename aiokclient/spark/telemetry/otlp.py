"""The points of OTLP payloads (`MetricsData`), decoded by the package opentelemetry-proto."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names of labels with their values, sorted by the names."""
COUNTING: Final = ("histogram", "exponential_histogram", "summary")
"""The kinds of metrics whose points have a count."""
KINDS: Final = ("gauge", "sum", *COUNTING)
TEMPORALITIES: Final = {1: "delta", 2: "cumulative"}
LARGEST_TIME_US: Final = ((1 << 63) - 1) // 1_000
"""The last microsecond that pandas can represent, which is in the year 2262."""
LARGEST_COUNT: Final = (1 << 63) - 1
LARGEST_BYTES: Final = 64 << 20
"""The maximum size of all rows of a payload, each of which repeats the labels."""
SHOWN: Final = 80
"""The number of characters of a name that a reason shows."""


class BrokenPayloadError(ValueError):
    """The error for a payload that is not OTLP, or whose points cannot be rows of the table."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of a histogram.

    `count` is the number of observations above the bound of the previous bucket, up to `bound`.
    """

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
    """The value of a gauge or sum, or the sum of the observations of a histogram or summary."""
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


def parse(payload: bytes, client_size: int = 0) -> Any:
    """Return the message in a payload, whose points are all valid.

    `client_size` is the size of the client's columns, which all points repeat. Raises
    BrokenPayloadError.
    """
    message = decode(payload)
    _check(message, client_size)
    return message


def decode(payload: bytes) -> Any:
    """Return the message in a payload, without a check of its points.

    Raises BrokenPayloadError if the payload is not OTLP.
    """
    try:
        return _metrics_data().FromString(payload)
    except (_decode_error(), ValueError, RecursionError) as error:
        raise BrokenPayloadError(f"The payload is not OTLP: {error}.") from error


def _check(message: Any, client_size: int) -> None:
    """Raise BrokenPayloadError if a point cannot be a row, or if there is no point."""
    has_metrics = has_points = False
    for _, metric in _metrics(message):
        has_metrics = True
        kind = metric.WhichOneof("data")
        for point in _data_points(metric, kind):
            has_points = True
            problem = _problem(metric.name, kind, point)
            if problem is not None:
                raise BrokenPayloadError(problem)
    if not has_metrics:
        # Bytes that are not OTLP may parse as a message whose fields are all unknown.
        raise BrokenPayloadError("The payload has no metrics.")
    if not has_points:
        raise BrokenPayloadError("The payload has metrics, but no points.")
    size = expanded_bytes(message, client_size)
    if size > LARGEST_BYTES:
        raise BrokenPayloadError(
            f"The rows of the payload would have {size} bytes, more than {LARGEST_BYTES}, because "
            "each point repeats the client and its attributes."
        )


def _problem(name: str, kind: str, point: Any) -> str | None:
    """Return what is wrong with a point, or None."""
    if not name:
        return "A metric has no name."
    shown = repr(name if len(name) <= SHOWN else f"{name[:SHOWN]}...")
    latest = max(point.time_unix_nano, point.start_time_unix_nano)
    if latest // 1_000 > LARGEST_TIME_US:
        return f"A point of {shown} has the time {latest} ns, which is after the year 2262."
    if kind not in COUNTING:
        return None
    buckets = point.bucket_counts if kind == "histogram" else ()
    count = max(point.count, *buckets, 0)
    if count > LARGEST_COUNT:
        return f"A point of {shown} has the count {count}, which is larger than {LARGEST_COUNT}."
    if kind != "histogram":
        return None
    bounds = point.explicit_bounds
    if buckets and len(buckets) != len(bounds) + 1:
        return (
            f"A histogram of {shown} has {len(buckets)} buckets and {len(bounds)} bounds. It must "
            "have one bucket more than bounds."
        )
    if not all(low < high for low, high in pairwise((-math.inf, *bounds))):
        return f"The bounds of a histogram of {shown} do not increase."
    return None


def expanded_bytes(message: Any, client_size: int) -> int:
    """Return about how many bytes all points of a message have as rows."""
    total = 0
    for resource in message.resource_metrics:
        shared = client_size + resource.resource.ByteSize()
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = _data_points(metric, metric.WhichOneof("data"))
                total += metric.ByteSize() + len(points) * (shared + len(metric.name))
    return total


def time_of(message: Any) -> int | None:
    """Return the newest time of the points, or None if none has a time."""
    times = (
        point.time_unix_nano
        for _, metric in _metrics(message)
        for point in _data_points(metric, metric.WhichOneof("data"))
    )
    return _microseconds(max(times, default=0))


def points(message: Any) -> Iterator[PayloadPoint]:
    """Yield all points of a message, in the order in which it contains them."""
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
    return getattr(metric, kind).data_points if kind in KINDS else ()


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
    # A map of Spark has each key once. The last of several values counts, as in OpenTelemetry.
    return tuple(sorted({each.key: _text(each.value) for each in attributes}.items()))


def _text(value: Any) -> str:
    field = value.WhichOneof("value")
    if field is None:
        return ""
    content = getattr(value, field)
    if field == "bool_value":
        return str(content).lower()
    return content.hex() if field == "bytes_value" else str(content).strip()
