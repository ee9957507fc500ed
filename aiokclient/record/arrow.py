"""Records as Arrow columns. pyarrow is imported when the first function here is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from aiokclient.record.batch import DEFAULT_LIMIT, RecordBatch, Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_schema", "empty_arrow", "to_arrow"]


def arrow_schema() -> pa.Schema:
    """The columns of `to_arrow`: those of a ConsumerRecord but the leader epoch.

    `timestamp` is in milliseconds, UTC; null where a record has none. `timestamp_type` is 0 for the
    producer's time and 1 for the broker's. Raises ImportError, naming what to install, without
    pyarrow.
    """
    return _schema()


def empty_arrow() -> pa.RecordBatch:
    """A record batch of no rows."""
    schema = arrow_schema()
    arrays = [_array([], field.type) for field in schema]
    return _pyarrow().RecordBatch.from_arrays(arrays, schema=schema)


def to_arrow(
    topic: str,
    partition: int,
    batches: Iterable[RecordBatch],
    start_offset: int = 0,
    *,
    check_crcs: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> pa.RecordBatch:
    """All records of `batches` from `start_offset` on as one Arrow record batch.

    Control batches are left out. Keys and values are copied out of the batches. `limit` is for the
    records of one batch, in bytes, as in `RecordBatch.records`. Raises CorruptRecordError as that
    does, and ValueError if keys or values come to 2 GiB, which one Arrow column does not hold.
    """
    rows: list[Row] = []
    kinds: list[int] = []
    for batch in batches:
        if not batch.is_control:
            read = batch.rows(start_offset, check_crcs=check_crcs, limit=limit)
            rows += read
            kinds += [int(batch.timestamp_type)] * len(read)
    if not rows:
        return empty_arrow()
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)
    columns = {
        "offset": offsets,
        "timestamp": [None if timestamp == -1 else timestamp for timestamp in timestamps],
        "timestamp_type": kinds,
        "key": keys,
        "value": values,
        "headers": headers,
    }
    schema = arrow_schema()
    pyarrow = _pyarrow()
    arrays = [
        pyarrow.repeat(pyarrow.scalar(value, schema.field(name).type), len(rows))
        for name, value in (("topic", topic), ("partition", partition))
    ]
    arrays += [_array(column, schema.field(name).type) for name, column in columns.items()]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Sequence[object], kind: pa.DataType) -> pa.Array:
    pyarrow = _pyarrow()
    array = pyarrow.array(column, kind)
    if isinstance(array, pyarrow.ChunkedArray):
        raise ValueError("the keys or values come to 2 GiB or more: pass fewer batches at a time")
    return array


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Arrow batches need pyarrow, which is not installed: pip install 'aiokclient[arrow]'"
        ) from error
    return pyarrow


@cache
def _schema() -> pa.Schema:
    pyarrow = _pyarrow()
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return pyarrow.schema(
        [
            ("topic", pyarrow.string()),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("ms", tz="UTC")),
            ("timestamp_type", pyarrow.int32()),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
        ]
    )
