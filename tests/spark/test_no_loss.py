"""A stream never loses records silently: its result is right, or an error names the missing data.

Each test runs a query for a while, changes the log or the checkpoint, and runs the query again with
the same checkpoint. The logs are those of an embedded cluster.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_streams import Rows, Stream, StreamFailure

from aiokclient.spark.convert import convert
from aiokclient.testing import EmbeddedCluster

TOPIC = "orders"


@pytest.fixture
def cluster(brokers: EmbeddedCluster) -> EmbeddedCluster:
    for name in brokers.topics:
        brokers.delete_topic(name)
    brokers.create_topic(TOPIC, 2)
    return brokers


@pytest.fixture
def stream(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> Stream:
    return Stream(
        spark,
        tmp_path / "checkpoint",
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        },
    )


def write(cluster: EmbeddedCluster, count: int, partition: int = 0, topic: str = TOPIC) -> Rows:
    """Append records, and return them as rows."""
    first = (
        len(cluster.records(topic, partition)) and 1 + cluster.records(topic, partition)[-1].offset
    )
    values = [b"%d-%d" % (partition, first + number) for number in range(count)]
    placed = cluster.produce(topic, values, partition)
    return sorted(
        (topic, partition, at.offset, value.decode())
        for at, value in zip(placed, values, strict=True)
    )


def recreate(cluster: EmbeddedCluster) -> tuple[str, str]:
    """Delete the topic and create it again. Return both ids."""
    old = str(cluster.topic_id(TOPIC))
    cluster.delete_topic(TOPIC)
    cluster.create_topic(TOPIC, 2)
    return old, str(cluster.topic_id(TOPIC))


def test_a_restarted_stream_reads_each_record_once(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    first = write(cluster, 30) + write(cluster, 20, 1)
    assert stream.run(maxOffsetsPerTrigger="20") == first
    second = write(cluster, 10)
    assert stream.run() == second
    assert stream.run() == []


@pytest.mark.long
def test_a_first_batch_that_was_planned_from_latest_and_crashed_is_repeated_from_there(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    # When Spark asks for the initial offset again, "latest" is after the end of the planned batch.
    # Without the source's own check, the records in between would be lost.
    write(cluster, 1000)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True, startingOffsets="latest")
    assert (stream.planned(), stream.committed()) == ([0], [])
    missed = write(cluster, 100)
    assert stream.run(startingOffsets="latest") == missed


def test_a_first_batch_with_records_that_crashed_is_repeated_as_planned(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    planned = write(cluster, 50)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True)
    later = write(cluster, 50)
    # The new startingOffsets, which would leave out records, no longer matter.
    batches = stream.batches(startingOffsets='{"orders": {"0": 80, "1": 0}}')
    assert batches == [planned, later]


@pytest.mark.long
def test_a_planned_batch_without_its_starting_offsets_is_an_error(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 50)
    with pytest.raises(StreamFailure):
        stream.run(crash=True)
    stream.edit(0, lambda document: {**document, "starts": {}})
    with pytest.raises(StreamFailure, match=r"starting offsets of its first batch for orders-0"):
        stream.run()


def test_a_start_beyond_the_end_of_the_log_is_an_error_and_not_an_empty_batch(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 1100)
    with pytest.raises(StreamFailure) as raised:
        stream.run(startingOffsets='{"orders": {"0": 5000, "1": 0}}')
    assert "orders-0 is offset 5000, and its log ends at offset 1100." in raised.value.first_line
    assert stream.planned() == []


@pytest.mark.parametrize("fail", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_retention_that_overtakes_the_query_follows_the_option(
    stream: Stream, cluster: EmbeddedCluster, fail: str
) -> None:
    write(cluster, 10)
    stream.run()
    later = write(cluster, 30)
    cluster.delete_records(TOPIC, 0, before=25)
    if fail == "false":
        assert stream.run(failOnDataLoss=fail) == later[15:]
        return
    for _ in range(2):
        with pytest.raises(
            StreamFailure, match=r"orders-0 from offset 10 to 24 were deleted .* 25"
        ):
            stream.run(failOnDataLoss=fail)


@pytest.mark.parametrize(
    ("length", "fail"),
    [
        (500, "true"),
        pytest.param(5, "true", marks=pytest.mark.long),
        pytest.param(500, "false", marks=pytest.mark.long),
        pytest.param(5, "false", marks=pytest.mark.long),
    ],
)
def test_a_topic_created_again_under_its_name_is_recognized(
    stream: Stream, cluster: EmbeddedCluster, length: int, fail: str
) -> None:
    write(cluster, 100)
    stream.run()
    old, new = recreate(cluster)
    rows = write(cluster, length)
    if fail == "false":
        assert stream.run(failOnDataLoss=fail) == rows
        assert stream.run() == []
        return
    with pytest.raises(StreamFailure) as raised:
        stream.run()
    for part in (
        f"its id was {old}, and is {new} now",
        "orders-0 up to offset 100",
        f"ends at {length}",
    ):
        assert part in raised.value.first_line


@pytest.mark.long
def test_a_topic_created_again_after_a_batch_was_planned_is_recognized(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 100)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True)
    old, new = recreate(cluster)
    rows = write(cluster, 200)
    with pytest.raises(StreamFailure, match=f"its id was {old}, and is {new} now"):
        stream.run()
    assert stream.run(failOnDataLoss="false") == rows


def test_partitions_added_while_the_query_runs_are_read_from_their_first_offset(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    first = write(cluster, 10)
    with stream.running() as query:
        query.wait_for(first)
        cluster.add_partitions(TOPIC, 4)
        added = write(cluster, 5, 2) + write(cluster, 6, 3)
        query.wait_for(first + added)
    more = write(cluster, 3, 3)
    assert stream.run() == more


@pytest.mark.long
def test_partitions_added_between_two_runs_are_read_from_their_first_offset(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 10)
    stream.run(startingOffsets="latest")
    cluster.add_partitions(TOPIC, 3)
    added = write(cluster, 5, 2)
    assert stream.run(startingOffsets="latest") == added


@pytest.mark.long
@pytest.mark.parametrize("fail", ["true", "false"])
def test_offsets_in_the_checkpoint_that_are_ahead_of_the_log_follow_the_option(
    stream: Stream, cluster: EmbeddedCluster, fail: str
) -> None:
    write(cluster, 100)
    stream.run()
    cluster.truncate(TOPIC, 0, to=0)
    write(cluster, 40)
    if fail == "true":
        with pytest.raises(
            StreamFailure, match=r"orders-0 up to offset 100, and its log ends at .* 40"
        ):
            stream.run()
        return
    assert stream.run(failOnDataLoss="false") == []
    later = write(cluster, 5)
    assert stream.run(failOnDataLoss="false") == later


@pytest.mark.long
def test_a_planned_batch_beyond_the_end_of_the_log_is_an_error(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 100)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True)
    cluster.truncate(TOPIC, 0, to=0)
    rows = write(cluster, 40)
    with pytest.raises(
        StreamFailure, match=r"orders-0 up to offset 100, and its log ends at offset 40"
    ):
        stream.run()
    assert stream.run(failOnDataLoss="false") == rows


@pytest.mark.long
def test_a_checkpoint_of_another_topic_is_an_error(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 10)
    stream.run()
    cluster.create_topic("other", 1)
    rows = write(cluster, 5, topic="other")
    with pytest.raises(StreamFailure, match=r"orders-0 up to offset 10, and the partition is gone"):
        stream.run(subscribe="other")
    assert stream.run(subscribe="other", failOnDataLoss="false") == rows


@pytest.mark.long
def test_a_checkpoint_of_a_newer_version_is_refused(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 10)
    stream.run()
    stream.edit(0, lambda document: {**document, "version": 2})
    with pytest.raises(StreamFailure, match=r"have the version 2, .* reads versions up to 1"):
        stream.run()


def test_a_checkpoint_of_the_connector_is_refused_until_it_is_converted(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    stream.options["format"] = "kafka"
    first = write(cluster, 10)
    assert stream.run() == first
    planned = write(cluster, 20)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True)
    later = write(cluster, 5) + write(cluster, 5, 1)
    stream.options["format"] = "aiokclient"
    with pytest.raises(StreamFailure, match=r"python -m aiokclient\.spark\.convert CHECKPOINT"):
        stream.run()
    convert(stream.checkpoint)
    assert stream.batches() == [planned, later]
    assert stream.run() == []


@pytest.mark.long
def test_a_first_batch_of_the_connector_is_repeated_as_planned_after_the_conversion(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    stream.options["format"] = "kafka"
    rows = write(cluster, 20)
    with pytest.raises(StreamFailure, match=r"crash"):
        stream.run(crash=True, startingOffsets='{"orders": {"0": 5, "1": 0}}')
    stream.options["format"] = "aiokclient"
    convert(stream.checkpoint)
    assert stream.run() == rows[5:]


@pytest.mark.long
def test_the_offsets_in_the_checkpoint_are_readable(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 10)
    stream.run()
    assert json.loads(stream.line(0)) == {
        "version": 1,
        "topics": {
            TOPIC: {"id": str(cluster.topic_id(TOPIC)), "offsets": {"0": 10, "1": 0}},
        },
        "starts": {TOPIC: {"0": 0, "1": 0}},
    }


def test_offsets_are_committed_to_a_group_for_tools_that_show_lag(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    write(cluster, 10)
    stream.run(**{"commitOffsets": "group", "kafka.group.id": "billing"})
    found: Callable[[], Any] = lambda: {  # noqa: E731
        tp.partition: at.offset for tp, at in cluster.committed("billing").items()
    }
    cluster.wait_for(lambda: found() == {0: 10, 1: 0}, 10)
