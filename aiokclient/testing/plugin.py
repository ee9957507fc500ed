"""Fixtures for pytest: a cluster for the session, and a fresh topic on it for each test.

    def test_orders(kafka_cluster, kafka_topic):
        kafka_cluster.produce(kafka_topic, [b"v"])

    @pytest.mark.kafka_topic(partitions=6, configs={"retention.bytes": 1 << 20})
    async def test_many(kafka_cluster, kafka_topic): ...

The cluster runs in a thread of its own, so that plain and async tests, and any event loop,
can use it. Loaded with every run of pytest where this package is installed, so nothing is
imported before it is asked for.
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
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=1, replication=None, configs={}): how the topic of the fixture "
        "kafka_topic is made",
    )


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers on loopback for the whole session.

    Faults that a test leaves behind are there for the next one: use them in `with` blocks, or
    end with `kafka_cluster.reset()`.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(brokers=_BROKERS) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that was made for this test alone; one partition unless marked."""
    marker = request.node.get_closest_marker("kafka_topic")
    options = {} if marker is None else dict(marker.kwargs)
    name = f"test-{next(_numbers)}"
    kafka_cluster.create_topic(name, **options)
    yield name
    if name in kafka_cluster.topics:
        kafka_cluster.delete_topic(name)
