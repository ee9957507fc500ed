"""One broker for all tests of the producer and the client, used through public names only."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient import Producer
from aiokclient.testing import EmbeddedCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def one_broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(one_broker: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """The shared cluster, which is repaired after each test."""
    yield one_broker
    one_broker.resume(1)
    one_broker.reset()


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    """A topic of the test's own, with one partition."""
    name = f"own-{next(_numbers)}"
    cluster.create_topic(name)
    return name


@pytest.fixture
def wide(cluster: EmbeddedCluster) -> str:
    """A topic of the test's own, with four partitions."""
    name = f"wide-{next(_numbers)}"
    cluster.create_topic(name, 4)
    return name


@pytest.fixture
def make(cluster: EmbeddedCluster) -> Callable[..., Producer[Any, Any]]:
    """Create producers of the cluster with the given options."""

    def make(**options: Any) -> Producer[Any, Any]:
        return Producer(**{"bootstrap_servers": cluster.bootstrap_servers, **options})

    return make


@pytest.fixture
def values(cluster: EmbeddedCluster) -> Callable[[str], list[bytes | None]]:
    """Return the values of a topic, partition by partition."""
    return lambda topic: [record.value for record in cluster.records(topic)]
