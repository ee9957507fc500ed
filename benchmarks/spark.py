"""The Spark source beside Spark's own Kafka connector and a source with rows from memory.

    python benchmarks/spark.py [--runs N] [--rows N] [--only TEXT] [--json FILE]

One session with two threads reads from one real broker. The sources take turns, after one run of
each that does not count. The figures are medians: seconds, thousands of rows per second, and CPU
seconds per million rows of the Java virtual machine, of all Python processes, and of the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring.brokers
from kafka_harness import KAFKA, KafkaCluster
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_session import create
from subjects.spark_memory import MemorySource

from aiokclient import Producer

SOURCES = ("kafka", "aiokclient", "memory")
HERE = Path(__file__).resolve().parent
PARTITIONS = 2
FIXED_ROWS = 5_010
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Job:
    """What is measured: a query over values of `size` bytes."""

    name: str
    query: Callable[[DataFrame], object]
    size: int = 100
    rows: int | None = None
    """The number of rows, if it is not that of the other jobs."""
    schema: str | None = None
    """The columns that a source may be asked for, which the connector refuses."""


def touch(batches: Iterator[Any]) -> Iterator[Any]:
    """Look at each value as a Python object."""
    import pyarrow as pa

    for batch in batches:
        lengths = [len(value) for value in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pydict({"n": [sum(lengths)]}, pa.schema([("n", pa.int64())]))


def compute(batches: Iterator[Any]) -> Iterator[Any]:
    """Look at all values with functions of Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        total = pc.sum(pc.binary_length(batch.column("value"))).cast(pa.int64())
        yield pa.RecordBatch.from_arrays([pa.array([total.as_py()], pa.int64())], names=["n"])


JOBS = (
    Job("count", lambda frame: frame.count()),
    Job("sum", lambda frame: frame.agg(f.sum(f.length("value"))).collect()),
    Job(
        "mapInArrow, each row touched",
        lambda frame: frame.mapInArrow(touch, "n long").agg(f.sum("n")).collect(),
    ),
    Job(
        "mapInArrow, pyarrow.compute",
        lambda frame: frame.mapInArrow(compute, "n long").agg(f.sum("n")).collect(),
    ),
    Job(
        "mapInArrow, pyarrow.compute, 1 KB",
        lambda frame: frame.mapInArrow(compute, "n long").agg(f.sum("n")).collect(),
        size=1000,
    ),
    Job("toArrow, value", lambda frame: frame.select("value").toArrow()),
    Job(
        "toArrow, schema of value alone",
        lambda frame: frame.select("value").toArrow(),
        schema="value binary",
    ),
    Job("toArrow, all columns", lambda frame: frame.toArrow()),
    Job("count of 5,010 rows", lambda frame: frame.count(), rows=FIXED_ROWS),
)


def stat(pid: int) -> tuple[int, float, float]:
    """Return the parent, the CPU seconds, and those of children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, ended = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
    return int(words[1]), own / TICKS, ended / TICKS


class Meter:
    """The CPU seconds of the processes of a session and of the broker."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())
        self._brokers = [node.pid for node in kafka.nodes.values()]

    def read(self) -> tuple[float, float, float]:
        """Return the CPU seconds so far of the virtual machine, of Python, and of the broker."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    found[int(folder.name)] = stat(int(folder.name))
                except OSError:
                    continue
        family = {self._jvm}
        while True:
            more = {pid for pid, (parent, *_) in found.items() if parent in family} - family
            if not more:
                break
            family |= more
        _, own, ended = found[self._jvm]
        python = ended + found[os.getpid()][1]
        python += sum(sum(found[pid][1:]) for pid in family - {self._jvm})
        return own, python, sum(found[pid][1] for pid in self._brokers)


@dataclass(frozen=True)
class Run:
    seconds: float
    jvm: float
    python: float
    broker: float


def measure(meter: Meter, query: Callable[[], object]) -> Run:
    before, began = meter.read(), time.perf_counter()
    query()
    seconds, after = time.perf_counter() - began, meter.read()
    return Run(seconds, *(late - early for early, late in zip(before, after, strict=True)))


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    async def send() -> None:
        async with Producer(bootstrap_servers=bootstrap, batch_size=1 << 18) as producer:
            await producer.send_all(topic, (b"v" * size for _ in range(rows)))

    asyncio.run(send())


class Bench:
    """A session, a broker, and their topics."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, rows: int) -> None:
        self._spark, self._kafka, self._rows = spark, kafka, rows
        self._topics: dict[tuple[int, int], str] = {}
        self._meter = Meter(spark, kafka)
        spark.dataSource.register(MemorySource)

    def _topic(self, rows: int, size: int) -> str:
        if (rows, size) not in self._topics:
            topic = self._kafka.create_topic(None, PARTITIONS)
            fill(self._kafka.bootstrap, topic, rows, size)
            self._topics[rows, size] = topic
        return self._topics[rows, size]

    def frame(self, source: str, job: Job, rows: int) -> DataFrame:
        reader = self._spark.read.format(source)
        if job.schema is not None and source != "kafka":
            reader = reader.schema(job.schema)
        if source == "memory":
            return reader.options(rows=rows, size=job.size, partitions=PARTITIONS).load()
        options = {"kafka.bootstrap.servers": self._kafka.bootstrap}
        return reader.options(**options, subscribe=self._topic(rows, job.size)).load()

    def run(self, job: Job, runs: int) -> dict[str, dict[str, float]]:
        """Return the medians of each source."""
        rows = job.rows or self._rows
        done: dict[str, list[Run]] = {source: [] for source in SOURCES}
        for number in range(runs + 1):
            for source in SOURCES:
                found = self._measure(source, job, rows)
                if number:
                    done[source].append(found)
        return {source: medians(found, rows) for source, found in done.items()}

    def _measure(self, source: str, job: Job, rows: int) -> Run:
        frame = functools.partial(self.frame, source, job, rows)
        if source != "memory":
            self._topic(rows, job.size)
        return measure(self._meter, lambda: job.query(frame()))


def medians(runs: list[Run], rows: int) -> dict[str, float]:
    seconds = statistics.median(run.seconds for run in runs)
    found = {"seconds": seconds, "k rows/s": rows / seconds / 1e3}
    for name in ("jvm", "python", "broker"):
        found[f"{name} s/M"] = statistics.median(getattr(run, name) for run in runs) / rows * 1e6
    found["CPU s/M"] = statistics.median(run.jvm + run.python for run in runs) / rows * 1e6
    return found


COLUMNS = ("seconds", "k rows/s", "CPU s/M", "jvm s/M", "python s/M", "broker s/M")


def show(job: Job, found: dict[str, dict[str, float]]) -> None:
    print(f"\n{job.name}\n{'':<12}" + "".join(f"{column:>12}" for column in COLUMNS))
    for source, figures in found.items():
        cells = (f"{figures[c]:>12.0f}" if c[0] == "k" else f"{figures[c]:>12.2f}" for c in COLUMNS)
        print(f"{source:<12}" + "".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="jobs with this text in their name")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    # Workers import the source with rows from memory.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(KAFKA, jvm=measuring.brokers.JVM) as kafka,
    ):
        spark = create(Path(folder), spark__driver__memory="2g", spark__driver__maxResultSize="2g")
        bench = Bench(spark, kafka, given.rows)
        for job in JOBS:
            if given.only in job.name:
                found[job.name] = bench.run(job, given.runs)
                show(job, found[job.name])
        spark.stop()
    if given.json:
        given.json.write_text(json.dumps({"numbers": found}))


if __name__ == "__main__":
    main()
