"""Records as Arrow columns. pyarrow is imported when the first function here is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from aiokclient import _native
from aiokclient._buffers import BufferPool
from aiokclient.record.batch import DEFAULT_LIMIT, RecordBatch, RecordBatchBuilder, Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["append_arrow", "arrow_schema", "empty_arrow", "to_arrow"]

LARGEST_COLUMN = (1 << 31) - 1
"""Bytes of all keys or values in one column: its offsets have 32 bits."""

APPENDED = 1024
"""Values that become objects at a time where they have to."""

REPEATED = 1 << 20
"""Bytes of a column of topics that is worth keeping for the next table."""


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
    pool: BufferPool | None = None,
) -> pa.RecordBatch:
    """All records of `batches` from `start_offset` on as one Arrow record batch.

    Control batches are left out. Keys and values are copied out of the batches. `limit` is for the
    records of one batch, in bytes, as in `RecordBatch.records`. Memory comes from `pool`, if there
    is one. Raises CorruptRecordError as `records` does, and ValueError if keys or values come to
    2 GiB, which one Arrow column does not hold.
    """
    kept = [batch for batch in batches if not batch.is_control]
    if _arrow_cy is not None and all(isinstance(batch, RecordBatch) for batch in kept):
        return _table_cy(topic, partition, kept, start_offset, check_crcs, limit, pool)
    return _table_py(topic, partition, kept, start_offset, check_crcs, limit)


def _repeated(topic: str, count: int) -> tuple[pa.Array, int, int]:
    """A column of topics, at least as long, and where its offsets and its characters are.

    It may serve for other tables, too."""
    length = max(1024, 1 << (count - 1).bit_length())
    if length * (len(topic) + 4) > REPEATED:
        return _topics(topic, count)
    return _kept(topic, length)


def _topics(topic: str, count: int) -> tuple[pa.Array, int, int]:
    pyarrow = _pyarrow()
    column = pyarrow.repeat(pyarrow.scalar(topic, pyarrow.string()), count)
    _, ends, text = column.buffers()
    return column, ends.address, text.address


_kept = lru_cache(maxsize=8)(_topics)


def append_arrow(
    builder: RecordBatchBuilder, timestamp: int, values: pa.Array, start: int = 0
) -> int:
    """Add values without keys from an array of bytes or strings while they fit; how many.

    As `RecordBatchBuilder.append_values`, and with the native one without an object for any value.
    Raises TypeError for an array of anything else.
    """
    types = _pyarrow().types
    kind = values.type
    wide = types.is_large_binary(kind) or types.is_large_string(kind)
    if not (wide or types.is_binary(kind) or types.is_string(kind)):
        raise TypeError(f"an array of {kind} is none of bytes or strings")
    append: Any = getattr(builder, "append_buffers", None)
    if append is not None:
        validity, offsets, data = values.buffers()
        width, stop = 8 if wide else 4, len(values)
        taken: int = append(timestamp, validity, offsets, data, width, values.offset, start, stop)
        return taken
    added = 0
    while start + added < len(values):
        piece = values.slice(start + added, APPENDED).cast("large_binary").to_pylist()
        count = builder.append_values(timestamp, piece, 0)
        added += count
        if count < len(piece):
            break
    return added


def _table_py(
    topic: str,
    partition: int,
    batches: Sequence[RecordBatch],
    start_offset: int,
    check_crcs: bool,
    limit: int,
) -> pa.RecordBatch:
    rows: list[Row] = []
    kinds: list[int] = []
    for batch in batches:
        read = batch.rows(start_offset, check_crcs=check_crcs, limit=limit)
        rows += read
        kinds += [int(batch.timestamp_type)] * len(read)
    if not rows:
        return empty_arrow()
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)
    columns: dict[str, Sequence[object]] = {
        "topic": [topic] * len(rows),
        "partition": [partition] * len(rows),
        "offset": offsets,
        "timestamp": [None if timestamp == -1 else timestamp for timestamp in timestamps],
        "timestamp_type": kinds,
        "key": keys,
        "value": values,
        "headers": headers,
    }
    schema = arrow_schema()
    arrays = [_array(column, schema.field(name).type) for name, column in columns.items()]
    return _pyarrow().RecordBatch.from_arrays(arrays, schema=schema)


def _table_cy(
    topic: str,
    partition: int,
    batches: Sequence[RecordBatch],
    start_offset: int,
    check_crcs: bool,
    limit: int,
    pool: BufferPool | None,
) -> pa.RecordBatch:
    """The same by native code, which fills the buffers of the columns."""
    rows = sum(min(batch.count, batch.size) for batch in batches)
    size = sum(batch.size for batch in batches)
    columns = _arrow_cy.Columns(LARGEST_COLUMN, pool or BufferPool(0), rows, size)
    for batch in batches:
        columns.add(batch, start_offset, check_crcs, limit)
    count = columns.count
    if not count:
        return empty_arrow()
    take = _pyarrow().RecordBatch._import_from_c
    return columns.table(take, _schema(), partition, *_repeated(topic, count))


_arrow_cy: Any = None
if not TYPE_CHECKING and _native.WANTED:
    try:
        from aiokclient.record import _arrow_cy
    except ImportError:
        pass


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
