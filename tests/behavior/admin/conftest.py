"""Admin clients of an embedded cluster and of a real Kafka, and brokers that a test may stop."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Admin
from aiokclient.testing import EmbeddedCluster

# Only `make parity` compares all calls with those of Java, which takes minutes.
collect_ignore = [] if os.environ.get("AIOKCLIENT_PARITY") else ["test_calls_of_java.py"]


@pytest.fixture
async def admin(cluster_servers: Any) -> AsyncIterator[Admin]:
    """An admin client of the embedded cluster, and in another test of a real Kafka."""
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        yield admin


@pytest.fixture
def group() -> str:
    """The id of a group that does not exist."""
    return f"group-{uuid.uuid4().hex[:12]}"


class Brokers:
    """The brokers 1 to 3 of a cluster, which a test may stop."""

    def __init__(self, cluster: EmbeddedCluster | KafkaCluster) -> None:
        self.start = cluster.start
        self.is_real = not isinstance(cluster, EmbeddedCluster)
        if isinstance(cluster, EmbeddedCluster):
            self.servers, self.stop = cluster.bootstrap_servers, cluster.stop
        else:
            self.servers, self.stop = cluster.bootstrap, cluster.kill
            self._await_all = cluster.await_all_brokers

    async def await_all(self) -> None:
        """Wait until all brokers know what the controller has decided before.

        Each broker learns of it by itself, and a call may ask any of them.
        """
        if self.is_real:
            await asyncio.to_thread(self._await_all)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", "kafka3"])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    return Brokers(request.getfixturevalue(request.param))


@pytest.fixture(params=["embedded", "kafka3"])
def own_brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Three brokers of the test's own, which have no topics of other tests."""
    if request.param == "embedded":
        with EmbeddedCluster(brokers=3) as cluster:
            yield Brokers(cluster)
    else:
        request.getfixturevalue("java")
        # With a replica on each of three brokers, they could not leave one.
        topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        factors = {f"{name}.replication.factor": 2 for name in topics}
        with KafkaCluster(KAFKA, brokers=3, properties=factors) as kafka:
            yield Brokers(kafka)
