"""A Spark session for tests and benchmarks, with aiokclient and Spark's Kafka connector."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_harness.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["create"]

ROOT = Path(__file__).resolve().parents[2]


def create(folder: Path, *, master: str = "local[2]", **configs: object) -> SparkSession:
    """Start a session whose files are in `folder`. `configs` have `__` in place of dots."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers find the data source and the harness on their path, and run the same Python.
    paths = [
        str(ROOT),
        str(ROOT / "tests" / "harness"),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings: dict[str, object] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.local.dir": folder / "local",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("__", "."): value for name, value in configs.items()},
    }
    builder = SparkSession.builder.master(master).appName("aiokclient")
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
