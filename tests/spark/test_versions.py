"""The versions of Spark: the newest, the oldest that is supported, and one that is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from kafka_harness import KafkaCluster
from kafka_harness.files import CACHE, prepared
from old_spark_source import VERSION, OldSparkSource
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_topics import EVERYTHING, fill

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "tests" / "harness"
OLDEST = "4.2.1"
REFUSAL = f"Spark {VERSION} is too old for the format aiokclient."


def installed(version: str) -> Path:
    """Return a folder with this version of pyspark, which pip downloads at the first use."""

    def install(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        subprocess.run([*pip, f"pyspark=={version}"], check=True)

    return prepared(CACHE / f"pyspark-{version}" / "packages", install)


@pytest.mark.long
@pytest.mark.parametrize("version", [pyspark.__version__, OLDEST])
def test_queries_of_each_kind_give_the_connectors_rows_in_this_version(
    spark_kafka: KafkaCluster, tmp_path: Path, version: str
) -> None:
    path, environment = [str(ROOT), str(HARNESS)], dict(os.environ)
    if version != pyspark.__version__:
        packages = installed(version)
        path.insert(0, str(packages))
        environment["SPARK_HOME"] = str(packages / "pyspark")
    environment["PYTHONPATH"] = os.pathsep.join(path)
    configs = {"max.message.bytes": 4 << 20}
    topics = [spark_kafka.create_topic(None, 4, configs=configs) for _ in range(3)]
    fill(spark_kafka.bootstrap, topics[0], EVERYTHING)
    program = [sys.executable, str(HARNESS / "spark_smoke.py"), str(tmp_path)]
    done = subprocess.run(
        [*program, spark_kafka.bootstrap, *topics],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-2:] == [version, "260"]


def use(spark: SparkSession, way: str, checkpoint: Path) -> None:
    """Use the source for old versions of Spark to read or write, in a batch or a stream."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "topic": "orders"}
    if way == "read":
        spark.read.format(OldSparkSource.name()).options(**options).load()
    elif way == "readStream":
        spark.readStream.format(OldSparkSource.name()).options(**options).load()
    elif way == "write":
        rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format(OldSparkSource.name()).options(**options).mode("append").save()
    else:
        rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
        writer = rows.writeStream.format(OldSparkSource.name()).options(**options)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


@pytest.mark.parametrize("way", ["read", "readStream", "write", "writeStream"])
def test_spark_4_1_is_refused_with_the_same_line_in_each_way(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    spark.dataSource.register(OldSparkSource)
    with pytest.raises(PySparkException) as caught:
        use(spark, way, tmp_path)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("aiokclient.")]
    assert [line.partition(": ")[2].startswith(REFUSAL) for line in lines] == [True]
