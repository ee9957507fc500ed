"""A program that tests submit to a standalone cluster: `spark_submitted.py TASK SETTINGS`.

SETTINGS is a JSON text with the options of the `source` and the `sink`, and the `folder` of the
files by which the test and a task synchronize. The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

# ruff: noqa: T201 - the test reads the output

Settings = dict[str, Any]
BATCH_ID = "streaming.sql.batchId"


def executor() -> int:
    """Return the id of the executor's process: the parent of the daemon that forked this worker."""
    after_name = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[1])


def noted(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step in which each task of a stream writes its executor's process id to a file."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        path = folder / f"executor.{context.getLocalProperty(BATCH_ID)}.{context.partitionId()}"
        path.write_text(str(executor()))
        yield from batches

    return note


def stuck(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step in which a task's first attempt hangs until its executor is killed."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                (folder / "new").write_text(str(executor()))
                (folder / "new").rename(folder / "stuck")
                signal.pause()

    return wait


def imported(_: Iterator[Any]) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the path of the imported package, all folders that have it, and `aiokclient.native`."""
    import aiokclient

    folders = [path for path in sys.path if (Path(path or ".") / "aiokclient").exists()]
    yield aiokclient.__file__, folders, aiokclient.native


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    return spark.read.format("aiokclient").options(**settings["source"]).load()


def values(rows: DataFrame) -> list[str]:
    return [row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect()]


def copy(spark: SparkSession, settings: Settings) -> Any:
    """Write the rows of a topic to another one. Return them, and where tasks find aiokclient."""
    rows = read(spark, settings)
    rows.write.format("aiokclient").options(**settings["sink"]).mode("append").save()
    tasks = spark.sparkContext.parallelize(range(4), 4).mapPartitions(imported)
    return {"values": values(rows), "imported": tasks.collect()}


def read_stuck(spark: SparkSession, settings: Settings) -> Any:
    """Read a topic, with one task that hangs until its executor is killed."""
    rows = read(spark, settings).select("value")
    return values(rows.mapInArrow(stuck(Path(settings["folder"])), rows.schema))


def stream(spark: SparkSession, settings: Settings) -> Any:
    """Copy a topic by a stream, and return how many batches it had."""
    rows = spark.readStream.format("aiokclient").options(**settings["source"]).load()
    rows = rows.select("key", "value")
    query = (
        rows.mapInArrow(noted(Path(settings["folder"])), rows.schema)
        .writeStream.format("aiokclient")
        .options(**settings["sink"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query.lastProgress["batchId"]


TASKS: dict[str, Callable[[SparkSession, Settings], Any]] = {
    "copy": copy,
    "read-stuck": read_stuck,
    "stream": stream,
}


def main() -> None:
    spark = SparkSession.builder.appName("aiokclient").getOrCreate()
    result = TASKS[sys.argv[1]](spark, json.loads(sys.argv[2]))
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
