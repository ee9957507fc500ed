"""Tests that the rows of the source equal those of Spark's Kafka connector, including their types.

Every program here is written for the connector, and the tests replace only the name of the format.
With `AIOKCLIENT_SPARK_SOURCE=aiokclient_dropping`, they use a source that drops rows, so that the
tests fail.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from kafka_harness import KafkaCluster
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_results import ORDER, assert_same, result
from spark_topics import EVERYTHING, Sent, Step, compacted, fill, steps, trimmed

THEIRS = "kafka"
OURS = os.environ.get("AIOKCLIENT_SPARK_SOURCE", "aiokclient")

Options = dict[str, Any]
Program = Callable[[SparkSession, str, Options], DataFrame]


@pytest.fixture(scope="module", autouse=True)
def dropping(spark: SparkSession) -> None:
    """The source that drops a row, registered for programs that name it."""
    from dropping_source import DroppingSource

    spark.dataSource.register(DroppingSource)


def whole(spark: SparkSession, source: str, options: Options) -> DataFrame:
    return spark.read.format(source).options(**options).load()


def compare(spark: SparkSession, options: Options, program: Program = whole) -> pa.Table:
    expected = result(program(spark, THEIRS, options))
    assert_same(expected, result(program(spark, OURS, options)))
    return expected


@pytest.fixture
def options(spark_kafka: KafkaCluster) -> Options:
    return {"kafka.bootstrap.servers": spark_kafka.bootstrap, "includeHeaders": True}


@pytest.fixture
def new_topic(spark_kafka: KafkaCluster) -> Callable[..., str]:
    def create(partitions: int = 1, **configs: object) -> str:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return spark_kafka.create_topic(None, partitions, configs=named)

    return create


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_rows_equal_the_connectors_for_everything_that_a_partition_can_have(
    spark: SparkSession,
    options: Options,
    new_topic: Callable[..., str],
    kind: str,
    level: str,
) -> None:
    configs = {"message_timestamp_type": kind, "max_message_bytes": 4 << 20}
    # Partition 3 is empty.
    topic = new_topic(4, **configs)
    fill(options["kafka.bootstrap.servers"], topic, EVERYTHING)
    options |= {"subscribe": topic, "kafka.isolation.level": level}
    rows = compare(spark, options)
    assert rows.num_rows == 4 + 1 + 250 + 2 + 2 + 1 + 2 * (level == "read_uncommitted")
    assert set(rows["timestampType"].to_pylist()) == {int(kind == "LogAppendTime")}


def test_rows_equal_the_connectors_where_compaction_has_left_gaps(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(
        1,
        cleanup_policy="compact",
        segment_ms=50,
        min_cleanable_dirty_ratio=0.001,
        delete_retention_ms=0,
    )
    sent = [Step(tuple(Sent(0, bytes([n % 7]), b"%d" % n) for n in range(40)))] * 3
    fill(options["kafka.bootstrap.servers"], topic, sent)
    # The later timestamp makes the broker close the segment with the other records and compact it.
    last = Sent(0, b"last", b"1", timestamp=round(time.time() * 1000) + 60_000)
    fill(options["kafka.bootstrap.servers"], topic, [Step((last,))])
    left = compacted(options["kafka.bootstrap.servers"], topic, 121)
    assert compare(spark, {**options, "subscribe": topic}).num_rows <= left < 121


def test_rows_equal_the_connectors_after_records_were_deleted(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    servers = options["kafka.bootstrap.servers"]
    fill(servers, topic, [Step(tuple(Sent(n % 2, value=b"%d" % n) for n in range(40)))])
    trimmed(servers, topic, 0, 15)
    trimmed(servers, topic, 1, 20)
    assert compare(spark, {**options, "subscribe": topic}).num_rows == 5


@pytest.mark.long
def test_rows_equal_the_connectors_for_200_partitions(
    spark: SparkSession, options: Options, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(200)
    # Every third partition is empty.
    sent = tuple(Sent(n, value=b"%d" % n) for n in range(200) if n % 3 for _ in range(n % 5))
    fill(options["kafka.bootstrap.servers"], topic, [Step(sent)])
    assert compare(spark, {**options, "subscribe": topic}).num_rows == len(sent)


@pytest.fixture(scope="module")
def two_topics(spark_kafka: KafkaCluster) -> tuple[str, str]:
    """Two topics with records at the seconds 0 to 59, in two partitions each."""
    names = spark_kafka.create_topic(None, 2), spark_kafka.create_topic(None, 2)
    for name in names:
        sent = tuple(Sent(n % 2, b"%d" % n, b"v", timestamp=n * 1000) for n in range(60))
        fill(spark_kafka.bootstrap, name, [Step(sent)])
    return names


def of_both(names: tuple[str, str], *values: int) -> str:
    return json.dumps({name: {str(n): value for n, value in enumerate(values)} for name in names})


WAYS: dict[str, Callable[[tuple[str, str]], Options]] = {
    "subscribe": lambda names: {"subscribe": " , ".join(names)},
    "pattern": lambda names: {"subscribePattern": f"{names[0][:-1]}.|{names[1]}"},
    "assign": lambda names: {"assign": json.dumps({names[0]: [1], names[1]: [0, 1]})},
    "offsets": lambda names: {
        "subscribe": ",".join(names),
        "startingOffsets": of_both(names, 7, -2),
        "endingOffsets": of_both(names, -1, 20),
    },
    "timestamps": lambda names: {
        "subscribe": ",".join(names),
        "startingOffsetsByTimestamp": of_both(names, 10_000, 20_500),
        "endingOffsetsByTimestamp": of_both(names, 40_000, 1_000_000),
        "startingOffsets": "earliest",
    },
    "timestamp": lambda names: {
        "subscribe": ",".join(names),
        "startingTimestamp": 30_000,
        "endingTimestamp": 31_000,
        "startingOffsetsByTimestamp": of_both(names, 10_000, 20_500),
    },
    "strategy": lambda names: {
        "subscribe": ",".join(names),
        "startingTimestamp": 59_000,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "split": lambda names: {
        "subscribe": ",".join(names),
        "minPartitions": 7,
        "maxRecordsPerPartition": 11,
        "failOnDataLoss": "false",
        "groupIdPrefix": "jobs",
        "fetchOffset.numRetries": 5,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_programs_read_the_same_in_each_way_to_select_records(
    spark: SparkSession, options: Options, two_topics: tuple[str, str], way: str
) -> None:
    assert compare(spark, {**options, **WAYS[way](two_topics)}).num_rows


def cast(spark: SparkSession, source: str, options: Options) -> DataFrame:
    frame = whole(spark, source, options)
    frame = frame.selectExpr("CAST(CAST(key AS STRING) AS INT) k", "value", "timestamp")
    return frame.where("k > 5").groupBy(f.window("timestamp", "10 seconds")).agg(f.sum("k"))


def filtered(spark: SparkSession, source: str, options: Options) -> DataFrame:
    frame = whole(spark, source, options)
    wanted = (f.col("partition") == 1) & (f.col("offset").between(3, 25)) & f.col("key").isNotNull()
    return frame.where(wanted & (f.col("timestamp") > f.timestamp_seconds(f.lit(20))))


def headers(spark: SparkSession, source: str, options: Options) -> DataFrame:
    return whole(spark, source, options).select(*ORDER, f.expr("headers.key"), f.size("headers"))


@pytest.mark.parametrize("program", [cast, filtered, headers])
def test_programs_give_the_same_result(
    spark: SparkSession, options: Options, two_topics: tuple[str, str], program: Program
) -> None:
    assert compare(spark, {**options, "subscribe": two_topics[0]}, program).num_rows


def test_pushed_filters_give_the_same_result(
    spark: SparkSession, options: Options, two_topics: tuple[str, str]
) -> None:
    options |= {"subscribe": ",".join(two_topics)}
    expected = result(filtered(spark, THEIRS, options))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert_same(expected, result(filtered(spark, OURS, options)))
        assert_same(result(whole(spark, THEIRS, options)), result(whole(spark, OURS, options)))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_schema_selects_columns_which_the_connector_refuses(
    spark: SparkSession, options: Options, two_topics: tuple[str, str]
) -> None:
    options |= {"subscribe": two_topics[0]}
    columns = "offset bigint, value binary, topic string, partition int"
    ours = spark.read.format(OURS).schema(columns).options(**options).load()
    expected = whole(spark, THEIRS, options).select("offset", "value", "topic", "partition")
    assert_same(result(expected), result(ours))


@settings(
    max_examples=3 if os.environ.get("AIOKCLIENT_EXPLORE") is None else 50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps(3))
def test_random_topics_are_read_the_same(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], steps: list[Step]
) -> None:
    topic = new_topic(3)
    fill(options["kafka.bootstrap.servers"], topic, steps)
    for level in ("read_uncommitted", "read_committed"):
        compare(spark, {**options, "subscribe": topic, "kafka.isolation.level": level})


def test_comparison_fails_where_a_row_is_dropped(
    spark: SparkSession, options: Options, two_topics: tuple[str, str]
) -> None:
    options |= {"subscribe": two_topics[0]}
    expected = result(whole(spark, THEIRS, options))
    dropped = result(whole(spark, "aiokclient_dropping", options))
    assert dropped.num_rows == expected.num_rows - 2
    with pytest.raises(AssertionError, match="60 rows, not 58"):
        assert_same(expected, dropped)
