"""The payloads of pushes: encoded, within the size that the brokers accept, and compressed.

If all series together are too large, the series by partition are omitted. If that does not
suffice, the series by topic are omitted as well. If the other series are still too large, they are
split over several pushes. The limit applies to the uncompressed size, because a broker of Kafka 4.4
refuses metrics that are larger when decompressed, and that refusal ends the pushes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from aiokclient.config.codecs import Compression
from aiokclient.record.compression import compress
from aiokclient.telemetry.accumulation import AcceptedValues, Measurement
from aiokclient.telemetry.otlp import EncodedSeries, encode
from aiokclient.telemetry.points import Point

__all__ = ["COMPRESSED_BYTES", "Payload", "Payloads", "make_payloads"]

COMPRESSED_BYTES: Final = 1_000
"""The size above which payloads are compressed."""


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


def make_payloads(
    points: Sequence[Point],
    measure: Callable[[Sequence[Point]], Sequence[Measurement]],
    time_ms: int,
    *,
    delta: bool,
    max_bytes: int,
    codec: Compression,
) -> Payloads:
    """Encode and compress metrics that were taken at one moment. May take long.

    `measure` returns the values to push for the points.
    """
    series, skipped = encode(measure(points), time_ms, delta=delta)
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
