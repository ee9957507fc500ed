"""The decoding of the column `value` of Arrow tables by a deserializer, in a thread.

A deserializer for tables has `arrow_column(values)`, which returns the array of values that it has
deserialized. The array of no values says which type the column has.

Rows are decoded in their order. A table ends before a row that cannot be deserialized, or must be
prepared first. That row is the first one of the next table then. Its error is raised, or its
partition is withheld until it is prepared; see `preparation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.consumer.delivery.preparation import Preparations
from aiokclient.decoding.deserialize import Deserializers, RawRecord
from aiokclient.decoding.preparation import TOGETHER, Preparation
from aiokclient.errors import ConfigError, RecordError
from aiokclient.record.arrow import arrow_schema
from aiokclient.threads import run
from aiokclient.types import ConsumerRecord, TimestampType
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from aiokclient.consumer.state.partition import PartitionState

VALUE: Final = "value"


class DecodedTable(NamedTuple):
    """A table whose values are decoded, and what ended it."""

    table: Any
    """The table, or None if no row is left."""
    end: int | None = None
    """The offset of the first row that does not belong to the table; None if all do."""
    error: RecordError | None = None
    """The error of the row at `end`, if there is no row before it."""
    unprepared: Sequence[RawRecord] = ()
    """The rows from `end` on if that one must be prepared first, and there is no row before it."""


class ValueColumns:
    """The decoder of the values of one iteration over tables, which `deserializers` calls.

    Raises ConfigError if the deserializer cannot make columns, and ImportError without pyarrow.
    """

    def __init__(
        self, deserializer: Any, deserializers: Deserializers, preparations: Preparations
    ) -> None:
        self._deserializers = deserializers
        self._anchor = Anchor(self._deserializers)
        self._make_column = getattr(deserializer, "arrow_column", None)
        if not callable(self._make_column):
            raise ConfigError(
                f"value_schema={deserializer!r} has no arrow_column(). Pass an AvroDeserializer or "
                "a ProtobufDeserializer with a schema of its own."
            )
        arrow_schema()  # Raises ImportError without pyarrow, before the deserializer needs it.
        self.type: pa.DataType = self._make_column([]).type
        self._preparations = preparations

    async def decode_values(self, table: Any) -> DecodedTable:
        """Return the table with decoded values. A cancellation changes nothing."""
        rows = _Rows(self._deserializers, table)
        unprepared = await run(rows.decode)
        while unprepared:
            ended = self._preparations.take_ended(unprepared[0], self._anchor)
            if ended is None:
                break
            unprepared = await run(rows.decode, ended)
        return await run(rows.build, self._make_column, self.type, unprepared)

    def withhold_partition(self, state: PartitionState, rows: Sequence[RawRecord]) -> None:
        """Prepare rows in the background, and withhold their partition until that has ended."""
        preparation = self._preparations.begin_preparation(state, rows, self._anchor)
        self._preparations.withhold_partition(preparation)


class _Rows:
    """The rows of one table, and how far they are decoded. Its methods run in a thread."""

    def __init__(self, deserializers: Deserializers, table: Any) -> None:
        self._deserializers = deserializers
        self._table = table
        self._records: list[RawRecord] = []
        self._values: list[Any] = []
        self._kept: list[int] = []
        self._error: RecordError | None = None
        self._index = 0

    def decode(self, ended: Preparation | None = None) -> Sequence[RawRecord]:
        """Decode rows. Return those that must be prepared first, or none.

        `ended` is the preparation of the next row, whatever `is_prepared` says about it now.
        """
        if not self._records:
            self._records = _records_of(self._table)
        given = self._deserializers
        while self._index < len(self._records):
            raw = self._records[self._index]
            refused = None
            if ended is not None:
                refused, ended = ended.refusal, None
            elif given.can_wait:
                refused = given.find_unprepared(raw)
                if refused is not None and refused.error is None:
                    return self._records[self._index : self._index + TOGETHER]
            try:
                if refused is None:
                    record = given.deserialize_record(raw)
                else:
                    record = given.refuse_record(raw, refused)
            except RecordError as error:
                self._error = error
                return ()
            if record is not None:
                self._values.append(record.value)
                self._kept.append(self._index)
            self._index += 1
        return ()

    def build(
        self,
        make_column: Callable[[list[Any]], Any],
        kind: Any,
        unprepared: Sequence[RawRecord],
    ) -> DecodedTable:
        """Return the rows that are decoded as a table."""
        import pyarrow

        end = None
        if self._error is not None or unprepared:
            end = self._records[self._index].offset
        if not self._index:
            return DecodedTable(None, end, self._error, unprepared)
        if not self._values:
            return DecodedTable(None, end)
        table = self._table
        if len(self._kept) < self._index:
            table = table.take(pyarrow.array(self._kept, pyarrow.int64()))
        elif self._index < len(self._records):
            table = table.slice(0, self._index)
        column = make_column(self._values)
        if column.type != kind or len(column) != len(self._values):
            raise ConfigError(
                f"arrow_column() of value_schema returned an array of {len(column)} values of type "
                f"{column.type}, not of {len(self._values)} of type {kind}."
            )
        at = table.schema.get_field_index(VALUE)
        schema = table.schema.set(at, pyarrow.field(VALUE, kind))
        columns = [*table.columns[:at], column, *table.columns[at + 1 :]]
        return DecodedTable(pyarrow.RecordBatch.from_arrays(columns, schema=schema), end)


def _records_of(table: Any) -> list[RawRecord]:
    """Return the rows of a table as records, without their timestamps."""
    columns = [
        table.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", VALUE)
    ]
    headers = [
        tuple((each["key"], each["value"]) for each in pairs)
        for pairs in table.column("headers").to_pylist()
    ]
    kind = TimestampType.CREATE_TIME
    return [
        ConsumerRecord(topic, partition, offset, 0, kind, key, value, pairs)
        for topic, partition, offset, key, value, pairs in zip(*columns, headers, strict=True)
    ]
