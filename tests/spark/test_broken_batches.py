"""The exactly-once sink, when what stands before it fails, or when a query is stopped in a batch.

In both cases, Spark ends the rows of a task as if they were complete. Nothing of the batch must be
committed, its transactions must be aborted, and a restart must write each row once. The timeout of
the transactions is so long that no coordinator aborts them within a test.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from open_transactions import none_open
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from aiokclient import Admin, Consumer, NewTopic, Producer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
PARTITIONS = 2
ROWS = 1000
"""The number of rows of each partition."""
SIZE = 1000
"""The size of a value. Python's side of Spark passes rows on in pieces of 64 KiB."""
WAIT_S = 180.0


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.long)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("spark_kafka").bootstrap)
    return str(request.getfixturevalue("brokers").bootstrap_servers)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose sinks get the first rows of a task long before the last."""
    spark.conf.set(ADAPTIVE, "false")
    spark.conf.set(BATCH_ROWS, "100")
    yield spark
    spark.conf.unset(BATCH_ROWS)
    spark.conf.unset(ADAPTIVE)


class Copy:
    """A query that copies a topic exactly once, with one batch for all rows."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = {"kafka.bootstrap.servers": bootstrap}
        self.name = uuid.uuid4().hex[:12]
        self.checkpoint = folder / "checkpoint"
        self._gate = str(folder / "gate")
        self.values: Counter[bytes] = Counter()
        asyncio.run(self._create())

    async def _create(self) -> None:
        async with Admin(bootstrap_servers=self._bootstrap["kafka.bootstrap.servers"]) as admin:
            names = (f"in-{self.name}", f"out-{self.name}")
            created = await admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
            created.raise_for_errors()
        await self.write()

    async def write(self) -> None:
        """Write more rows to the source."""
        first = self.values.total()
        values = [b"%06d:" % n + bytes(SIZE) for n in range(first, first + PARTITIONS * ROWS)]
        options: Any = {"bootstrap_servers": self._bootstrap["kafka.bootstrap.servers"]}
        async with Producer(**options) as producer:
            await producer.gather(
                producer.send(f"in-{self.name}", value, partition=number % PARTITIONS)
                for number, value in enumerate(values)
            )
        self.values += Counter(values)

    def gated(self, rows: DataFrame, *, fails: bool = False) -> DataFrame:
        """Return the rows through a gate, which is closed after half of the rows of a task.

        If `fails`, the task fails when the gate opens.
        """
        gate, half = self._gate, ROWS // 2

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os
            import time

            count = 0
            for batch in batches:
                yield batch
                count += batch.num_rows
                while half <= count and not os.path.exists(gate):
                    time.sleep(0.02)
                if half <= count and fails:
                    raise RuntimeError("what stands before the sink")

        return rows.mapInArrow(wait, rows.schema)

    def open_gate(self) -> None:
        Path(self._gate).touch()

    def rows(self) -> DataFrame:
        """Return the stream of the source."""
        given = {"subscribe": f"in-{self.name}", "startingOffsets": "earliest"}
        reader = self._spark.readStream.format("aiokclient").options(**self._bootstrap, **given)
        return reader.load().select("value")

    def static_rows(self) -> DataFrame:
        """Return the rows of the source for a batch write."""
        reader = self._spark.read.format("aiokclient").options(**self._bootstrap)
        return reader.option("subscribe", f"in-{self.name}").load().select("value")

    def sink(self, **more: str) -> dict[str, str]:
        return {
            **self._bootstrap,
            "topic": f"out-{self.name}",
            "deliveryGuarantee": "exactly-once",
            "kafka.transaction.timeout.ms": "600000",
            "kafka.linger.ms": "0",
            **more,
        }

    def start(self, rows: DataFrame) -> Any:
        """Start a query that writes the rows."""
        options = self.sink(checkpointLocation=str(self.checkpoint))
        writer = rows.writeStream.format("aiokclient").options(**options)
        return writer.trigger(availableNow=True).start()

    def finish(self) -> None:
        """Run a query that writes all rows that are not written yet."""
        self.start(self.rows()).awaitTermination()

    def wait_until_written(self) -> None:
        """Wait until each task has written rows in an open transaction."""
        end = time.monotonic() + WAIT_S
        while self.uncommitted() < PARTITIONS:
            assert time.monotonic() < end, "the tasks have begun no transactions"
            time.sleep(0.05)

    def uncommitted(self) -> int:
        """Return the number of the sink's open transactions that write to the output."""
        return asyncio.run(self._uncommitted())

    async def _uncommitted(self) -> int:
        async with Admin(bootstrap_servers=self._bootstrap["kafka.bootstrap.servers"]) as admin:
            listed = await admin.list_transactions(states=["Ongoing"])
            described = (await admin.describe_transactions(listed)).succeeded.values()
        return sum(
            any(tp.topic == f"out-{self.name}" for tp in each.partitions) for each in described
        )

    def committed(self) -> Counter[bytes]:
        """Return the committed rows. Raises TimeoutError if a transaction stays open."""
        return asyncio.run(self._committed())

    async def _committed(self) -> Counter[bytes]:
        bootstrap = self._bootstrap["kafka.bootstrap.servers"]
        await none_open(bootstrap, f"out-{self.name}")
        async with Consumer(
            f"out-{self.name}",
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            return Counter([r.value async for r in consumer.until_end() if r.value is not None])


@pytest.fixture
def copy(session: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[Copy]:
    yield Copy(session, bootstrap, tmp_path)
    for query in session.streams.active:
        query.stop()


def expression(rows: DataFrame) -> DataFrame:
    """Return rows of which the last ones fail in Spark itself."""
    failure = f.raise_error(f.lit("what stands before the sink")).cast("binary")
    is_late = f.col("value").substr(1, 6).cast("string") >= f"{PARTITIONS * ROWS - 100:06d}"
    return rows.select(f.when(is_late, failure).otherwise(f.col("value")).alias("value"))


BROKEN: dict[str, Callable[[Copy, DataFrame], DataFrame]] = {
    "function": lambda copy, rows: copy.gated(rows, fails=True),
    "expression": lambda copy, rows: expression(copy.gated(rows)),
}


CASES = list(product(BROKEN, ["embedded", "kafka"]))
"""Each cause with both clusters. Only `make spark` runs the second one and the third."""


@pytest.mark.parametrize(
    ("cause", "bootstrap"),
    [CASES[0], *(pytest.param(*each, marks=pytest.mark.long) for each in CASES[1:3]), CASES[3]],
    indirect=["bootstrap"],
)
def test_stream_commits_nothing_when_what_stands_before_it_fails_and_is_exact_after_a_restart(
    copy: Copy, cause: str
) -> None:
    query = copy.start(BROKEN[cause](copy, copy.rows()))
    copy.wait_until_written()
    copy.open_gate()
    with pytest.raises(PySparkException, match="what stands before the sink"):
        query.awaitTermination()
    assert copy.committed() == Counter()
    copy.finish()
    assert copy.committed() == copy.values


def test_stream_that_is_stopped_in_a_batch_commits_nothing_and_is_exact_after_a_restart(
    copy: Copy,
) -> None:
    query = copy.start(copy.gated(copy.rows()))
    copy.wait_until_written()
    query.stop()
    # `stop()` has waited for the abort.
    assert copy.uncommitted() == 0
    assert copy.committed() == Counter()
    copy.finish()
    assert copy.committed() == copy.values


@pytest.mark.long
def test_stream_that_is_stopped_again_and_again_and_restarted_at_once_is_exact(copy: Copy) -> None:
    for _ in range(2):
        query = copy.start(copy.gated(copy.rows()))
        copy.wait_until_written()
        query.stop()
    copy.finish()
    assert copy.committed() == copy.values


def test_later_batch_that_is_stopped_is_aborted_also_if_the_checkpoint_cannot_be_read(
    copy: Copy,
) -> None:
    copy.finish()
    first = Counter(copy.values)
    asyncio.run(copy.write())
    query = copy.start(copy.gated(copy.rows()))
    copy.wait_until_written()
    # So a checkpoint looks that is in an object store.
    metadata = copy.checkpoint / "metadata"
    text = metadata.read_bytes()
    metadata.unlink()
    query.stop()
    metadata.write_bytes(text)
    assert copy.committed() == first
    copy.finish()
    assert copy.committed() == copy.values


def test_batch_write_commits_nothing_when_what_stands_before_it_fails_and_can_be_repeated(
    copy: Copy,
) -> None:
    def write(rows: DataFrame) -> None:
        options = copy.sink(writeId=copy.name)
        rows.write.format("aiokclient").options(**options).mode("append").save()

    copy.open_gate()
    with pytest.raises(PySparkException, match="what stands before the sink"):
        write(copy.gated(copy.static_rows(), fails=True))
    assert copy.committed() == Counter()
    write(copy.static_rows())
    write(copy.static_rows())
    assert copy.committed() == copy.values
