"""One cluster for all tests of wrong use, and clients of it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from aiokclient import Consumer, Producer
from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
async def producer(servers: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.prepare("orders")
        yield producer


@pytest.fixture
async def consumer(servers: str) -> AsyncIterator[Consumer]:
    async with Consumer("orders", bootstrap_servers=servers) as consumer:
        yield consumer
