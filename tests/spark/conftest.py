"""Fixtures for tests with Spark, which only an environment with pyspark collects (`make spark`).

One Spark session serves all tests. It has Spark's own Kafka connector, with which results are
compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_harness import KafkaCluster
    from pyspark.sql import SparkSession
    from secured_kafka import Certificates

    from aiokclient.testing import EmbeddedCluster

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

# Spark's virtual machines, including those of processes that tests start, run for minutes only, so
# optimizing compilers would take more time than they save.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

HERE = Path(__file__).parent
LONGEST = [HERE / f"test_{name}.py" for name in ("exactly_once", "broken_batches", "telemetry")]
"""The slowest test files. If workers begin with these, all workers end at about the same time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that take longest first."""
    order = {path: index for index, path in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java: str) -> Iterator[SparkSession]:
    """A session with two threads, Spark's Kafka connector, and this checkout's data source."""
    from spark_session import create

    session = create(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificates of the broker's listener SECURED."""
    from secured_kafka import Certificates

    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def spark_kafka(java: str, certificates: Certificates) -> Iterator[KafkaCluster]:
    """One real broker, whose compaction and retention take effect within a fraction of a second.

    Its listener SECURED requires TLS and SCRAM.
    """
    from kafka_harness import KAFKA, KafkaCluster
    from secured_kafka import JAAS

    login = "listener.name.secured."
    properties = {
        "log.cleaner.backoff.ms": 100,
        "log.retention.check.interval.ms": 200,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.broker,
        f"{login}sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{login}scram-sha-512.sasl.jaas.config": JAAS["scram-sha-512"],
    }
    listeners = {"SECURED": "SASL_SSL"}
    with KafkaCluster(KAFKA, properties=properties, listeners=listeners) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    """An embedded cluster that the tests of a file share, with one broker and no topics."""
    from aiokclient.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster
