"""The rows of a stream equal those of Spark's Kafka connector, with types, also after a restart.

The source and the connector run the same query, each with its own checkpoint, over the same topic
of a real Kafka.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from kafka_harness import KafkaCluster
from pyspark.sql import SparkSession
from spark_results import assert_same
from spark_streams import Stream
from spark_topics import EVERYTHING, Sent, Step, fill, steps

THEIRS = "kafka"
OURS = os.environ.get("AIOKCLIENT_SPARK_SOURCE", "aiokclient")


class Pair:
    """A query by the connector and the same query by this source."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._streams = [
            Stream(spark, folder / name, {"format": name, **options}) for name in (THEIRS, OURS)
        ]

    def compare(self, **options: str) -> pa.Table:
        """Read all records by both queries, check that the rows are equal, and return them."""
        expected, found = (each.table(**options) for each in self._streams)
        assert_same(expected, found)
        return expected


@pytest.fixture
def pair(spark: SparkSession, spark_kafka: KafkaCluster, tmp_path: Path) -> Callable[..., Pair]:
    def create(**options: str) -> Pair:
        servers = {"kafka.bootstrap.servers": spark_kafka.bootstrap, "includeHeaders": "true"}
        return Pair(spark, tmp_path / str(len(list(tmp_path.iterdir()))), {**servers, **options})

    return create


@pytest.mark.parametrize(
    "level", [pytest.param("read_uncommitted", marks=pytest.mark.long), "read_committed"]
)
def test_rows_equal_the_connectors_before_and_after_a_restart(
    spark_kafka: KafkaCluster, pair: Callable[..., Pair], level: str
) -> None:
    configs = {"max.message.bytes": 4 << 20}
    topic = spark_kafka.create_topic(None, 4, configs=configs)
    fill(spark_kafka.bootstrap, topic, EVERYTHING)
    both = pair(subscribe=topic, startingOffsets="earliest", **{"kafka.isolation.level": level})
    count = both.compare(maxOffsetsPerTrigger="150").num_rows
    assert count == 4 + 1 + 250 + 2 + 2 + 1 + 2 * (level == "read_uncommitted")
    fill(spark_kafka.bootstrap, topic, EVERYTHING)
    assert both.compare().num_rows == count
    assert both.compare().num_rows == 0


@pytest.mark.long
def test_rows_equal_the_connectors_from_given_offsets_and_in_partitions_that_are_added(
    spark_kafka: KafkaCluster, pair: Callable[..., Pair]
) -> None:
    topic = spark_kafka.create_topic(None, 2)
    sent = tuple(Sent(n % 2, value=b"%d" % n) for n in range(40))
    fill(spark_kafka.bootstrap, topic, [Step(sent)])
    both = pair(
        subscribePattern=f"{topic}.*", startingOffsets=json.dumps({topic: {"0": 15, "1": -1}})
    )
    assert both.compare().num_rows == 5
    other = spark_kafka.create_topic(f"{topic}-more", 3)
    fill(spark_kafka.bootstrap, other, [Step(tuple(Sent(n % 3, value=b"new") for n in range(9)))])
    fill(spark_kafka.bootstrap, topic, [Step(sent)])
    assert both.compare(minPartitions="9").num_rows == 9 + 40


def test_rows_equal_the_connectors_from_a_timestamp(
    spark_kafka: KafkaCluster, pair: Callable[..., Pair]
) -> None:
    topic = spark_kafka.create_topic(None, 2)
    sent = tuple(Sent(n % 2, value=b"%d" % n, timestamp=n * 1000) for n in range(40))
    fill(spark_kafka.bootstrap, topic, [Step(sent)])
    assert pair(subscribe=topic, startingTimestamp="25000").compare().num_rows == 15


@pytest.mark.long
@settings(
    max_examples=4 if os.environ.get("AIOKCLIENT_EXPLORE") is None else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps(3), steps(3))
def test_random_topics_are_read_the_same_before_and_after_a_restart(
    spark_kafka: KafkaCluster, pair: Callable[..., Pair], first: list[Step], second: list[Step]
) -> None:
    topic = spark_kafka.create_topic(None, 3)
    both = pair(
        subscribe=topic, startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"}
    )
    for written in (first, second):
        fill(spark_kafka.bootstrap, topic, written)
        both.compare()


@pytest.mark.long
def test_comparison_fails_where_a_stream_drops_a_row(
    spark_kafka: KafkaCluster, spark: SparkSession, pair: Callable[..., Pair], monkeypatch: Any
) -> None:
    from dropping_source import DroppingSource

    spark.dataSource.register(DroppingSource)
    monkeypatch.setitem(globals(), "OURS", "aiokclient_dropping")
    topic = spark_kafka.create_topic(None, 1)
    fill(spark_kafka.bootstrap, topic, [Step(tuple(Sent(0, value=b"v") for _ in range(10)))])
    both = pair(subscribe=topic, startingOffsets="earliest")
    with pytest.raises(AssertionError, match="10 rows, not 9"):
        both.compare()
