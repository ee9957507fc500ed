"""Fixtures for pytest: an embedded cluster for the session, and a new topic for each test.

    def test_orders(kafka_cluster, kafka_topic):
        kafka_cluster.produce(kafka_topic, [b"v"])

    @pytest.mark.kafka_topic(partitions=6, configs={"retention.bytes": 1 << 20})
    async def test_many(kafka_cluster, kafka_topic): ...

    def test_one_broker(kafka_cluster_factory):
        cluster = kafka_cluster_factory(brokers=1, topics={"orders": 3})

After each test, the faults of its clusters are removed, and their brokers started.

A cluster runs in a thread of its own, so that synchronous and asynchronous tests can use it with
any event loop. pytest loads this module in every run where the package is installed, so the module
imports nothing before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokclient.testing.cluster import EmbeddedCluster

_BROKERS = 3
_FIXTURES = {"kafka_cluster", "kafka_cluster_factory"}
_numbers = count(1)
_running: list[EmbeddedCluster] = []
"""The clusters of the fixtures that are running."""
_of_test: list[EmbeddedCluster] = []
"""Those of them that are closed after the present test."""
_scopes: list[str] = []
"""The scopes of the fixtures that are being made, the innermost last."""


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

    Faults that a test does not remove end with the test: `kafka_cluster.reset()` is called after
    it. Topics, records, and groups stay.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    with EmbeddedCluster(brokers=_BROKERS) as cluster:
        _running.append(cluster)
        yield cluster
        _running.remove(cluster)


@pytest.fixture(scope="session")
def kafka_cluster_factory() -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts an embedded cluster with the options of `EmbeddedCluster`.

    A cluster that a test, or a fixture of one test, has started is closed after that test. One that
    a fixture of a larger scope has started is closed at the end of the session.
    """
    from aiokclient.testing.cluster import EmbeddedCluster

    def start(**options: Any) -> EmbeddedCluster:
        cluster = EmbeddedCluster(**options)
        cluster.start()
        _running.append(cluster)
        if not _scopes or _scopes[-1] == "function":
            _of_test.append(cluster)
        else:
            lasting.append(cluster)
        return cluster

    lasting: list[EmbeddedCluster] = []
    yield start
    for cluster in lasting:
        _running.remove(cluster)
        cluster.close()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
) -> Generator[None, object, object]:
    """Note the scope of the fixture that is being made, for `kafka_cluster_factory`."""
    _scopes.append(fixturedef.scope)
    try:
        return (yield)
    finally:
        _scopes.pop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Close the clusters of a test, and remove the faults from those that stay."""
    try:
        return (yield)
    finally:
        while _of_test:
            cluster = _of_test.pop()
            _running.remove(cluster)
            cluster.close()
        if _FIXTURES & set(getattr(item, "fixturenames", ())):
            for cluster in _running:
                cluster.reset()


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
