"""The content of the pushes of one client: metrics, differences, and parts that fit into a push.

Metrics are encoded as OTLP `MetricsData`, by the package opentelemetry-proto. It is imported when
the first push is due, in the thread that encodes it. Each series is encoded on its own, as a
`MetricsData` with one ResourceMetrics. By the rules of protobuf, the concatenation of such messages
is the message of all of them, which Kafka's own clients send.

Payloads are within the size that the brokers accept, and compressed. If all series together are too
large, the series by partition are omitted. If that does not suffice, the series by topic are
omitted as well. If the other series are still too large, they are split over several pushes. The
limit applies to the uncompressed size, because a broker of Kafka 4.4 refuses metrics that are
larger when decompressed, and that refusal ends the pushes.

Collectors give sums since the client began. Brokers want either the difference from the last push
that was accepted (delta), or the sum since the accumulation began (cumulative). When a subscription
changes from one to the other, the accumulation begins again with the last accepted push, so that
nothing is counted twice, and nothing is missing.

A value that is lower than before belongs to a new metric of the same name and labels, which counts
from zero.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.clock import Clock
from aiokclient.config.codecs import Compression
from aiokclient.metrics import Labels, Metrics
from aiokclient.record.compression import compress
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.subscription import Subscription
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.telemetry.collector import ClientCollector, Collected
    from aiokclient.telemetry.reporter import ReportingClient

COMPRESSED_BYTES: Final = 1_000
"""The size above which payloads are compressed."""
INLINE_POINTS: Final = 40
"""Maximum number of points to encode in the event loop, which takes about a millisecond."""
LEAST_BYTES: Final = 1_000
"""The lowest limit to which the size of a push is reduced if brokers refuse it as too large."""
UNLIMITED: Final = 2**31 - 1
MODULE: Final = "opentelemetry.proto.metrics.v1.metrics_pb2"
TEXT_LIMIT: Final = 1_000
"""Maximum number of characters of a label's value that are pushed."""

MOST_SERIES: Final = 20_000
"""Maximum number of series whose last accepted values are kept. The oldest values are dropped."""

SeriesKey: TypeAlias = tuple[str, Labels, int]
"""The name, the labels, and the source of a series."""
Total: TypeAlias = float | HistogramValue


class _Base(NamedTuple):
    """The value from which a difference is taken, and its time in milliseconds."""

    total: Total | None
    time_ms: int


class Measurement(NamedTuple):
    """A point, with the value to push, and the time since which its sum is counted."""

    point: Point
    value: Total
    start_ms: int


class AcceptedValues:
    """Sums and histograms that were taken at a time, for `Accumulation.accept_values`."""

    __slots__ = ("bases",)

    def __init__(self, points: Iterable[Point], time_ms: int) -> None:
        self.bases: dict[SeriesKey, _Base] = {
            (point.name, point.labels, point.source): _Base(point.value, time_ms)
            for point in points
            if point.kind in (PointKind.SUM, PointKind.HISTOGRAM)
        }


class Accumulation:
    """The values from which the differences of one client are taken. It began at `began_ms`.

    `measure_points` may be called in a thread, while no other method is called.
    """

    def __init__(self, began_ms: int) -> None:
        self._begin = _Base(None, began_ms)
        self._accepted: dict[SeriesKey, _Base] = {}
        self._origins: dict[SeriesKey, _Base] = {}
        """The bases of cumulative values: their differences are taken from here."""
        self._delta: bool | None = None

    def follow_temporality(self, delta: bool) -> None:
        """Measure from the last accepted push if `delta`, otherwise from the beginning.

        If `delta` has just become false, the beginning is the last push that was accepted before.
        """
        if self._delta is not None and self._delta is not delta:
            self._origins = dict(self._accepted)
        self._delta = delta

    def measure_points(self, points: Iterable[Point]) -> list[Measurement]:
        """Return the values to push for these points."""
        bases = self._accepted if self._delta else self._origins
        return [self._measure_point(point, bases) for point in points]

    def _measure_point(self, point: Point, bases: dict[SeriesKey, _Base]) -> Measurement:
        if point.kind in (PointKind.GAUGE, PointKind.GAUGE_INT):
            return Measurement(point, point.value, self._begin.time_ms)
        base = bases.get((point.name, point.labels, point.source), self._begin)
        return Measurement(point, _increase(point.value, base.total), base.time_ms)

    def accept_values(self, values: AcceptedValues) -> None:
        """Record that the brokers have these values."""
        new = values.bases
        for key in new:
            self._accepted.pop(key, None)  # The dict stays ordered by the time of the values.
        self._accepted.update(new)
        for bases in (self._accepted, self._origins):
            while len(bases) > MOST_SERIES:
                del bases[next(iter(bases))]

    def forget_topics(self, topics: frozenset[str]) -> None:
        """Forget the series of ended topics. If such a topic returns, its series begin at zero."""
        for bases in (self._accepted, self._origins):
            for key in [key for key in bases if topics.intersection(_topics(key[1]))]:
                del bases[key]


