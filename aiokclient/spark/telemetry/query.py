"""The streaming query that writes the tables.

    records ─▶ pushes ─▶ decision, with the watermark ─▶ foreachBatch ─▶ points and rejected

Each micro-batch writes directories of its own (`date=.../batch=...`). If they exist, it replaces
them. A batch that Spark repeats after a crash has the same records, watermark, and state, so that
it writes the same rows to the same directories. The name of a batch contains the id of the query. A
query with a new checkpoint therefore never replaces what another query wrote.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from aiokclient.errors import ConfigError
from aiokclient.spark.telemetry.admission import ACCEPTED, Admission
from aiokclient.spark.telemetry.arrow import PUSHES
from aiokclient.spark.telemetry.tables import ddl, points_of, read_pushes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

DECIDED: Final = pa.schema(
    [
        *(field for field in PUSHES if field.name not in ("bucket", "problem")),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
STATE: Final = "seen binary"
NULLABLE: Final = ("received_us", "time_us", "event_us")
REJECTED: Final = (
    "timestamp_micros(received_us) AS received",
    "timestamp_micros(time_us) AS time",
    *("instance_id", "client_id", "software", "version", "address", "partition", "offset"),
    *("status", "reason", "IF(status = 'duplicate', NULL, payload) AS payload"),
    # UTC, whatever the time zone of the session is.
    "date_from_unix_date(CAST(floor(event_us / 86400000000) AS int)) AS date",
)


def write_tables(
    records: DataFrame, path: str, *, watermark: str = "10 minutes"
) -> DataStreamWriter:
    """Return a writer, not yet started, of the tables `points` and `rejected` under a path.

        writer = write_tables(records, "s3a://metrics/kafka-clients")
        writer.option("checkpointLocation", "s3a://metrics/checkpoint").start()

    `records` is a stream with the columns of `read_pushes`. A push that is older than the newest
    one by more than `watermark` is late. All executors must be able to reach the path. Raises
    ConfigError.
    """
    if not records.isStreaming:
        raise ConfigError("The records are not a stream. Read them with readStream.")
    pushes = read_pushes(records).withWatermark("event_time", watermark)
    decided = pushes.groupBy("bucket").applyInPandasWithState(
        decide,
        outputStructType=ddl(DECIDED),
        stateStructType=STATE,
        outputMode="append",
        timeoutConf="NoTimeout",
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        write_batch(batch, batch_id, path)

    return decided.writeStream.foreachBatch(write)


def decide(key: tuple[int], frames: Iterable[Any], state: Any) -> Iterator[Any]:
    """Decide about the pushes of one micro-batch and one bucket. Yield one frame with the results.

    `key` is the bucket of client instances, and `state` keeps its admission between micro-batches.
    """
    import pandas as pd

    # Spark concatenates the result with an empty frame, and pandas warns about that.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning)
    frame = pd.concat(list(frames), ignore_index=True)
    frame = frame.sort_values(["partition", "offset"], ignore_index=True)
    watermark_us = state.getCurrentWatermarkMs() * 1_000
    admission = Admission(bytes(state.get[0]) if state.exists else b"", watermark_us)
    for name in NULLABLE:
        frame[name] = frame[name].astype("Int64")  # Arrow refuses nulls as floats.
    decisions = [
        admission.decide_push(
            digest,
            None if event_us is pd.NA else int(event_us),
            problem if isinstance(problem, str) else None,
        )
        for digest, event_us, problem in zip(
            frame["digest"], frame["event_us"], frame["problem"], strict=True
        )
    ]
    state.update((admission.save_state(),))
    frame["status"] = [status for status, _ in decisions]
    frame["reason"] = [reason for _, reason in decisions]
    yield frame[DECIDED.names]


def write_batch(batch: DataFrame, batch_id: int, path: str) -> None:
    """Write the rows of one micro-batch to directories of its own."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    label = f"{query}-{batch_id:09d}"
    batch.persist()
    try:
        points = points_of(batch.where(f"status = '{ACCEPTED}'"))
        _write(points, f"{path}/points", label, ("instance_id", "metric", "offset"))
        rejected = batch.where(f"status <> '{ACCEPTED}'").selectExpr(*REJECTED)
        _write(rejected, f"{path}/rejected", label, ("partition", "offset"))
    finally:
        batch.unpersist()


def _write(rows: DataFrame, path: str, label: str, order: tuple[str, ...]) -> None:
    # Write one file for each date. In the file, rows that compress well together are adjacent.
    ordered = rows.repartition("date").sortWithinPartitions(*order)
    named = ordered.selectExpr("*", f"'{label}' AS batch")
    writer = named.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("date", "batch").parquet(path)
