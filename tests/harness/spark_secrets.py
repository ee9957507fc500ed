"""A Spark application that logs in with a password.

    python spark_secrets.py FOLDER SERVERS

The password is in the environment variable `SPARK_SECRET`. The application runs queries that
succeed and queries that fail, and it explains plans. Everything is logged. The files of the
application are copied before Spark deletes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_session import create

__all__: list[str] = []

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(servers: str, password: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
        "kafka.default.api.timeout.ms": "2000",
        "subscribe": "orders",
    }


def copy(spark: SparkSession, folder: Path, servers: str, password: str) -> None:
    """Write rows to a topic, and copy them to another topic by a stream."""
    named = options(servers, password)
    del named["subscribe"]
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("aiokclient").options(**named, topic="copies").mode("append").save()
    stream = spark.readStream.format("aiokclient").options(**named, subscribe="copies")
    writer = stream.option("startingOffsets", "earliest").load().select("value").writeStream
    writer = writer.format("aiokclient").options(**named, topic="again")
    checkpoint = str(folder / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write(f"{query.lastProgress}\n")
    again = spark.read.format("aiokclient").options(**named, subscribe="again").load()
    sys.stdout.write(f"copied {again.count()}\n")


def use(spark: SparkSession, servers: str, password: str) -> None:
    frame = spark.read.format("aiokclient").options(**options(servers, password)).load()
    sys.stdout.write(f"rows {frame.count()}\n")
    frame.explain("extended")
    frame.explain("formatted")
    frame.createOrReplaceTempView("orders")
    spark.sql("DESCRIBE EXTENDED orders").show(100, truncate=False)
    sys.stdout.write(f"{frame} {frame.schema.json()} {frame._jdf.queryExecution().toString()}\n")
    wrong = [
        options("127.0.0.1:1", password),
        {**options(servers, password), "minPartition": "1"},
        {**options(servers, password), "kafka.sasl.jaas.confg": password},
        {**options(servers, password), "startingOffsets": '{"orders": {"5": 1}}'},
        options(servers, password[::-1]),
    ]
    for each in wrong:
        with contextlib.suppress(PySparkException):
            spark.read.format("aiokclient").options(**each).load().collect()
            raise AssertionError("A query with wrong options has succeeded.")


def main() -> None:
    folder, servers = Path(sys.argv[1]), sys.argv[2]
    password = os.environ.pop("SPARK_SECRET")
    (folder / "events").mkdir()
    spark = create(
        folder,
        spark__eventLog__enabled="true",
        spark__eventLog__dir=(folder / "events").as_uri(),
        spark__ui__enabled="false",
    )
    spark.sparkContext.setLogLevel("INFO")
    use(spark, servers, password)
    copy(spark, folder, servers, password)
    shutil.copytree(folder / "local", folder / "kept")
    spark.stop()


if __name__ == "__main__":
    main()