def _topics(labels: Labels) -> list[str]:
    return [value for name, value in labels if name == "topic"]


def _increase(new: Total, old: Total | None) -> Total:
    """Return the increase of a value since `old`.

    It is the value itself if the value has decreased or has other buckets.
    """
    if isinstance(new, HistogramValue):
        if isinstance(old, HistogramValue) and new.bounds == old.bounds:
            counts = tuple(a - b for a, b in zip(new.counts, old.counts, strict=True))
            if min(counts) >= 0:
                return HistogramValue(new.bounds, counts, new.total - old.total)
        return new
    return new if old is None or isinstance(old, HistogramValue) or new < old else new - old


class EncodedSeries(NamedTuple):
    """A series as bytes, and the point from which it was made."""

    data: bytes
    point: Point


class Payload(NamedTuple):
    """The content of one push."""

    data: bytes
    codec: Compression
    series: int
    values: AcceptedValues
    """The values that the brokers have if they accept the push."""
    size: int
    """The size of the uncompressed data."""


class Payloads(NamedTuple):
    """The payloads of metrics that were taken at one moment, and how their size was limited.

    There is at least one payload. If there are no metrics, it is empty.
    """

    payloads: list[Payload]
    without_partitions: bool = False
    without_topics: bool = False
    skipped: int = 0
    """The number of series that could not be encoded, or that are too large on their own."""


