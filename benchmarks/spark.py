"""How much CPU time do the Spark source and sink take, compared with Spark's Kafka connector?

One session with two threads reads from and writes to one real broker. The third subject reads rows
from memory and discards what it writes: nothing can be faster with Spark's API for Python. The
subjects take turns. The first runs of each do not count, because the Java virtual machine still
compiles. The figures are medians: seconds, thousands of rows per second, and CPU seconds per
million rows. The CPU seconds are those of the Java virtual machine and all Python processes
together, those of each of the two, and those of the broker.

The stream from topic to topic reads, in one batch, the topic of the queries. A micro-batch has 100
rows, which are sent when the previous batch has ended, or wait in the topic from the start. Its
time is the one that Spark reports. The connector waits for the end of a fetch if no rows are there
yet.

    python benchmarks/spark.py [--runs N] [--rows N] [--batches N] [--only TEXT]

`--memory 1000` measures the memory of streams of 1,000 micro-batches, after a tenth of them and at
their end: the heap of the Java virtual machine after a garbage collection, the resident memory
of the process that has the reader on the driver, and that of the workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import measuring.brokers
from kafka_harness import KAFKA, KafkaCluster
from measuring.report import Report, Table, number
from measuring.spark_runs import Meter, Run, medians
from spark_session import create
from subjects.spark_jobs import CONNECTOR, MEMORY, OWN, Job, World
from subjects.spark_memory import MemorySource
from subjects.spark_micro_batches import batch_ms, memory
from subjects.spark_reading import READING
from subjects.spark_writing import EXACTLY_ONCE, WRITING

HERE = Path(__file__).resolve().parent
FIGURES = ("seconds", "k rows/s", "CPU s/M", "jvm s/M", "python s/M", "broker s/M")
MICRO_BATCHES = {
    f"micro-batch, {what}{when}": (copied, waiting)
    for what, copied in (("read", False), ("topic to topic", True))
    for when, waiting in (("", False), (", rows waiting", True))
}
"""The jobs with micro-batches: whether each writes its rows to a topic, and whether the rows
are in the topic before its first batch."""


@dataclass(frozen=True)
class Limit:
    """The upper limit of a figure of this library, or of its ratio to another subject's figure."""

    job: str
    figure: str
    most: float
    divisor: str | None = None
    subject: str = OWN


LIMITS = (
    Limit("count", "seconds", 1, CONNECTOR),
    Limit("sum", "seconds", 1, CONNECTOR),
    Limit("count", "CPU s/M", 1, CONNECTOR),
    Limit("sum", "CPU s/M", 1, CONNECTOR),
    Limit("mapInArrow, each row touched", "CPU s/M", 1.9),
    Limit("mapInArrow, pyarrow.compute, 1 KB", "CPU s/M", 4),
    Limit("toArrow, value", "CPU s/M", 1.6),
    Limit("toArrow, schema of value alone", "CPU s/M", 1.4),
    Limit("count of 5,010 rows", "seconds", 1),
    Limit("batch write", "CPU s/M", 3),
    Limit("stream from topic to topic", "CPU s/M", 3.5),
    *(
        Limit("stream from topic to topic", figure, 1.3, OWN, subject)
        for subject in EXACTLY_ONCE
        for figure in ("CPU s/M", "seconds")
    ),
    *(Limit(name, "ms", 1.5, CONNECTOR) for name in MICRO_BATCHES),
)


