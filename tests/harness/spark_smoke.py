"""Queries with the pyspark that is imported: a batch, a write, and an exactly-once stream.

    spark_smoke.py FOLDER SERVERS TOPIC WRITTEN COPIED

The first topic has records, and the others are empty. The output is the version of pyspark and the
number of rows that were compared with those of Spark's Kafka connector.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from spark_results import assert_same, result
from spark_session import create

__all__: list[str] = []

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
KEPT = ["partition", "key", "value", "headers", "timestamp"]
"""The columns that are equal in a record and its copy."""
LIMIT = 100


def read(spark: SparkSession, source: str, servers: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    levels = {"kafka.isolation.level": "read_committed"}
    return spark.read.format(source).options(**options, **levels).load()


def kept(rows: DataFrame) -> pa.Table:
    """Return the KEPT columns of the rows, sorted."""
    names = (name for name in KEPT if name != "headers")  # Arrow does not sort lists.
    return rows.select(KEPT).toArrow().sort_by([(name, "ascending") for name in names])


def copy(spark: SparkSession, folder: Path, servers: str, topic: str, target: str) -> int:
    """Copy a topic by an exactly-once stream, and return how many batches it had."""
    source = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    source |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT)}
    source |= {"kafka.isolation.level": "read_committed"}
    sink = {"kafka.bootstrap.servers": servers, "topic": target}
    sink |= {"deliveryGuarantee": "exactly-once", "checkpointLocation": str(folder / "checkpoint")}
    sink |= {"kafka.max.request.size": str(4 << 20)}
    query = (
        spark.readStream.format("aiokclient")
        .options(**source)
        .load()
        .writeStream.format("aiokclient")
        .options(**sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return int(query.lastProgress["batchId"]) + 1


def main() -> None:
    folder, servers, topic = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = create(folder)
    spark.conf.set(ADAPTIVE, "false")
    rows = read(spark, "kafka", servers, topic)
    expected = result(rows)
    assert_same(expected, result(read(spark, "aiokclient", servers, topic)))
    reader = spark.read.format("aiokclient").schema("value binary").option("subscribe", topic)
    assert reader.option("kafka.bootstrap.servers", servers).load().count() >= expected.num_rows

    written, copied = sys.argv[4:]
    sink = {"kafka.bootstrap.servers": servers, "topic": written}
    sink |= {"kafka.max.request.size": str(4 << 20)}
    rows.write.format("aiokclient").options(**sink).mode("append").save()
    assert copy(spark, folder, servers, topic, copied) > expected.num_rows // LIMIT
    for target in (written, copied):
        assert_same(kept(rows), kept(read(spark, "kafka", servers, target)))
    sys.stdout.write(f"{pyspark.__version__} {expected.num_rows}\n")
    spark.stop()


if __name__ == "__main__":
    main()
