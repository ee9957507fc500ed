"""The work of the pipeline on Arrow data: records to pushes, pushes to points, points to totals.

The functions run in Python workers of Spark, in `mapInArrow` and `applyInArrow`, but do not need
Spark. The schemas are those of `tables.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from aiokclient.spark.telemetry.deltas import (
    Amounts,
    SeriesTotal,
    SeriesValue,
    add_cumulative,
    add_deltas,
)
from aiokclient.spark.telemetry.otlp import (
    LARGEST_COUNT,
    Bucket,
    Labels,
    decode,
    expanded_bytes,
    points,
)
from aiokclient.spark.telemetry.pushes import read_push

ROWS: Final = 10_000
"""The number of rows at which a batch of points is complete."""
BYTES: Final = 64 << 20
"""The number of bytes at which a batch of points is complete, even with fewer than `ROWS` rows."""
DAY_US: Final = 86_400_000_000
TIME: Final = pa.timestamp("us", tz="UTC")
MAP: Final = pa.map_(pa.string(), pa.string())
BUCKETS: Final = pa.list_(pa.struct([("bound", pa.float64()), ("count", pa.int64())]))
CLIENT: Final = [
    ("instance_id", pa.string()),
    ("client_id", pa.string()),
    ("software", pa.string()),
    ("version", pa.string()),
    ("address", pa.string()),
]
PUSHES: Final = pa.schema(
    [
        # Times are integers, because pandas would convert timestamps to the session's time zone.
        ("received_us", pa.int64()),
        ("time_us", pa.int64()),
        ("event_us", pa.int64()),
        *CLIENT,
        ("terminating", pa.bool_()),
        ("interval_ms", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("bucket", pa.int32()),
        ("digest", pa.binary()),
        ("payload", pa.binary()),
        ("problem", pa.string()),
    ]
)
FROM_PUSH: Final = ("received_us", *(name for name, _ in CLIENT), "terminating", "interval_ms")
POINTS: Final = pa.schema(
    [
        ("time", TIME),
        ("start", TIME),
        ("received", TIME),
        *CLIENT,
        ("terminating", pa.bool_()),
        ("interval_ms", pa.int64()),
        ("attributes", MAP),
        ("metric", pa.string()),
        ("kind", pa.string()),
        ("temporality", pa.string()),
        ("monotonic", pa.bool_()),
        ("labels", MAP),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("buckets", BUCKETS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("date", pa.date32()),
    ]
)
TOTALS: Final = pa.schema(
    [
        *CLIENT,
        ("attributes", MAP),
        ("metric", pa.string()),
        ("kind", pa.string()),
        ("labels", MAP),
        ("start", TIME),
        ("time", TIME),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("buckets", BUCKETS),
        ("points", pa.int64()),
        ("gaps", pa.list_(pa.struct([("start", TIME), ("end", TIME)]))),
        ("restarts", pa.int64()),
        ("replaced", pa.int64()),
    ]
)

Rows: TypeAlias = list[tuple[Any, ...]]


# -- records to pushes --------------------------------------------------------------------------


def pushes_of_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for each record, with the columns `PUSHES`."""
    for batch in batches:
        headers = batch.column("headers").to_pylist()
        columns = (
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            [[(each["key"], each["value"]) for each in row or () if each] for row in headers],
            _microseconds(batch.column("timestamp")),
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
        )
        yield _batch([read_push(*row) for row in zip(*columns, strict=True)], PUSHES)


# -- pushes to points ---------------------------------------------------------------------------


def points_of_pushes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row for each point in pushes that are not broken, with the columns `POINTS`."""
    rows: Rows = []
    size = 0
    for batch in batches:
        names = (*FROM_PUSH, "partition", "offset", "event_us", "payload")
        columns = [batch.column(name).to_pylist() for name in names]
        for *client, partition, offset, event_us, payload in zip(*columns, strict=True):
            message = decode(payload)  # `read_push` has checked its points.
            rows.extend(_rows_of(client, (partition, offset), event_us, message))
            size += expanded_bytes(
                message, sum(len(each) for each in client if isinstance(each, str))
            )
            if len(rows) >= ROWS or size >= BYTES:
                yield _batch(rows, POINTS)
                rows, size = [], 0
    yield _batch(rows, POINTS)


def _rows_of(client: list[Any], position: tuple[int, int], event_us: int, message: Any) -> Rows:
    day = event_us // DAY_US
    return [
        (
            *(point.time or event_us, point.start, *client),
            *(point.attributes, point.metric, point.kind, point.temporality, point.monotonic),
            *(point.labels, point.value, point.count, [_bucket(each) for each in point.buckets]),
            *(*position, day),
        )
        for point in points(message)
    ]


# -- points to totals ---------------------------------------------------------------------------


class _Series(NamedTuple):
    """The columns that all points of a series have in common."""

    attributes: Labels
    metric: str
    kind: str
    labels: Labels
    temporality: str | None
    monotonic: bool
    bounds: tuple[float, ...]


def totals_of_points(table: pa.Table) -> pa.Table:
    """Return one row for each series of a client instance, with the columns `TOTALS`."""
    series: dict[_Series, list[SeriesValue]] = defaultdict(list)
    names = ("time", "start", *_Series._fields[:-1], "value", "count", "buckets")
    columns = [_plain(table.column(name)) for name in names]
    for time, start, attributes, metric, kind, labels, *more, value, count, buckets in zip(
        *columns, strict=True
    ):
        key = _Series(
            *(tuple(attributes or ()), metric, kind, tuple(labels or ()), more[0], more[1]),
            tuple(each["bound"] for each in buckets or ()),
        )
        amounts: Amounts = (value or 0.0,)
        if count is not None:
            amounts += (count, *(each["count"] for each in buckets or ()))
        series[key].append(SeriesValue(start or 0, time, amounts))
    continued = {
        value.start
        for key, values in series.items()
        if key.temporality == "delta"
        for value in values
    }
    received = _plain(table.column("received"))
    newest = max(range(table.num_rows), key=lambda row: (received[row] or 0, row))
    client = [table.column(name)[newest].as_py() for name, _ in CLIENT]
    rows = [
        (*client, *_total_row(key, _total(key, values, continued)))
        for key, values in sorted(series.items(), key=_order)
        if key.temporality is not None
    ]
    return pa.Table.from_batches([_batch(rows, TOTALS)])


def _order(item: tuple[_Series, object]) -> tuple[Any, ...]:
    key = item[0]
    return (key.metric, key.attributes, key.labels, key.bounds, str(key.temporality))


def _total(key: _Series, values: list[SeriesValue], continued: set[int]) -> SeriesTotal:
    if key.temporality == "delta":
        return add_deltas(values, continued)
    return add_cumulative(values, monotonic=key.monotonic)


def _total_row(key: _Series, total: SeriesTotal) -> tuple[Any, ...]:
    value, *rest = total.amounts
    counts = [min(int(each), LARGEST_COUNT) for each in rest]
    buckets = [_bucket(Bucket(*each)) for each in zip(key.bounds, counts[1:], strict=False)]
    return (
        *(key.attributes, key.metric, key.kind, key.labels, total.start or None, total.time),
        *(value, counts[0] if counts else None, buckets, total.points),
        [{"start": start, "end": end} for start, end in total.gaps],
        *(total.restarts, total.replaced),
    )


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {"bound": bucket.bound, "count": bucket.count}


# -- columns ------------------------------------------------------------------------------------


def _batch(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return _microseconds(column)
    values: list[Any] = column.to_pylist()
    return values


def _microseconds(column: Any) -> list[int | None]:
    values: list[int | None] = (
        column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    )
    return values
