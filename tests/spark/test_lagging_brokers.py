"""A broker that lags for a moment: no query ends early or fails because of one wrong answer.

The broker of an embedded cluster returns end offsets, or topics, as they were earlier, for a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from aiokclient.errors import ConfigError, KafkaError
from aiokclient.protocol import ApiKey
from aiokclient.spark.source.batch import batch_reader
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.stream import stream_reader
from aiokclient.testing import EmbeddedCluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = StructType().add("value", "binary")
LAGS = pytest.mark.parametrize("lag", [0.15, 1.2])
OLD_END = 3


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        cluster.produce("orders", [b"%d" % n for n in range(10)], 0)
        yield cluster


@contextmanager
def lagging(cluster: EmbeddedCluster, seconds: float) -> Iterator[None]:
    """Let the log end at `OLD_END` for some seconds, from the first request for its end."""
    until = 0.0

    def change(request: Any, response: Any) -> Any:
        nonlocal until
        until = until or time.monotonic() + seconds
        if time.monotonic() < until:
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.offset = min(partition.offset, OLD_END)
        return response

    def is_late(request: Any) -> bool:
        return any(p.timestamp != -2 for topic in request.topics for p in topic.partitions)

    with cluster.alter(ApiKey.LIST_OFFSETS, change, where=is_late):
        yield


def options(cluster: EmbeddedCluster, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders", **more}


def planned(cluster: EmbeddedCluster, **more: str) -> list[tuple[int, int]]:
    """Return the ranges that a batch query reads."""
    parsed = SourceOptions.parse(options(cluster, **more), streaming=False)
    found = batch_reader(parsed, SCHEMA).partitions()
    return [(part.value.start, part.value.end) for part in found]


@LAGS
@pytest.mark.parametrize("available_now", [False, True])
def test_stream_reads_all_rows_after_its_position_if_the_broker_lags(
    cluster: EmbeddedCluster, lag: float, available_now: bool
) -> None:
    source = stream_reader(options(cluster, startingOffsets="earliest"), SCHEMA)
    first = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    cluster.produce("orders", [b"%d" % n for n in range(10, 15)], 0)
    again = stream_reader(options(cluster, startingOffsets="earliest"), SCHEMA)
    with lagging(cluster, lag):
        if available_now:
            again.prepareForTriggerAvailableNow()
        end = again.latestOffset(first, again.getDefaultReadLimit())
    found = [(part.value.start, part.value.end) for part in again.partitions(first, end)]
    assert found == [(10, 15)]


@LAGS
def test_batch_query_from_an_offset_reads_all_rows_if_the_broker_lags(
    cluster: EmbeddedCluster, lag: float
) -> None:
    for more in (
        {},
        {"failOnDataLoss": "false"},
        {"endingOffsets": '{"orders": {"0": 9}}'},
        {"endingOffsets": '{"orders": {"0": 9}}', "failOnDataLoss": "false"},
    ):
        with lagging(cluster, lag):
            found = planned(cluster, startingOffsets='{"orders": {"0": 5}}', **more)
        assert found == [(5, 9 if "endingOffsets" in more else 10)]


def test_batch_query_whose_start_does_not_exist_is_refused_after_three_looks(
    cluster: EmbeddedCluster,
) -> None:
    before = len([each for each in cluster.requests if each.api == ApiKey.LIST_OFFSETS])
    with pytest.raises(KafkaError, match="the start of orders-0 is 50"):
        planned(cluster, startingOffsets='{"orders": {"0": 50}}')
    looks = len([each for each in cluster.requests if each.api == ApiKey.LIST_OFFSETS]) - before
    assert looks >= 3


def test_topic_that_is_created_a_moment_later_is_read(cluster: EmbeddedCluster) -> None:
    async def create() -> list[tuple[int, int]]:
        planning = asyncio.create_task(asyncio.to_thread(planned, cluster, subscribe="late"))
        async with asyncio.timeout(30):
            while True:
                if any(each.api == ApiKey.METADATA for each in cluster.requests):
                    break
                await asyncio.sleep(0.01)
        cluster.create_topic("late", 1)
        cluster.produce("late", [b"v"], 0)
        return await planning

    assert asyncio.run(create()) == [(0, 1)]
    with pytest.raises(ConfigError, match="the topic never does not exist"):
        planned(cluster, subscribe="never")


def test_timestamp_whose_record_a_lagging_broker_does_not_have_is_no_error(
    cluster: EmbeddedCluster,
) -> None:
    def change(request: Any, response: Any) -> Any:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.offset, partition.timestamp = -1, -1
        return response

    def is_search(request: Any) -> bool:
        return any(p.timestamp >= 0 for topic in request.topics for p in topic.partitions)

    with cluster.alter(ApiKey.LIST_OFFSETS, change, where=is_search, times=1) as fault:
        assert planned(cluster, startingTimestamp="1") == [(0, 10)]
    assert fault.hits == 1


@LAGS
def test_available_now_query_reads_all_rows_if_the_broker_lags(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, lag: float
) -> None:
    from spark_streams import Stream

    stream = Stream(spark, tmp_path / "checkpoint", options(cluster, startingOffsets="earliest"))
    assert len(stream.run()) == 10
    cluster.produce("orders", [b"%d" % n for n in range(10, 15)], 0)
    with lagging(cluster, lag):
        assert [row[2] for row in stream.run()] == [10, 11, 12, 13, 14]


def test_topic_that_a_broker_does_not_know_at_first_is_read(cluster: EmbeddedCluster) -> None:
    """The description says that there is no such topic, and the list that follows has it."""

    def forget(request: Any, response: Any) -> Any:
        for topic in response.topics:
            topic.error_code, topic.partitions = 3, []
        return response

    def names_topics(request: Any) -> bool:
        return bool(request.topics)

    with cluster.alter(ApiKey.METADATA, forget, where=names_topics, times=1):
        assert planned(cluster) == [(0, 10)]
