"""Records as Arrow columns. The first call of any function here imports pyarrow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aiokclient._native import twin
from aiokclient.memory import BufferPool
from aiokclient.record.batch import DEFAULT_LIMIT, RecordBatch, RecordBatchBuilder
from aiokclient.record.stream import Piece

if TYPE_CHECKING:
    import pyarrow as pa

    from aiokclient.record._pure.batch import Row

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
"""The names of all columns, in the order of `arrow_schema`."""

LARGEST_COLUMN = (1 << 31) - 1
"""Largest size in bytes of the keys or values in one column, because its offsets have 32 bits."""

APPENDED = 1024
"""Number of values that are converted to objects at a time, if the builder is not native."""

REPEATED = 1 << 20
"""Largest size in bytes of a column of topics that is kept for the next table."""


@twin("record")
def Columns(
    largest: int, pool: BufferPool, rows: int, size: int, most: int | None, fields: Sequence[int]
) -> Any:
    """Return native memory for columns, or None in pure Python, which collects rows as objects."""
    return None


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of `to_arrow`: the fields of a ConsumerRecord without the leader epoch.

    `timestamp` is in milliseconds, UTC, and null for a record without one. `timestamp_type` is 0
    for the producer's time and 1 for the broker's. `columns` selects columns, in their order.
    Raises ImportError if pyarrow is not installed.
    """
    return _schema(tuple(columns))


def empty_arrow(columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Return a record batch without rows."""
    schema = arrow_schema(columns)
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
    """Return all records of `batches` from `start_offset` on as one Arrow record batch.

    Control batches are left out. Keys and values are copied. `limit` is in bytes and for each
    batch, as in `RecordBatch.records`. Memory comes from `pool`, if one is given. Raises
    CorruptRecordError as `records` does, and ValueError if the keys or the values have 2 GiB or
    more, which an Arrow column cannot hold.
    """
    kept = [batch for batch in batches if not batch.is_control]
    rows = sum(min(batch.count, batch.size) for batch in kept)
    size = sum(batch.size for batch in kept)
    native = all(isinstance(batch, RecordBatch) for batch in kept)
    builder = TableBuilder(
        topic, partition, native=native, rows=rows, size=size, check_crcs=check_crcs, pool=pool
    )
    for batch in kept:
        builder.add(batch, start_offset, limit)
    return builder.table()


class TableBuilder:
    """An Arrow record batch that is built from record batches or parts of them.

    `native` allows native code, which does not read formats v0 and v1. `rows` and `size` are the
    expected numbers of records and bytes. Beyond `most` bytes, a column grows only as its records
    require. `columns` has the names of the table's columns in their order; no other column is
    decoded. Records from `end_offset` on may be added, but the table does not contain them.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        native: bool = True,
        rows: int = 0,
        size: int = 0,
        most: int | None = None,
        check_crcs: bool = True,
        pool: BufferPool | None = None,
        columns: Sequence[str] = COLUMNS,
        end_offset: int | None = None,
    ) -> None:
        self._names = tuple(columns)
        self._end_offset = end_offset
        self._topic = topic
        self._partition = partition
        self._check_crcs = check_crcs
        self._rows: list[Row] = []
        self._kinds: list[int] = []
        self._columns: Any = None
        if native:
            fields = [COLUMNS.index(name) for name in self._names]
            self._columns = Columns(LARGEST_COLUMN, pool or BufferPool(0), rows, size, most, fields)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._rows) if self._columns is None else int(self._columns.count)

    def add(self, batch: RecordBatch, start_offset: int, limit: int) -> int:
        """Add the records of a batch from `start_offset` on. Return the total number of rows.

        Raises as `RecordBatch.rows` does.
        """
        if self._columns is not None:
            count: int = self._columns.add(batch, start_offset, self._check_crcs, limit)
            return count
        self._add_rows(batch, batch.rows(start_offset, check_crcs=self._check_crcs, limit=limit))
        return len(self._rows)

    def add_part(self, batch: RecordBatch, piece: Piece, start_offset: int) -> int:
        """Add a part of a batch. Return the smallest offset delta that the next part may have."""
        content, count, expected = piece.content, piece.count, piece.expected
        if self._columns is not None:
            after: int = self._columns.add_part(batch, content, count, expected, start_offset)
            return after
        rows = batch.part_rows(content, count, expected, start_offset)
        self._add_rows(batch, rows)
        return rows[-1][0] - batch.base_offset + 1 if rows else expected

    def _add_rows(self, batch: RecordBatch, rows: list[Row]) -> None:
        self._rows += rows
        self._kinds += [int(batch.timestamp_type)] * len(rows)

    def table(self) -> pa.RecordBatch:
        """Return the added rows. Raises ValueError if a column has 2 GiB or more."""
        count, kept = self.count, self._rows_kept()
        if not kept:
            return empty_arrow(self._names)
        if self._columns is None:
            rows, kinds = self._rows[:kept], self._kinds[:kept]
            return _table_py(self._topic, self._partition, rows, kinds, self._names)
        take = _pyarrow().RecordBatch._import_from_c
        topics = _repeated(self._topic, count)
        schema = _schema(self._names)
        made: pa.RecordBatch = self._columns.table(take, schema, self._partition, *topics)
        return made if kept == count else made.slice(0, kept)

    def _rows_kept(self) -> int:
        """Return the number of rows whose offsets are lower than the end offset."""
        end = self._end_offset
        if end is None:
            return self.count
        if self._columns is None:
            return bisect_left(self._rows, end, key=lambda row: row[0])
        return int(self._columns.before(end))


def _repeated(topic: str, count: int) -> tuple[pa.Array, int, int]:
    """Return a column of topics, at least `count` long, and the addresses of its buffers.

    Other tables may use the same column.
    """
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
    """Add values without keys from an array while they fit, and return their number.

    The native builder does not create an object for each value. Raises TypeError unless the array
    has bytes or strings.
    """
    types = _pyarrow().types
    kind = values.type
    wide = types.is_large_binary(kind) or types.is_large_string(kind)
    if not (wide or types.is_binary(kind) or types.is_string(kind)):
        raise TypeError(f"The array has the type {kind}. It must have bytes or strings.")
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
    topic: str, partition: int, rows: Sequence[Row], kinds: Sequence[int], names: Sequence[str]
) -> pa.RecordBatch:
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
    schema = arrow_schema(names)
    arrays = [_array(columns[name], schema.field(name).type) for name in names]
    return _pyarrow().RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Sequence[object], kind: pa.DataType) -> pa.Array:
    pyarrow = _pyarrow()
    array = pyarrow.array(column, kind)
    if isinstance(array, pyarrow.ChunkedArray):
        raise ValueError("The keys or values have 2 GiB or more. Pass fewer batches at a time.")
    return array


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Arrow batches need pyarrow, which is not installed. Run pip install "
            "'aiokclient[arrow]'."
        ) from error
    return pyarrow


@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    pyarrow = _pyarrow()
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    types = (
        pyarrow.string(),
        pyarrow.int32(),
        pyarrow.int64(),
        pyarrow.timestamp("ms", tz="UTC"),
        pyarrow.int32(),
        pyarrow.binary(),
        pyarrow.binary(),
        pyarrow.list_(header),
    )
    of = dict(zip(COLUMNS, types, strict=True))
    return pyarrow.schema([(name, of[name]) for name in columns])
