"""Fixtures: connections over transports in memory, and settings for real ones."""

from collections.abc import Callable
from typing import Any

import pytest
from scripted import MemoryTransport

from aiokclient.network.connection import BrokerConnection
from aiokclient.network.setup import ConnectionSettings
from aiokclient.network.transport import TcpConnector

EVERYTHING = dict.fromkeys(range(100), (0, 99))


@pytest.fixture
def connect() -> Callable[..., tuple[BrokerConnection, MemoryTransport]]:
    """Return a function that makes a ready connection and its transport in memory."""

    def made(limit: int = 1 << 20, **options: Any) -> tuple[BrokerConnection, MemoryTransport]:
        connection = BrokerConnection(1, "memory", 9092, client_id="test", **options)
        transport = MemoryTransport(connection)
        connection.end_setup(EVERYTHING, limit)
        return connection, transport

    return made


@pytest.fixture
def settings() -> Callable[..., ConnectionSettings]:
    default = ConnectionSettings(
        connector=TcpConnector(),
        client_id="test",
        tls=None,
        receive_max=1 << 20,
        idle_s=None,
    )
    return lambda **changes: default._replace(**changes)
