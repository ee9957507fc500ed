"""Twenty clients, seen from Spark: their pushes become tables, a picture, and a summary.

The clients push their metrics (KIP-714) to an embedded cluster, which writes each push into a
topic. Spark streams the topic into two Parquet tables: one with a row for each measurement, and one
with the rejected pushes. The views of `aiokclient.spark.telemetry` then find the slow client, the
one whose records are refused, and the one that was killed.

    python examples/telemetry_pipeline.py     everything on this machine, in about a minute

Into build/telemetry it writes the tables, and dashboard.png. It needs Java 17 and
`pip install 'aiokclient[spark]' rich matplotlib`.

With --bootstrap-server, the example reads a topic of your cluster to its present end, and runs no
clients. docs/telemetry-spark.md has the line for spark-submit.
"""

import argparse
import asyncio
import logging
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet import CLIENTS, Troubles, all_clients, subscribe
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from aiokclient import Admin, NewTopic
from aiokclient.protocol import ApiKey
from aiokclient.spark import telemetry
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

TOPIC = "client-metrics"
PARTITIONS = 3
INTERVAL_MS = 1_000
SLOW = "ledger-2"
KILLED = "depot"
REFUSED = "shop-1"
HEALTHY_S = 4  # Seconds for which nothing is wrong with any client.
TROUBLED_S = 9  # Seconds after that, in which something is wrong with three clients.
FOLDER = Path("build/telemetry").absolute()

console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


# -- Spark -------------------------------------------------------------------------------------


def session() -> SparkSession:
    """Start Spark, or use the session that spark-submit has started."""
    # Otherwise, Spark would run the Python on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("client metrics").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start(spark: SparkSession, servers: str, topic: str, out: str, **trigger: Any) -> Any:
    """Start the query that writes the tables."""
    source = spark.readStream.format("aiokclient").option("kafka.bootstrap.servers", servers)
    source = source.options(subscribe=topic, startingOffsets="earliest", includeHeaders=True)
    # Otherwise, the source would push its own metrics into the topic that it reads.
    records = source.option("kafka.enable.metrics.push", False).load()
    writer = telemetry.write_tables(records, f"{out}/tables", watermark="1 minute")
    return writer.option("checkpointLocation", f"{out}/checkpoint").trigger(**trigger).start()


# -- the fleet ---------------------------------------------------------------------------------


async def run_fleet(cluster: EmbeddedCluster, spark: SparkSession, out: str) -> Any:
    """Run the clients while Spark reads their pushes. Return the query."""
    servers = cluster.bootstrap_servers
    troubles = Troubles()
    async with (
        Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin,
        asyncio.TaskGroup() as tasks,
    ):
        orders = NewTopic("orders", PARTITIONS, configs={"max.message.bytes": "2000"})
        (await admin.create_topics([orders, NewTopic("payments", 1)])).raise_for_errors()
        await subscribe(admin, "*", INTERVAL_MS)
        work = all_clients(servers, troubles, console)
        running = [tasks.create_task(each) for each in work]
        query = await asyncio.to_thread(
            start, spark, servers, TOPIC, out, processingTime="5 seconds"
        )
        console.print(f"{CLIENTS} clients push their metrics every second, and Spark reads them")
        await asyncio.sleep(HEALTHY_S)
        troubles.too_large.set()
        troubles.killed.set()
        with cluster.delay(ApiKey.PRODUCE, 1.0, where=lambda it: it.transactional_id == SLOW):
            console.print("three clients go wrong ...")
            await asyncio.sleep(TROUBLED_S)
        for task in running:
            task.cancel()
    return query


async def everything(spark: SparkSession, out: str) -> telemetry.Dashboard:
    """Run the clients on an embedded cluster, and return what Spark found."""
    async with EmbeddedCluster(telemetry=TopicTelemetryReceiver(TOPIC)) as cluster:
        query = await run_fleet(cluster, spark, out)
        console.print("the clients are closed, and Spark reads the rest ...")
        await asyncio.to_thread(query.processAllAvailable)
        query.stop()
        return await asyncio.to_thread(look, spark, out)


def look(spark: SparkSession, out: str) -> telemetry.Dashboard:
    """Return the results of the views of the tables."""
    return telemetry.make_dashboard(telemetry.read_tables(spark, f"{out}/tables"))


def read_topic(spark: SparkSession, servers: str, topic: str, out: str) -> telemetry.Dashboard:
    """Read the topic of another cluster to its end. Begin where the last run has ended."""
    start(spark, servers, topic, out, availableNow=True).awaitTermination()
    return look(spark, out)


# -- showing -----------------------------------------------------------------------------------


def show(dashboard: telemetry.Dashboard) -> None:
    """Print the versions, the latencies, and the summary."""
    table = Table(title="The fleet, by version")
    for column in ("software", "version", "instances", "not closed"):
        table.add_column(column)
    for row in dashboard.fleet:
        table.add_row(
            row["software"], row["version"], str(row["instances"]), str(row["not_closed"])
        )
    console.print(table)
    for line in dashboard.summary():
        console.print(line)


def found(dashboard: telemetry.Dashboard) -> bool:
    """Whether the dashboard names the clients that went wrong, and no other."""
    slow = {row["client_id"] for row in dashboard.slow}
    silent = {row["client_id"] for row in dashboard.silent}
    failing = {row["client_id"] for row in dashboard.errors}
    return slow == {SLOW} and silent == {KILLED} and REFUSED in failing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-server", help="read the topic of this cluster")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--out", help="a folder that all executors reach (build/telemetry)")
    parser.add_argument("--png", type=Path, help="the picture (dashboard.png)")
    options = parser.parse_args()
    logging.getLogger("aiokclient").setLevel(logging.CRITICAL)
    began = time.perf_counter()
    out = options.out or str(FOLDER)
    png = options.png or FOLDER / "dashboard.png"
    png.parent.mkdir(parents=True, exist_ok=True)
    console.print("starting Spark ...")
    spark = session()
    if options.bootstrap_server:
        dashboard = read_topic(spark, options.bootstrap_server, options.topic, out)
    else:
        for folder in ("tables", "checkpoint"):
            shutil.rmtree(Path(out, folder), ignore_errors=True)
        dashboard = asyncio.run(everything(spark, out))
    show(dashboard)
    with suppress(ModuleNotFoundError):
        dashboard.draw(png)
        console.print(f"{png} shows it")
    console.print(f"{time.perf_counter() - began:.0f} s")
    if options.bootstrap_server or found(dashboard):
        return 0
    console.print(f"FAILED: expected {SLOW} slow, {KILLED} silent, and errors of {REFUSED}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