class Bench:
    """The measurements in one session, and their report."""

    def __init__(self, world: World, runs: int, first: int) -> None:
        self._world = world
        self._turns = [*[False] * first, *[True] * runs]
        """Whether each turn counts. The first turns only warm up."""
        self._meter = Meter(world.spark, world.kafka)
        self.report = Report(__doc__ or "")

    def job(self, job: Job, rows: int) -> None:
        rows = job.count(rows)
        done: dict[str, list[Run]] = {subject: [] for subject in job.subjects}
        for counts in self._turns:
            for subject in job.subjects:
                with job.start(self._world, subject, rows) as query:
                    found = self._meter.measure(query)
                if counts:
                    done[subject].append(found)
        found_medians = {subject: medians(runs, rows) for subject, runs in done.items()}
        self._add(job.name, found_medians, FIGURES)

    def micro_batches(self, name: str, batches: int) -> None:
        copied, waiting = MICRO_BATCHES[name]
        done: dict[str, list[float]] = {CONNECTOR: [], OWN: []}
        if waiting:
            done[MEMORY] = []
        # One turn for warming up is enough, because `batch_ms` leaves out first batches.
        for counts in self._turns[-1 - sum(self._turns) :]:
            for subject, times in done.items():
                ms = batch_ms(self._world, subject, batches, copied=copied, waiting=waiting)
                if counts:
                    times.append(ms)
        found = {subject: {"ms": statistics.median(times)} for subject, times in done.items()}
        self._add(name, found, ("ms",))

    def memory(self, batches: int) -> None:
        points = (max(1, batches // 10), batches)
        for subject in (CONNECTOR, OWN):
            name = f"memory of {subject} in MiB, after batches"
            sizes = memory(self._world, subject, self._meter, points)
            found = {str(done): figures for done, figures in sizes}
            self._add(name, found, tuple(found[str(batches)]))

    def _add(self, name: str, found: dict[str, dict[str, float]], figures: tuple[str, ...]) -> None:
        table = Table(name, ["", *figures])
        for subject, values in found.items():
            table.rows.append([subject, *(number(values[figure]) for figure in figures)])
        self.report.tables.append(table)
        self.report.numbers[name] = found
        print(table.text(), flush=True)

    def limits(self) -> None:
        """Add a table of the limits of the measured figures."""
        table = Table("Limits", ["job", "figure", "limit", "measured", "reached"])
        for limit in LIMITS:
            found = self.report.numbers.get(limit.job)
            if found is None:
                continue
            value, figure = found[limit.subject][limit.figure], limit.figure
            if limit.divisor is not None:
                value /= found[limit.divisor][limit.figure]
                figure = f"{figure}, divided by that of {limit.divisor}"
            name = limit.job if limit.subject == OWN else f"{limit.job}: {limit.subject}"
            reached = (
                "yes" if value <= limit.most else f"no, by a factor of {value / limit.most:.2f}"
            )
            table.rows.append([name, figure, number(limit.most), number(value), reached])
        self.report.tables.append(table)
        print(table.text(), flush=True)


@contextmanager
def session() -> Iterator[World]:
    # Workers import MemorySource from this folder.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    # Without bytecode files, each worker would compile the modules that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        KafkaCluster(KAFKA, jvm=measuring.brokers.JVM) as kafka,
    ):
        folder = Path(name)
        configs = {
            "spark.driver.memory": "2g",
            "spark.driver.maxResultSize": "2g",
            # If this were true, the sink would refuse to write exactly once.
            "spark.sql.adaptive.streaming.stateless.enabled": "false",
        }
        spark = create(folder, **configs)
        spark.dataSource.register(MemorySource)
        try:
            yield World(spark, kafka, folder)
        finally:
            spark.stop()


def measure(bench: Bench, given: argparse.Namespace) -> None:
    """Measure the requested jobs. A job that fails is left out."""
    works: dict[str, Callable[[], None]] = {
        job.name: partial(bench.job, job, given.rows) for job in (*READING, *WRITING)
    }
    works |= {name: partial(bench.micro_batches, name, given.batches) for name in MICRO_BATCHES}
    works = {name: work for name, work in works.items() if given.only in name}
    if given.memory:
        works["memory"] = partial(bench.memory, given.memory)
    for name, work in works.items():
        try:
            work()
        except Exception as error:
            print(f"FAILED: {name}: {error}", file=sys.stderr, flush=True)
            bench.report.failed.append(name)
    bench.limits()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first", type=int, default=4, help="runs before those that count")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=10, help="micro-batches of a run")
    parser.add_argument("--memory", type=int, default=0, help="micro-batches, such as 1000")
    parser.add_argument("--only", default="", help="jobs with this text in their name")
    parser.add_argument("--json", type=Path, help="a file for the report, for run.py")
    parser.add_argument("--markdown", type=Path, help="a file for the tables")
    given = parser.parse_args()
    with session() as world:
        bench = Bench(world, given.runs, given.first)
        measure(bench, given)
    for file in filter(None, (given.json, given.markdown)):
        file.parent.mkdir(parents=True, exist_ok=True)
    if given.json:
        bench.report.save(given.json)
    if given.markdown:
        given.markdown.write_text("\n".join(t.markdown() for t in bench.report.tables))
    return int(bool(bench.report.failed))


if __name__ == "__main__":
    sys.exit(main())
