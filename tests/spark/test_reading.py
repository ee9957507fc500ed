"""Ranges that are partly deleted when a task reads them, and brokers that no task can reach."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType, TimestampType
from spark_streams import Stream, StreamFailure

from aiokclient import ProducerRecord
from aiokclient.errors import BootstrapError, KafkaError, OffsetOutOfRangeError
from aiokclient.spark import attempts
from aiokclient.spark.source.batch import BatchReader, batch_reader
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.reading import Split, read
from aiokclient.testing import EmbeddedCluster

TOPIC = "orders"
SCHEMA = StructType().add("offset", "long").add("value", "binary")
TIME = StructField("timestamp", TimestampType())
MISSING = (
    "OFFSET_OUT_OF_RANGE (1) in Fetch for orders-0: The log does not contain the whole range. "
    "Offsets 0 to 3 are missing. The log starts at offset 4: retention or an admin deleted "
    "older records. Set failOnDataLoss to false to read the remaining records."
)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics={TOPIC: 1}) as cluster:
        write(cluster, 0, 10)
        yield cluster


def write(cluster: EmbeddedCluster, start: int, end: int) -> None:
    """Append records, each of which is a batch of the log."""
    for number in range(start, end):
        cluster.produce(TOPIC, [b"%d" % number])


def options(cluster: EmbeddedCluster, **more: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": TOPIC, **named}


def reader(cluster: EmbeddedCluster, **more: str) -> BatchReader:
    parsed = SourceOptions.parse(options(cluster, **more), streaming=False)
    return batch_reader(parsed, SCHEMA)


def offsets(source: BatchReader, split: Split) -> list[int]:
    return [at for batch in source.read(split) for at in batch.column("offset").to_pylist()]


def test_range_that_is_partly_deleted_is_an_error_that_names_partition_and_offsets(
    cluster: EmbeddedCluster,
) -> None:
    source = reader(cluster)
    (split,) = source.partitions()
    cluster.delete_records(TOPIC, 0, before=4)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        offsets(source, split)
    assert str(caught.value) == f"{MISSING} help: {caught.value.help}"


@pytest.mark.parametrize("left", [6, 0])
def test_rest_of_a_range_is_read_where_data_loss_is_allowed_and_the_loss_is_logged(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    source = reader(cluster, failOnDataLoss="false")
    (split,) = source.partitions()
    cluster.delete_records(TOPIC, 0, before=10 - left)
    with caplog.at_level(logging.WARNING, "aiokclient.spark"):
        assert offsets(source, split) == [*range(10 - left, 10)]
    (line,) = caplog.messages
    assert line.startswith(f"orders-0: Offsets 0 to {9 - left} are missing.")


@pytest.mark.parametrize("fail", [True, False])
def test_log_that_ends_before_a_planned_range_follows_the_option(
    cluster: EmbeddedCluster, fail: bool
) -> None:
    source = reader(cluster, failOnDataLoss=str(fail))
    (split,) = source.partitions()
    cluster.truncate(TOPIC, 0, to=7)
    if not fail:
        assert offsets(source, split) == [*range(7)]
        return
    with pytest.raises(
        OffsetOutOfRangeError,
        match=r"orders-0: .* Offsets 7 to 9 are missing\. .* ends at offset 7",
    ):
        offsets(source, split)


@pytest.mark.parametrize("again", [True, False])
def test_topic_that_is_deleted_while_a_task_reads_is_named_with_the_offsets(
    cluster: EmbeddedCluster, again: bool
) -> None:
    # Each fetch gets one batch of the log.
    source = reader(cluster, kafka__fetch__max__bytes="1", kafka__default__api__timeout__ms="2000")
    write(cluster, 10, 100)
    (split,) = source.partitions()
    batches = source.read(split)
    assert next(batches).column("offset").to_pylist()[0] == 0
    cluster.delete_topic(TOPIC)
    if again:
        cluster.create_topic(TOPIC, 1)
        write(cluster, 0, 200)
    with pytest.raises(KafkaError) as caught:
        list(batches)
    said = str(caught.value)
    assert "for orders-0: " in said
    assert "The task reads the offsets 0 to 99." in said
    assert said.removesuffix(f" help: {caught.value.help}").endswith(
        "The topic was deleted, or created again under its name, after the query was planned. Run "
        "the query again. A stream that is started again continues as failOnDataLoss says."
    )


def test_record_with_a_timestamp_that_spark_lacks_is_named_and_can_be_read_without_it(
    cluster: EmbeddedCluster,
) -> None:
    record = ProducerRecord(TOPIC, b"far", timestamp=1 << 62)
    cluster.produce(TOPIC, [record])
    parsed = SourceOptions.parse(options(cluster), streaming=False)
    (split,) = batch_reader(parsed, SCHEMA).partitions()
    assert len(offsets(batch_reader(parsed, SCHEMA), split)) == 11
    with pytest.raises(KafkaError) as caught:
        offsets(batch_reader(parsed, StructType([*SCHEMA.fields, TIME])), split)
    assert str(caught.value) == (
        f"orders-0: The task reads the offsets 0 to 10. A record has the timestamp {1 << 62} ms, "
        "and Spark has none after 9223372036854775 ms (in the year 294247). Read the other columns "
        "with a schema, such as schema('key binary, value binary')."
    )


def nowhere(timeout_ms: int) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": str(timeout_ms),
        "subscribe": TOPIC,
    }


class Attempt:
    """The context of a task, with the only method that the source uses."""

    def __init__(self, number: int) -> None:
        self._number = number

    def attemptNumber(self) -> int:
        return self._number


def test_repeated_attempt_of_a_task_does_not_wait_for_unreachable_brokers_again(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (split,) = reader(cluster).partitions()
    monkeypatch.setattr(attempts, "REPEATED_S", 0.1)
    monkeypatch.setattr(TaskContext, "get", lambda: Attempt(1))
    # If the attempt waited for this timeout, the test would exceed its own timeout.
    parsed = SourceOptions.parse(nowhere(900_000), streaming=False)
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1") as caught:
        list(read(parsed, SCHEMA, split.value))
    assert caught.value.__notes__ == [attempts.EARLIER]
    parsed = SourceOptions.parse(options(cluster), streaming=False)
    assert sum(batch.num_rows for batch in read(parsed, SCHEMA, split.value)) == 10


def test_first_attempt_of_a_task_waits_for_the_timeout(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (split,) = reader(cluster).partitions()
    monkeypatch.setattr(attempts, "REPEATED_S", 900.0)
    for number in (0, 1):
        monkeypatch.setattr(TaskContext, "get", lambda number=number: Attempt(number))
        parsed = SourceOptions.parse(nowhere(200), streaming=False)
        with pytest.raises(BootstrapError) as caught:
            list(read(parsed, SCHEMA, split.value))
        assert hasattr(caught.value, "__notes__") is bool(number)


# -- through Spark


@pytest.mark.parametrize("fail", [True, False])
def test_batch_query_whose_range_is_deleted_after_its_plan_follows_the_option(
    spark: Any, cluster: EmbeddedCluster, fail: bool
) -> None:
    source = spark.read.format("aiokclient").options(**options(cluster), failOnDataLoss=fail)
    frame = source.load().select("offset")
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 1  # Spark makes the plan now.
    cluster.delete_records(TOPIC, 0, before=4)
    if not fail:
        assert sorted(row.offset for row in frame.collect()) == [*range(4, 10)]
        return
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert f"aiokclient.errors.OffsetOutOfRangeError: {MISSING}" in str(caught.value)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_stream_whose_range_is_deleted_after_its_plan_follows_the_option(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path, fail: str
) -> None:
    given = options(cluster, startingOffsets="earliest", failOnDataLoss=fail)
    stream = Stream(spark, tmp_path / "checkpoint", given)
    planned = lambda _: cluster.delete_records(TOPIC, 0, before=4)  # noqa: E731
    if fail == "false":
        rows = [(TOPIC, 0, number, str(number)) for number in range(4, 10)]
        assert stream.run(planned=planned) == rows
        return
    with pytest.raises(StreamFailure, match="Offsets 0 to 3 are missing") as raised:
        stream.run(planned=planned)
    assert "orders-0" in raised.value.first_line
