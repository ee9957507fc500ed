"""Fixtures for pytest: an embedded cluster for the session, and a new topic for each test.

    def test_orders(kafka_cluster, kafka_topic):
        kafka_cluster.produce(kafka_topic, [b"v"])

    @pytest.mark.kafka_topic(partitions=6, configs={"retention.bytes": 1 << 20})
    async def test_many(kafka_cluster, kafka_topic): ...

The cluster runs in a thread of its own, so that synchronous and asynchronous tests can use it with
any event loop. pytest loads this module in every run where the package is installed, so the module
imports nothing before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aiokclient.testing.cluster import EmbeddedCluster

_BROKERS = 3
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `kafka_topic`."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=1, replication=None, configs={}): how the topic of the fixture "
        "kafka_topic is made",
    )


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[EmbeddedCluster]:
    """An embedded cluster of three brokers on loopback, for the whole session.

    Faults that a test does not remove also affect the next test. Use them in `with` blocks, or
    end the test with `kafka_cluster.reset()`.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(brokers=_BROKERS) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic for this test only, with one partition unless the marker says more."""
    marker = request.node.get_closest_marker("kafka_topic")
    options = {} if marker is None else dict(marker.kwargs)
    name = f"test-{next(_numbers)}"
    kafka_cluster.create_topic(name, **options)
    yield name
    if name in kafka_cluster.topics:
        kafka_cluster.delete_topic(name)
