"""Tests of the reader that Spark calls on the driver: requests, limits, and metrics."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from aiokclient.errors import BootstrapError, GroupAuthorizationError
from aiokclient.protocol import ApiKey
from aiokclient.spark import clients
from aiokclient.spark.source.stream import StreamReader, stream_reader
from aiokclient.testing import EmbeddedCluster

SCHEMA = StructType().add("value", "binary")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster:
        cluster.produce("orders", [b"v"] * 10, 0)
        yield cluster


def reader(cluster: EmbeddedCluster, **options: str) -> StreamReader:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    chosen = {"subscribe": "orders", "startingOffsets": "earliest", **servers, **options}
    return stream_reader(chosen, SCHEMA)


def advance(source: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return source.latestOffset(start, source.getDefaultReadLimit())


def reached(end: dict[str, Any]) -> dict[str, int]:
    offsets: dict[str, int] = end["topics"]["orders"]["offsets"]
    return offsets


def test_the_limits_of_the_options_are_those_that_spark_passes(cluster: EmbeddedCluster) -> None:
    assert reader(cluster).getDefaultReadLimit() == ReadAllAvailable()
    both = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "7"}
    assert reader(cluster, **both).getDefaultReadLimit() == ReadMaxRows(7)
    assert reader(cluster, minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)


def test_a_limit_is_not_applied_where_spark_wants_everything(cluster: EmbeddedCluster) -> None:
    source = reader(cluster, maxOffsetsPerTrigger="4")
    assert reached(advance(source, source.initialOffset())) == {"0": 4, "1": 0}
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert reached(end) == {"0": 10, "1": 0}


def test_an_idle_query_requests_end_offsets_every_100_ms_at_most(
    cluster: EmbeddedCluster,
) -> None:
    source = reader(cluster)
    end = advance(source, source.initialOffset())
    before = len([each for each in cluster.requests if each.api == ApiKey.LIST_OFFSETS])
    started = time.monotonic()
    for _ in range(50):
        assert advance(source, end) is end
    periods = (time.monotonic() - started) / 0.1
    asked = len([each for each in cluster.requests if each.api == ApiKey.LIST_OFFSETS]) - before
    assert asked <= periods + 1


def test_the_offsets_are_the_same_text_after_spark_has_stored_them(
    cluster: EmbeddedCluster,
) -> None:
    source = reader(cluster)
    end = advance(source, source.initialOffset())
    stored = json.loads(json.dumps(end))
    assert json.dumps(advance(reader(cluster), stored)) == json.dumps(end)
    assert json.dumps(advance(source, stored)) == json.dumps(end)


def test_first_plan_stores_latest_although_there_is_nothing_to_read(
    cluster: EmbeddedCluster,
) -> None:
    source = reader(cluster, startingOffsets="latest")
    start = source.initialOffset()
    end = advance(source, start)
    assert end != start, "Spark stores an end that differs from the start."
    assert reached(end) == end["starts"]["orders"] == {"0": 10, "1": 0}
    cluster.produce("orders", [b"v"] * 5, 0)
    # A query that is started again with the stored plan reads from the stored offset.
    again = reader(cluster, startingOffsets="latest")
    assert again.partitions(again.initialOffset(), end) == []
    after = advance(again, end)
    assert [part.value.start for part in again.partitions(end, after)] == [10]
    # Without a stored plan, the query starts at the end again, as the documentation says.
    lost = reader(cluster, startingOffsets="latest")
    assert reached(advance(lost, lost.initialOffset())) == {"0": 15, "1": 0}


def test_progress_is_a_metric_of_the_client(cluster: EmbeddedCluster) -> None:
    source = reader(cluster, maxOffsetsPerTrigger="4")
    start = source.initialOffset()
    end = advance(source, start)
    source.partitions(start, end)
    report = source.reportLatestOffset()
    assert report is not None
    assert reached(report) == {"0": 10, "1": 0}
    found: dict[str, float] = {}

    async def pushed(client: Any) -> None:
        found.update({each.name: each.source() for each in client._cluster.application_metrics})

    clients.run(source._options.properties, pushed)
    assert found == {
        "spark.stream.lag.total": 6,
        "spark.stream.lag.max": 6,
        "spark.stream.batches": 1,
    }


def test_a_completed_batch_is_committed_to_the_group_once(cluster: EmbeddedCluster) -> None:
    source = reader(cluster, **{"commitOffsets": "group", "kafka.group.id": "billing"})
    end = advance(source, source.initialOffset())
    assert not cluster.committed("billing")
    source.commit(end)
    advance(source, end)
    committed = {tp.partition: at.offset for tp, at in cluster.committed("billing").items()}
    assert committed == {0: 10, 1: 0}
    commits = [each for each in cluster.requests if each.api == ApiKey.OFFSET_COMMIT]
    assert len(commits) == 1


def test_a_commit_that_is_refused_is_logged_and_the_query_continues(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = reader(cluster, **{"commitOffsets": "group", "kafka.group.id": "billing"})
    end = advance(source, source.initialOffset())
    with (
        caplog.at_level(logging.WARNING),
        cluster.fail(ApiKey.OFFSET_COMMIT, GroupAuthorizationError),
    ):
        source.commit(end)
    assert "not committed to the group billing" in caplog.text
    assert advance(source, end) is end


def test_brokers_that_cannot_be_reached_are_named_after_the_api_timeout() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": "300",
        "subscribe": "orders",
    }
    source = stream_reader(options, SCHEMA)
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        advance(source, source.initialOffset())
