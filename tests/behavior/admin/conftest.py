"""Three brokers that a test may stop: of an embedded cluster, and of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient.testing import EmbeddedCluster


class Brokers:
    """The brokers 1 to 3 of a cluster, which a test may stop."""

    def __init__(self, servers: str, stop: Callable[[int], Any], start: Callable[[int], Any]):
        self.servers, self.stop, self.start = servers, stop, start


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", "kafka3"])
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    cluster = request.getfixturevalue(request.param)
    if request.param == "kafka3":
        yield Brokers(cluster.bootstrap, cluster.kill, cluster.start)
    else:
        yield Brokers(cluster.bootstrap_servers, cluster.stop, cluster.start)
