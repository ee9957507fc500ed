"""A program that copies a topic with Spark, in a process that a test kills.

Its argument is a JSON text: `master`, `folder`, `restarts`, and the options of the `source` and the
`sink`. A query that fails is started again with the same checkpoint. The program ends when
everything is copied. On standard output, it prints one line for each failure of the query.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_session import create

# ruff: noqa: T201 - the process that runs it reads the output

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"


def copy(spark: SparkSession, settings: dict[str, Any]) -> str | None:
    """Copy all existing records. Return the error text if the query fails, otherwise None."""
    source = spark.readStream.format("aiokclient").options(**settings["source"]).load()
    rows = source.select("key", "value")
    query = (
        rows.writeStream.format("aiokclient")
        .options(**settings["sink"])
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except PySparkException as error:
        return str(error)
    return None


def main() -> int:
    """Copy, with at most `restarts` restarts of the query."""
    settings = json.loads(sys.argv[1])
    spark = create(Path(settings["folder"]), master=settings["master"], **settings["configs"])
    spark.conf.set(ADAPTIVE, "false")
    print("started", flush=True)
    for _ in range(settings["restarts"] + 1):
        failure = copy(spark, settings)
        if failure is None:
            print("done", flush=True)
            return 0
        lines = [line for line in failure.splitlines() if line.startswith("aiokclient.")]
        print("failed", lines[-1] if lines else failure[-500:], flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
