"""Fixtures: clients that are connected to scripted brokers."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scripted import ScriptedBroker

from aiokclient.cluster.client import ClusterClient
from aiokclient.config.client import ClientConfig

QUICK = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def quick() -> dict[str, Any]:
    """Return options that make a client retry without delay."""
    return dict(QUICK)


@pytest.fixture
async def open_client(broker: ScriptedBroker) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that opens clients of the scripted broker.

    The clients are closed after the test.
    """
    opened: list[ClusterClient] = []

    async def made(**options: Any) -> ClusterClient:
        config = ClientConfig(**{"bootstrap_servers": broker.address, **QUICK, **options})
        client = ClusterClient(config)
        opened.append(client)
        await client.start()
        return client

    yield made
    for client in opened:
        await client.close()
