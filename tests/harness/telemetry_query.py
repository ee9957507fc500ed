"""The pipeline of client metrics over files of records, one file in each micro-batch.

When this module runs as a program, it writes TABLES tables. Then it kills itself and its Java
virtual machine:

    telemetry_query.py SOURCE OUT FOLDER TABLES
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from counting_fleet import Pushed

from aiokclient.spark import telemetry
from aiokclient.spark.telemetry import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
COLUMNS = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, "
    "timestamp timestamp, partition int, offset bigint"
)
WATERMARK = "1 second"


def write_source(records: Sequence[Pushed], folder: Path, files: int) -> None:
    """Write the records to `files` files, in order. Each record's index is its offset."""
    folder.mkdir()
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "timestamp": record.timestamp * 1_000,
            "partition": 0,
            "offset": offset,
        }
        for offset, record in enumerate(records)
    ]
    size = -(-len(rows) // files)
    for number in range(files):
        path = folder / f"{number}.parquet"
        pq.write_table(
            pa.Table.from_pylist(rows[number * size : (number + 1) * size], SCHEMA), path
        )
        # Spark reads the files in the order of their modification times.
        os.utime(path, (1_700_000_000 + number * 10,) * 2)


def run(spark: SparkSession, source: Path, out: Path) -> None:
    """Run the query until it has read all files."""
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = telemetry.write_tables(stream, str(out / "tables"), watermark=WATERMARK)
    started = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(
        availableNow=True
    )
    started.start().awaitTermination()


def after_tables(count: int, action: Callable[[], Any]) -> Callable[..., None]:
    """Return a replacement of `query._write` that calls `action` after its `count`-th write."""
    original = query._write
    written = 0

    def write(rows: DataFrame, *arguments: Any) -> None:
        nonlocal written
        original(rows, *arguments)
        written += 1
        if written == count:
            action()

    return write


def main() -> None:
    from spark_session import create

    source, out, folder, tables = sys.argv[1:]
    session = create(Path(folder))
    query._write = after_tables(int(tables), lambda: os.killpg(0, signal.SIGKILL))
    run(session, Path(source), Path(out))


if __name__ == "__main__":
    main()
