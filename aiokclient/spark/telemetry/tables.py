"""The tables of the pipeline as Spark sees them: their schemas, and how they are made and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from aiokclient.errors import ConfigError
from aiokclient.spark.telemetry.arrow import (
    POINTS,
    PUSHES,
    TOTALS,
    points_of_pushes,
    pushes_of_records,
    totals_of_points,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = {
    "key": ("binary",),
    "value": ("binary",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "partition": ("int", "bigint"),
    "offset": ("bigint", "int"),
}
"""The columns of the records, and the types that they may have."""
REJECTED: Final = (
    "received timestamp, time timestamp, instance_id string, client_id string, software string, "
    "version string, address string, partition int, offset bigint, status string, reason string, "
    "payload binary, date date"
)


class Tables(NamedTuple):
    """The tables that `write_tables` writes."""

    points: DataFrame
    """The tidy table, with one row for each point of the accepted pushes."""
    rejected: DataFrame
    """The pushes that are broken, late, or copies. Each row has the status and the reason."""


def ddl(schema: pa.Schema) -> str:
    """Return a schema in the notation of Spark."""
    return ", ".join(f"`{field.name}` {_type(field.type)}" for field in schema)


def _type(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_map(arrow):
        return f"map<{_type(arrow.key_type)}, {_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return f"struct<{', '.join(f'`{each.name}`: {_type(each.type)}' for each in arrow)}>"
    names = {"bool": "boolean", "date32[day]": "date", "int64": "bigint", "int32": "int"}
    return names.get(str(arrow), str(arrow))


def read_pushes(records: DataFrame) -> DataFrame:
    """Return one row for each record of the topic: who pushed, and what is wrong with the push.

    `records` has the columns key, value, headers, timestamp, partition, and offset of the source
    "aiokclient" with the option includeHeaders. It may be a stream. Raises ConfigError if a column
    is missing or has another type.
    """
    found = {field.name: field.dataType.simpleString() for field in records.schema.fields}
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        hint = " Set the source's option includeHeaders to true." if "headers" in missing else ""
        raise ConfigError(
            f"The records of client metrics have no column {', '.join(missing)}.{hint}"
        )
    for name, kinds in COLUMNS.items():
        if found[name] not in kinds:
            raise ConfigError(
                f"The column {name} of the records has the type {found[name]}. It must be "
                f"{kinds[0]}, as the source returns it."
            )
    # Spark passes the name of the function to the workers, so they import it from this package.
    pushes = records.select(*COLUMNS).mapInArrow(pushes_of_records, ddl(PUSHES))
    # A broken push has only the time of its record. It must not make other pushes late.
    event_time = "timestamp_micros(IF(problem IS NULL, event_us, NULL)) AS event_time"
    return pushes.selectExpr(event_time, "*")


def read_points(records: DataFrame) -> DataFrame:
    """Return the tidy table of records that are not a stream: one row for each point.

    Broken pushes are left out, and of copies, only one is read. `records` is as in `read_pushes`.
    Raises ConfigError if it is a stream, or lacks a column.
    """
    if records.isStreaming:
        raise ConfigError("The records are a stream. Write them with write_tables.")
    correct = read_pushes(records).where("problem IS NULL AND event_us IS NOT NULL")
    return points_of(correct.dropDuplicates(["digest"]))


def points_of(pushes: DataFrame) -> DataFrame:
    """Return the tidy table of pushes that are not broken."""
    return pushes.mapInArrow(points_of_pushes, ddl(POINTS))


def totals(points: DataFrame) -> DataFrame:
    """Add up sums and histograms by client instance and series; see `deltas.py` for how.

    The result has the total `value`, for histograms also `count` and `buckets`, the start and end
    of the time that the total covers, and the number of points. `gaps` are the periods whose pushes
    were lost, `restarts` is the number of times that the series began again, and `replaced` is the
    number of points that were replaced by a longer one.
    """
    sums = points.select(*POINTS.names)
    sums = sums.where("temporality IS NOT NULL")
    return sums.groupBy("instance_id").applyInArrow(totals_of_points, ddl(TOTALS))


def read_tables(spark: SparkSession, path: str) -> Tables:
    """Return the tables that `write_tables` has written to a path."""
    points = spark.read.schema(f"{ddl(POINTS)}, batch string").parquet(f"{path}/points")
    rejected = spark.read.schema(f"{REJECTED}, batch string").parquet(f"{path}/rejected")
    return Tables(points, rejected)
