"""The sink: its topics equal those of Spark's Kafka connector, and it refuses wrong use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_harness import KafkaCluster
from open_transactions import none_open
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from aiokclient import Consumer
from aiokclient.errors import ConfigError
from aiokclient.spark.sink.sink import stream_writer

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
Options = dict[str, Any]
Written = list[tuple[int, bytes | None, bytes | None, tuple[Any, ...]]]


@pytest.fixture
def new_topic(spark_kafka: KafkaCluster) -> Callable[..., str]:
    return lambda partitions=3: spark_kafka.create_topic(None, partitions)


@pytest.fixture
def options(spark_kafka: KafkaCluster) -> Options:
    return {"kafka.bootstrap.servers": spark_kafka.bootstrap}


async def _records(bootstrap: str, topic: str) -> list[Any]:
    await none_open(bootstrap, topic)
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        return [record async for record in consumer.until_end()]


def records(options: Options, topic: str) -> list[Any]:
    return asyncio.run(_records(options["kafka.bootstrap.servers"], topic))


def written(options: Options, topic: str) -> Written:
    """Return partition, key, value, and headers of the records, sorted."""
    rows = [(r.partition, r.key, r.value, tuple(r.headers)) for r in records(options, topic)]
    return sorted(rows, key=repr)


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def write(rows: DataFrame, options: Options, source: str = "aiokclient") -> None:
    rows.write.format(source).options(**options).mode("append").save()


def refusal(rows: DataFrame, options: Options, mode: str = "append") -> str:
    with pytest.raises(PySparkException) as caught:
        rows.write.format("aiokclient").options(**options).mode(mode).save()
    said = str(caught.value)
    lines = [line for line in said.splitlines() if line.startswith("aiokclient.errors.")]
    # The text must contain the error exactly once.
    assert len(lines) == 1, said
    return lines[0].partition(": ")[2]


HEADERS = "array<struct<key:string,value:binary>>"
SHAPES = {
    "strings": ("key string, value string", ("k1", "v1"), ("k2", ""), ("", "ä"), ("k1", None)),
    "binary": ("key binary, value binary", (b"k1", b"\x00\xff"), (b"", b""), (b"k3", None)),
    "a partition": ("value string, partition int", ("a", 0), ("b", 2), ("c", 1), (None, 1)),
    "keys that are null": (
        "key string, value string, partition int",
        (None, "a", 0),
        ("k", "b", 1),
        (None, None, 2),
    ),
    "headers": (
        f"key string, value string, headers {HEADERS}",
        ("k", "a", [("h", b"1"), ("h", b"2")]),
        ("k", "b", []),
        ("k", "c", None),
        ("k", "d", [("n", None), ("", b"")]),
    ),
    "other columns": ("key string, value string, offset bigint", ("k", "a", 1), ("l", "b", 2)),
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_topic_equals_that_of_the_connectors_sink(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], shape: str
) -> None:
    schema, *rows = SHAPES[shape]
    found = []
    for source in ("kafka", "aiokclient"):
        topic = new_topic()
        write(frame(spark, str(schema), *rows), {**options, "topic": topic}, source)
        found.append(written(options, topic))
    assert len(found[0]) == len(rows)
    assert found[1] == found[0]


def test_column_topic_is_overridden_by_the_option(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    one, two, three = new_topic(), new_topic(), new_topic()
    rows = frame(spark, "topic string, key string, value string", (one, "k", "a"), (two, "k", "b"))
    for source in ("kafka", "aiokclient"):
        write(rows, options, source)
        write(rows, {**options, "topic": three}, source)
    # Both sinks have written each topic, and the third topic has all rows.
    assert [r.value for r in records(options, one)] == [b"a"] * 2
    assert [r.value for r in records(options, two)] == [b"b"] * 2
    assert sorted(r.value for r in records(options, three)) == [b"a", b"a", b"b", b"b"]


def test_rows_that_are_read_are_written_with_their_timestamps(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    source, target = new_topic(), new_topic()
    rows = frame(spark, "key string, value string", *[(f"k{n}", f"v{n}") for n in range(100)])
    at = f.timestamp_millis(f.lit(1_700_000_000_123))
    write(rows.withColumn("timestamp", at), {**options, "topic": source})
    read = spark.read.format("aiokclient").options(**options, subscribe=source, includeHeaders=True)
    write(read.load(), {**options, "topic": target})
    assert written(options, target) == written(options, source)
    assert {record.timestamp for record in records(options, target)} == {1_700_000_000_123}


def test_rows_of_more_than_the_buffer_wait_for_room(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    rows = spark.range(3000).select(
        f.col("id").cast("string").alias("key"), f.repeat(f.lit("v"), 1000).alias("value")
    )
    small = {"kafka.buffer.memory": 100_000, "kafka.batch.size": 20_000}
    write(rows.coalesce(1), {**options, **small, "topic": topic})
    assert sorted(int(record.key) for record in records(options, topic)) == list(range(3000))


@pytest.mark.parametrize(
    ("schema", "row", "more", "text"),
    [
        ("value string", ("v",), {}, "topic is missing. Set the option topic, or add a column"),
        ("key string", ("k",), {"topic": "t"}, "The column value is missing. The DataFrame has ke"),
        ("value int", (1,), {"topic": "t"}, "The column value has the type int. It must be string"),
        (
            "value string",
            ("v",),
            {"topic": "t", "kafka.acks": "7"},
            "kafka.acks: '7' is not allowed",
        ),
        ("value string, value binary", ("v", b"v"), {"topic": "t"}, "The column value occurs more"),
        ("topic string, value string", (None, "v"), {}, "The column topic is null in a row. "),
        (
            "topic string, value string",
            ("", "v"),
            {},
            "The column topic is '' in a row. It must be",
        ),
        (
            "topic string, value string",
            ("a b", "v"),
            {"deliveryGuarantee": "exactly-once", "writeId": "refused"},
            "The column topic is 'a b' in a row. It must be the name of a topic: ",
        ),
        (
            "value string",
            ("v",),
            {"topic": "no-such-topic", "kafka.default.api.timeout.ms": 1000},
            "UNKNOWN_TOPIC_OR_PARTITION (3) for no-such-topic: The broker does not have this topic "
            "or partition. The option topic is 'no-such-topic', which was not found within "
            "kafka.default.api.timeout.ms. ",
        ),
        (
            "value string",
            ("v",),
            {"topic": "t", "deliveryGuarantee": "exactly-once", "commitScope": "task"},
            "commitScope: 'task' is not allowed. A task cannot commit its own rows: ",
        ),
        (
            "value string",
            ("v",),
            {"topic": "t", "deliveryGuarantee": "exactly-once"},
            "writeId is missing. deliveryGuarantee=exactly-once in a batch write needs the name",
        ),
    ],
)
def test_batch_write_is_refused_with_one_line(
    spark: SparkSession,
    options: Options,
    schema: str,
    row: tuple[Any, ...],
    more: Options,
    text: str,
) -> None:
    rows = frame(spark, schema, row)
    said = refusal(rows, {**options, **more})
    assert said.startswith(text)


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_modes_that_the_connector_refuses_are_refused(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], mode: str
) -> None:
    topic = new_topic()
    rows = frame(spark, "value string", ("v",))
    for source in ("kafka", "aiokclient"):
        with pytest.raises(PySparkException, match=r"(?i)mode|truncate"):
            rows.write.format(source).options(**options, topic=topic).mode(mode).save()
    assert records(options, topic) == []


def test_stream_in_the_mode_complete_writes_the_result_of_each_batch(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source = new_topic(1)
    write(spark.range(5).selectExpr("CAST(id AS STRING) AS value"), {**options, "topic": source})
    given = {**options, "subscribe": source, "startingOffsets": "earliest"}
    limited = {**given, "maxOffsetsPerTrigger": 3}
    rows = spark.readStream.format("aiokclient").options(**limited).load()
    counts = rows.groupBy().count().selectExpr("CAST(count AS STRING) AS value")
    for sink in ("kafka", "aiokclient"):
        target = new_topic(1)
        named = {**options, "topic": target, "checkpointLocation": str(tmp_path / sink)}
        writer = counts.writeStream.format(sink).options(**named).outputMode("complete")
        writer.trigger(availableNow=True).start().awaitTermination()
        assert [record.value for record in records(options, target)] == [b"3", b"5"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_epoch_of_a_continuous_trigger_is_not_committed(
    options: Options, tmp_path: Path, guarantee: str
) -> None:
    # Spark reports no task of such an epoch, and does not end the query after the error.
    given = {**options, "topic": "t", "checkpointLocation": str(tmp_path)}
    schema = StructType().add("value", "string")
    writer = stream_writer({**given, "deliveryGuarantee": guarantee}, schema, False)
    with pytest.raises(ConfigError, match="A continuous trigger is not allowed"):
        writer.commit([None, None], 0)


def test_record_that_is_too_large_fails_the_write_and_says_which_option_allows_it(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    rows = spark.range(1).select(f.repeat(f.lit("v"), 2_000_000).alias("value"))
    said = refusal(rows, {**options, "topic": new_topic()})
    assert "kafka.max.request.size" in said


def test_unreachable_broker_is_named_once(spark: SparkSession) -> None:
    rows = frame(spark, "value string", ("v",))
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    said = refusal(rows, {**nowhere, "topic": "t"})
    assert "127.0.0.1:1" in said


# -- exactly once


def test_repeated_batch_write_with_a_write_id_adds_nothing(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    rows = spark.range(100).select(f.col("id").cast("string").alias("value")).repartition(2)
    exactly = {**options, "topic": topic, "deliveryGuarantee": "exactly-once", "writeId": topic}
    for name in (topic, f"{topic}-again"):
        write(rows, {**exactly, "writeId": name})
        write(rows, {**exactly, "writeId": name})
    assert sorted(int(r.value) for r in records(options, topic)) == sorted([*range(100)] * 2)
    other = rows.select(f.concat("value", f.lit("!")).alias("value"))
    with pytest.raises(PySparkException) as caught:
        write(other, exactly)
    assert f"of the write '{topic}' is committed with " in str(caught.value)
    assert len(records(options, topic)) == 200


def test_exactly_once_with_topics_in_a_column_recognizes_a_repetition(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    one, two = new_topic(), new_topic()
    rows = frame(spark, "topic string, value string", (one, "a"), (two, "b")).coalesce(1)
    exactly = {**options, "deliveryGuarantee": "exactly-once", "writeId": f"w-{one}"}
    for _ in range(2):
        write(rows, exactly)
    assert [r.value for r in records(options, one)] == [b"a"]
    assert [r.value for r in records(options, two)] == [b"b"]
    with pytest.raises(PySparkException, match="is committed with 2 rows"):
        write(frame(spark, "topic string, value string", (two, "b")).coalesce(1), exactly)


def stream_failure(rows: DataFrame, options: Options, mode: str = "append") -> str:
    writer = rows.writeStream.format("aiokclient").options(**options).outputMode(mode)
    with pytest.raises(PySparkException) as caught:
        writer.trigger(availableNow=True).start().awaitTermination()
    return str(caught.value)


def test_stream_is_refused_where_exactly_once_is_not_possible(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    write(frame(spark, "value string", ("v",)), {**options, "topic": topic})
    source = {**options, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("aiokclient").options(**source).load().select("value")
    target = new_topic()
    exactly = {**options, "topic": target, "deliveryGuarantee": "exactly-once"}
    checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
    # Other tests use the same session and may have changed the setting.
    spark.conf.unset(ADAPTIVE)
    assert spark.conf.get(ADAPTIVE) == "true"
    try:
        for _ in range(2):
            said = stream_failure(rows, {**exactly, **checkpoint})
            assert f"{ADAPTIVE}: 'true' is not allowed with deliveryGuarantee=exactly-once." in said
            # The first run uses Spark's default, and the second one a setting of the program.
            spark.conf.set(ADAPTIVE, "true")
        assert "checkpointLocation must be specified" in stream_failure(rows, exactly)
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "chosen"))
        said = stream_failure(rows, exactly)
        assert "checkpointLocation is missing. deliveryGuarantee=exactly-once" in said
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
        spark.conf.unset(ADAPTIVE)
    assert records(options, target) == []


def test_arrow_types_are_those_that_spark_gives_to_a_writer() -> None:
    # The sink selects columns by name; Spark's batches have them in the order of the DataFrame.
    from aiokclient.spark.sink.columns import selected

    batch = pa.record_batch({"offset": [1], "value": [b"v"], "topic": ["t"]})
    assert selected(batch, None).schema.names == ["value", "topic"]
    assert selected(batch, "other").schema.names == ["value"]