class Pushes:
    """The payloads of pushes.

    The source of the metrics is created with the first subscription. From then on, objects that are
    closed keep their metrics until the next push. The first push contains the changes since
    `since_ms`.
    """

    def __init__(
        self, clock: Clock, metrics: Metrics, client: ReportingClient, *, since_ms: int
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._client = client
        self._collector: ClientCollector | None = None
        self._accumulation = Accumulation(since_ms)
        self._payloads: deque[Payload] = deque()
        self._taken_ms = 0
        """The time at which the metrics of all payloads were taken."""
        self._refused_codecs: set[Compression] = set()
        self._limit = UNLIMITED
        """A limit for the size of a push, in addition to that of the brokers."""

    @property
    def next_payload(self) -> Payload | None:
        """The next payload of metrics that were taken and did not fit into the last push."""
        return self._payloads[0] if self._payloads else None

    @property
    def is_last(self) -> bool:
        """Whether the next payload is the last one of the metrics that were taken."""
        return len(self._payloads) <= 1

    def keep_only_next(self) -> None:
        """Forget all payloads except for the next one."""
        while len(self._payloads) > 1:
            self._payloads.pop()

    def follow_subscription(self, subscription: Subscription) -> None:
        """Begin a new subscription."""
        if self._collector is None:
            self._collector = self._client.make_collector()
        self._limit = UNLIMITED
        self._payloads.clear()
        self._accumulation.follow_temporality(subscription.delta)

    def take_metrics(self, subscription: Subscription) -> Collected:
        """Take all metrics now. Call `follow_subscription` first."""
        assert self._collector is not None
        self._payloads.clear()
        self._taken_ms = self._clock.time_ms()
        collected = self._collector.take_metrics(subscription.names)
        if collected.ended_topics:
            self._accumulation.forget_topics(collected.ended_topics)
        return collected

    @staticmethod
    def takes_long(collected: Collected) -> bool:
        """Return whether these metrics must be encoded in a thread."""
        return collected.most > INLINE_POINTS or MODULE not in sys.modules

    def encode_metrics(self, collected: Collected, subscription: Subscription) -> Payloads:
        """Compute, encode, and compress metrics. This may be called in any thread."""
        return make_payloads(
            self._accumulation.measure_points(collected.compute_points()),
            self._taken_ms,
            delta=subscription.delta,
            max_bytes=min(subscription.max_bytes, self._limit),
            codec=self._choose_codec(subscription),
        )

    def add_payloads(self, made: Payloads) -> Payload:
        """Add encoded payloads, and return the first one."""
        self._payloads.extend(made.payloads)
        for counter, count in (
            ("telemetry.partitions.omitted", made.without_partitions),
            ("telemetry.topics.omitted", made.without_topics),
            ("telemetry.pushes.split", len(made.payloads) > 1),
            ("telemetry.series.skipped", made.skipped),
        ):
            if count:
                self._metrics.counter(counter).add(int(count))
        return self._payloads[0]

    def on_accepted(self) -> None:
        """Record that a broker has accepted the next payload."""
        payload = self._payloads.popleft()
        self._accumulation.accept_values(payload.values)
        if not self._payloads and self._collector is not None:
            self._collector.begin_span()

    def discard_payloads(self) -> None:
        """Forget the payloads. The payloads that are taken next contain their values."""
        self._payloads.clear()

    def shrink_limit(self) -> None:
        """Forget the payloads. Limit later ones to half the size of the one that was refused.

        The limit is never below `LEAST_BYTES`.
        """
        refused = 0 if self.next_payload is None else self.next_payload.size
        self._limit = max(min(self._limit, refused) // 2, LEAST_BYTES)
        self._payloads.clear()

    def switch_codec(self, subscription: Subscription) -> None:
        """Use the next compression, because brokers refuse the present one."""
        self._refused_codecs.add(self._choose_codec(subscription))

    def _choose_codec(self, subscription: Subscription) -> Compression:
        """Return the first accepted compression that no broker has refused, or Compression.NONE."""
        usable = (each for each in subscription.codecs if each not in self._refused_codecs)
        return next(usable, Compression.NONE)


def make_payloads(
    measurements: Sequence[Measurement],
    time_ms: int,
    *,
    delta: bool,
    max_bytes: int,
    codec: Compression,
) -> Payloads:
    """Encode and compress metrics that were taken at one moment. May take long."""
    series, skipped = encode(measurements, time_ms, delta=delta)
    omitted = []
    for label in ("partition", "topic"):
        count = len(series)
        if _size(series) > max_bytes:
            series = [each for each in series if not _has(each.point, label)]
        omitted.append(len(series) < count)
    fitting = [each for each in series if len(each.data) <= max_bytes]
    skipped += len(series) - len(fitting)
    payloads = [_payload(part, time_ms, codec) for part in _split(fitting, max_bytes)]
    return Payloads(payloads, omitted[0], omitted[1], skipped)


def _size(series: Sequence[EncodedSeries]) -> int:
    return sum(len(each.data) for each in series)


def _has(point: Point, label: str) -> bool:
    return any(key == label for key, _ in point.labels)


def _split(series: Sequence[EncodedSeries], max_bytes: int) -> Iterator[list[EncodedSeries]]:
    part: list[EncodedSeries] = []
    size = 0
    for each in series:
        if part and size + len(each.data) > max_bytes:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.data)
    yield part


def _payload(series: Sequence[EncodedSeries], time_ms: int, codec: Compression) -> Payload:
    data = b"".join(each.data for each in series)
    sent, used = data, Compression.NONE
    if codec is not Compression.NONE and len(data) > COMPRESSED_BYTES:
        compressed = bytes(compress(codec, data))
        if len(compressed) < len(data):
            sent, used = compressed, codec
    values = AcceptedValues((each.point for each in series), time_ms)
    return Payload(sent, used, len(series), values, len(data))


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
