"""The columns that the sink writes, and a check that a DataFrame has them with the right types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokclient.errors import ConfigError
from aiokclient.spark.option_reader import refuse_problems
from aiokclient.spark.source.options import TOPIC, TOPIC_NAME

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 60
"""The number of characters of a topic that an error shows."""
NO_TIME_US = -1_000
"""Kafka's number for "no timestamp", in microseconds. The source returns it, as the connector."""
HEADERS = "array<struct<key:string,value:binary>>"
TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns, and the types that they may have. Other columns are not written."""


def check_columns(schema: Any, topic: str | None) -> None:
    """Raise ConfigError for a column that is missing or has another type.

    `schema` is the StructType of the DataFrame, `topic` the option.
    """
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    names = [field.name for field in schema.fields]
    problems = [
        f"The column {name} occurs more than once in the DataFrame. Keep one of them."
        for name in TYPES
        if names.count(name) > 1
    ]
    if topic is None and "topic" not in found:
        problems.append("topic is missing. Set the option topic, or add a column topic (string).")
    if "value" not in found:
        problems.append(
            f"The column value is missing. The DataFrame has {', '.join(found) or 'no columns'}; "
            "value must be string or binary."
        )
    for name, allowed in TYPES.items():
        if name in found and found[name] not in allowed and not (name == "topic" and topic):
            problems.append(
                f"The column {name} has the type {found[name]}. It must be {' or '.join(allowed)}."
            )
    refuse_problems(problems)


def check_topic(topic: str) -> None:
    """Raise ConfigError for a value of the column `topic` that is not the name of a topic."""
    if not TOPIC.fullmatch(topic):
        shown = topic if len(topic) <= SHOWN else f"{topic[:SHOWN]}..."
        raise ConfigError(f"The column topic is {shown!r} in a row. It must be {TOPIC_NAME}")


def selected(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return a batch with only the columns that are written, without copying them.

    The timestamp of a record without one, as the source returns it, is null in the result. Raises
    ConfigError for a row without a topic.
    """
    names = [name for name in batch.schema.names if name in TYPES]
    if topic is not None and "topic" in names:
        names.remove("topic")
    rows = batch.select(names)
    if topic is None and rows.column("topic").null_count:
        raise ConfigError(
            "The column topic is null in a row. Give each row a topic, or set the option topic, "
            "which is used for all rows."
        )
    return _without_no_time(rows) if "timestamp" in names else rows


def _without_no_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow
    import pyarrow.compute

    column = rows.column("timestamp")
    is_none = pyarrow.compute.equal(column, pyarrow.scalar(NO_TIME_US, column.type))
    if not pyarrow.compute.any(is_none).as_py():
        return rows
    times = pyarrow.compute.if_else(is_none, None, column)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", times)
