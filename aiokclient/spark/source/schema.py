"""The columns of the source, which are those of Spark's Kafka connector.

A program may request some of them by a schema of its own. Only these are decoded then.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.errors import KafkaError
from aiokclient.spark.option_reader import refuse_problems

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The names of the columns and their types in Spark."""
HEADERS = "array<struct<key:string,value:binary>>"
"""The type of the column `headers`, which the option includeHeaders adds."""
LAST_TIME_MS = ((1 << 63) - 1) // 1_000
"""The latest timestamp that Spark can store, in milliseconds.

Spark stores microseconds in 64 bits."""
NULLABLE = ("key", "value", "headers")
"""The columns that may be null. Spark skips its checks for null in all other columns."""
RANGE_COLUMNS = {"timestampType": "timestamp_type"}
"""The columns that have another name in the batches of `Client.read_range`."""


def _columns(include_headers: bool) -> dict[str, str]:
    return {**COLUMNS, "headers": HEADERS} if include_headers else COLUMNS


def ddl(include_headers: bool) -> str:
    """Return the whole schema in Spark's notation."""
    return ", ".join(f"{name} {kind}" for name, kind in _columns(include_headers).items())


def check_schema(schema: StructType, include_headers: bool) -> None:
    """Raise ConfigError unless all columns of a schema exist and have their types."""
    known = _columns(include_headers)
    problems = dict[str, None]()
    seen = set[str]()
    for column in schema.fields:
        name, kind = column.name, column.dataType.simpleString()
        if name == "headers" and not include_headers:
            problems["The column headers exists only with includeHeaders=true."] = None
        elif name not in known:
            near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
            spelled = {each.lower(): each for each in known}
            hint = f"Did you mean {spelled[near[0]]}?" if near else f"It has {', '.join(known)}."
            problems[f"The source has no column {name!r}. {hint}"] = None
        elif kind != known[name]:
            text = f"The column {name} cannot have the type {kind}. It must be {known[name]}."
            problems[text] = None
        elif name in NULLABLE and not column.nullable:
            problems[f"The column {name} can be null. Do not set nullable=False for it."] = None
        elif name in seen:
            problems[f"The column {name} occurs more than once in the schema."] = None
        seen.add(name)
    if not seen:
        problems[f"The schema has no column. The source has {', '.join(known)}."] = None
    refuse_problems(problems)


def range_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of `Client.read_range` for these columns of the source."""
    return [RANGE_COLUMNS.get(name, name) for name in names]


class _Converter:
    """A function from the batches of `Client.read_range` to those that Spark expects.

    Keys, values, and headers are not copied.
    """

    def __init__(self, target: pa.Schema) -> None:
        import pyarrow
        import pyarrow.compute

        self._pa, self._compute = pyarrow, pyarrow.compute
        self._target = target
        self._names = range_columns(target.names)
        # Kafka's number for "no timestamp", which Spark's connector converts to a time, too.
        self._no_time = pyarrow.scalar(-1, pyarrow.timestamp("ms", tz="UTC"))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns and types of the target."""
        arrays = [
            self._convert_array(name, batch.column(name), field.type)
            for name, field in zip(self._names, self._target, strict=True)
        ]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._target)

    def _convert_array(self, name: str, array: Any, kind: Any) -> Any:
        if name == "timestamp":
            if array.null_count:
                array = array.fill_null(self._no_time)
            try:
                return array.cast(kind)
            except self._pa.ArrowInvalid:
                latest = self._compute.max(array.cast(self._pa.int64())).as_py()
            raise KafkaError(
                f"A record has the timestamp {latest} ms, and Spark has none after "
                f"{LAST_TIME_MS} ms (in the year 294247). Read the other columns with a schema, "
                "such as schema('key binary, value binary')."
            )
        if name == "headers":
            # Spark's connector has null for a record without headers.
            empty = self._compute.equal(self._compute.list_value_length(array), 0)
            return self._pa.ListArray.from_arrays(
                array.offsets, array.values.cast(kind.value_type), type=kind, mask=empty
            )
        return array if array.type == kind else array.cast(kind)


def converter(schema: StructType) -> _Converter:
    """Return a function that converts batches of `Client.read_range` to Spark's for this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return _Converter(to_arrow_schema(schema, timezone="UTC"))
