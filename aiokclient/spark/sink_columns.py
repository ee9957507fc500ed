"""The columns that the sink writes, and a check that a DataFrame has them with the right types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_columns", "selected"]

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
    if problems:
        error = ConfigError("\n".join(problems))
        error.problems = tuple(problems)
        raise error


def selected(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return a batch with only the columns that are written, without copying them.

    Raises ConfigError for a row without a topic.
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
    return rows
