"""Fixtures for tests with Spark, which only an environment with pyspark collects (`make spark`).

One Spark session serves all tests. It has Spark's own Kafka connector, with which results are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_harness import KafkaCluster
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java: str) -> Iterator[SparkSession]:
    """A session with two threads, Spark's Kafka connector, and this checkout's data source."""
    from spark_session import create

    session = create(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_kafka(java: str) -> Iterator[KafkaCluster]:
    """One real broker that compacts and deletes soon."""
    from kafka_harness import KAFKA, KafkaCluster

    properties = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 200}
    with KafkaCluster(KAFKA, properties=properties) as cluster:
        yield cluster
