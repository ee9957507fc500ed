"""Unusual topics, ranges, and queries: the results equal those of Spark's Kafka connector.

The tests also show where the connector fails, or silently reads nothing.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from spark_results import assert_same, result
from spark_streams import Stream, StreamFailure

from aiokclient import Client, DetachedTransaction, Producer
from aiokclient.testing import EmbeddedCluster

Options = dict[str, str]


@pytest.fixture
def cluster(brokers: EmbeddedCluster) -> EmbeddedCluster:
    for name in brokers.topics:
        brokers.delete_topic(name)
    brokers.create_topic("orders", 2)
    brokers.create_topic("bills", 1)
    return brokers


@pytest.fixture
def options(cluster: EmbeddedCluster) -> Options:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders"}


def rows_of(spark: Any, source: str, options: Options) -> Any:
    return result(spark.read.format(source).options(**options).load())


def same(spark: Any, options: Options) -> int:
    """Check that the rows equal those of the connector, and return their number."""
    expected = rows_of(spark, "kafka", options)
    assert_same(expected, rows_of(spark, "aiokclient", options))
    return int(expected.num_rows)


def write(cluster: EmbeddedCluster, topic: str, count: int, partition: int = 0) -> None:
    cluster.produce(topic, [b"%d" % number for number in range(count)], partition)


async def _open(cluster: EmbeddedCluster, count: int) -> DetachedTransaction:
    options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "writer"}
    async with Producer(**options) as producer:
        tx = producer.transaction()
        await tx.__aenter__()
        for number in range(count):
            tx.send("orders", b"%d" % number, partition=0)
        return await tx.detach()


async def _end(cluster: EmbeddedCluster, transaction: DetachedTransaction) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        await client.end_transaction(transaction)


def begin(cluster: EmbeddedCluster, count: int = 5) -> Callable[[], None]:
    """Write records in a transaction, and return a function that commits it."""
    transaction = asyncio.run(_open(cluster, count))
    return lambda: asyncio.run(_end(cluster, transaction))


# -- batch queries


def test_pattern_without_a_topic_reads_nothing(spark: Any, options: Options) -> None:
    del options["subscribe"]
    assert same(spark, {**options, "subscribePattern": "nothing-.*"}) == 0


def test_topic_with_only_tombstones_has_rows_without_values(
    spark: Any, cluster: EmbeddedCluster, options: Options
) -> None:
    cluster.produce("orders", [(b"k", None), (b"l", None)], 0)
    assert same(spark, options) == 2


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_open_transaction_at_the_end_of_the_range_is_read_as_its_level_says(
    spark: Any, cluster: EmbeddedCluster, options: Options, level: str
) -> None:
    write(cluster, "orders", 3)
    commit = begin(cluster)
    options["kafka.isolation.level"] = level
    assert same(spark, options) == (3 if level == "read_committed" else 8)
    commit()
    assert same(spark, options) == 8
    # The range contains only the commit marker, which is not delivered as a record.
    only_marker = {
        "startingOffsets": json.dumps({"orders": {"0": 8, "1": 0}}),
        "endingOffsets": json.dumps({"orders": {"0": 9, "1": 0}}),
    }
    assert same(spark, {**options, **only_marker}) == 0


def test_timestamps_around_an_open_transaction_are_no_error(
    spark: Any, cluster: EmbeddedCluster, options: Options
) -> None:
    commit = begin(cluster)
    options["kafka.isolation.level"] = "read_committed"
    times = {"startingTimestamp": "1", "endingTimestamp": str(1 << 44)}
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    ours = rows_of(spark, "aiokclient", {**options, **times, **strategy})
    assert ours.num_rows == 0
    within = {"startingOffsets": json.dumps({"orders": {"0": 2, "1": 0}})}
    assert rows_of(spark, "aiokclient", {**options, **within}).num_rows == 0
    commit()
    assert same(spark, {**options, **times, **strategy}) == 5


@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_starting_timestamp_beyond_the_end_follows_the_strategy(
    spark: Any, cluster: EmbeddedCluster, options: Options, strategy: str
) -> None:
    write(cluster, "orders", 3)
    late = json.dumps({"orders": {"0": 1 << 44, "1": 1 << 44}})
    options["startingOffsetsByTimestamp"] = late
    options["startingOffsetsByTimestampStrategy"] = strategy
    if strategy == "latest":
        assert same(spark, options) == 0
        return
    for source in ("kafka", "aiokclient"):
        with pytest.raises(PySparkException, match=str(1 << 44)):
            rows_of(spark, source, options)


def test_ending_timestamp_before_the_start_is_an_error(
    spark: Any, cluster: EmbeddedCluster, options: Options
) -> None:
    write(cluster, "orders", 3)
    write(cluster, "orders", 3, 1)
    times = {"startingTimestamp": "200", "endingTimestamp": "100"}
    with pytest.raises(
        PySparkException,
        match=r"endingTimestamp: the end of orders-0 is the timestamp 100, before its start at 200",
    ):
        rows_of(spark, "aiokclient", {**options, **times})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_range_before_the_start_of_the_log_follows_the_option(
    spark: Any, cluster: EmbeddedCluster, options: Options, fail: str
) -> None:
    write(cluster, "orders", 10)
    cluster.delete_records("orders", 0, before=6)
    end = {"endingOffsets": json.dumps({"orders": {"0": 4, "1": 0}}), "failOnDataLoss": fail}
    if fail == "false":
        assert rows_of(spark, "aiokclient", {**options, **end}).num_rows == 0
        return
    with pytest.raises(
        PySparkException,
        match=r"endingOffsets: the end of orders-0 is 4\. Its log has the offsets 6 to 10\. ",
    ):
        rows_of(spark, "aiokclient", {**options, **end})


def test_ranges_are_split_by_both_options(
    spark: Any, cluster: EmbeddedCluster, options: Options
) -> None:
    write(cluster, "orders", 23)
    write(cluster, "orders", 2, 1)
    options |= {"minPartitions": "9", "maxRecordsPerPartition": "4"}
    frame = spark.read.format("aiokclient").options(**options).load()
    assert frame.rdd.getNumPartitions() == 9
    assert same(spark, options) == 25


# -- streams


def stream(spark: Any, folder: Path, options: Options) -> Stream:
    return Stream(spark, folder / "checkpoint", {"startingOffsets": "earliest", **options})


def read(rows: list[tuple[str, int, int, str]]) -> dict[str, int]:
    """Return the number of rows of each topic."""
    return {topic: sum(row[0] == topic for row in rows) for topic in {row[0] for row in rows}}


@pytest.mark.long
def test_pattern_without_a_topic_reads_those_that_are_created_later(
    spark: Any, cluster: EmbeddedCluster, options: Options, tmp_path: Path
) -> None:
    del options["subscribe"]
    query = stream(spark, tmp_path, {**options, "subscribePattern": "new-.*"})
    assert query.run(startingOffsets="latest") == []
    cluster.create_topic("new-1", 1)
    write(cluster, "new-1", 4)
    assert read(query.run(startingOffsets="latest")) == {"new-1": 4}


@pytest.mark.long
def test_restart_with_more_topics_reads_them_and_with_fewer_is_an_error(
    spark: Any, cluster: EmbeddedCluster, options: Options, tmp_path: Path
) -> None:
    write(cluster, "orders", 4)
    write(cluster, "bills", 2)
    query = stream(spark, tmp_path, options)
    assert read(query.run()) == {"orders": 4}
    write(cluster, "orders", 1)
    assert read(query.run(subscribe="orders,bills")) == {"orders": 1, "bills": 2}
    with pytest.raises(StreamFailure, match="bills-0 up to offset 2, and the partition is gone"):
        query.run()
    write(cluster, "orders", 3)
    assert read(query.run(failOnDataLoss="false")) == {"orders": 3}


@pytest.mark.long
def test_start_within_an_open_transaction_is_read_when_it_is_committed(
    spark: Any, cluster: EmbeddedCluster, options: Options, tmp_path: Path
) -> None:
    commit = begin(cluster)
    starts = json.dumps({"orders": {"0": 2, "1": 0}})
    options |= {"startingOffsets": starts, "kafka.isolation.level": "read_committed"}
    query = stream(spark, tmp_path, options)
    assert query.run() == []
    commit()
    assert [row[2] for row in query.run()] == [2, 3, 4]


def test_topic_that_is_deleted_after_the_plan_is_named_by_the_error(
    spark: Any, cluster: EmbeddedCluster, options: Options, tmp_path: Path
) -> None:
    write(cluster, "orders", 4)
    query = stream(spark, tmp_path, {**options, "kafka.default.api.timeout.ms": "2000"})
    with pytest.raises(StreamFailure) as raised:
        query.run(planned=lambda _: cluster.delete_topic("orders"))
    assert "for orders-0: " in raised.value.first_line
    assert "The task reads the offsets 0 to 3. " in raised.value.first_line


@pytest.mark.long
def test_two_sources_of_a_query_and_two_queries_of_a_session_read_all_records(
    spark: Any, cluster: EmbeddedCluster, options: Options, tmp_path: Path
) -> None:
    write(cluster, "orders", 30)
    write(cluster, "bills", 20)
    options["startingOffsets"] = "earliest"
    sources = [
        spark.readStream.format("aiokclient").options(**{**options, "subscribe": name}).load()
        for name in ("orders", "bills", "orders")
    ]
    union = sources[0].union(sources[1]).union(sources[2])
    counts: dict[str, int] = {}

    def start(name: str, frame: Any) -> Any:
        def add(rows: Any, batch: int) -> None:
            counts[name] = counts.get(name, 0) + rows.count()

        writer = frame.writeStream.foreachBatch(add).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    for _ in range(2):
        for query in [start("union", union), start("single", sources[0])]:
            query.awaitTermination()
    assert counts == {"union": 80, "single": 30}
