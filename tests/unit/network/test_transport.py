"""Tests of name resolution and sockets."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from scripted import ScriptedBroker

from aiokclient.network.connection import BrokerConnection
from aiokclient.network.transport import TcpConnector


class Resolver:
    """A replacement for the system's resolver, which may block."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.free = threading.Event()
        self.error: OSError | None = None

    def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        assert self.free.wait(10)
        if self.error is not None:
            raise self.error
        family = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*family, ("10.0.0.2", port)), (*family, ("10.0.0.1", port))] * 2


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    yield resolver
    resolver.free.set()


async def test_an_address_needs_no_resolver(resolver: Resolver) -> None:
    assert await TcpConnector().resolve("127.0.0.1", 1) == [("127.0.0.1", 1)]
    assert await TcpConnector().resolve("::1", 1) == [("::1", 1)]
    assert resolver.asked == []


async def test_resolved_addresses_are_unique_and_in_order(resolver: Resolver) -> None:
    resolver.free.set()
    found = await TcpConnector().resolve("kafka", 9092)
    assert found == [("10.0.0.2", 9092), ("10.0.0.1", 9092)]


@pytest.mark.fault(16)
async def test_a_resolver_that_blocks_takes_one_thread_for_a_name(resolver: Resolver) -> None:
    connector = TcpConnector()
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await connector.resolve("kafka", 9092)
    waiting = [asyncio.create_task(connector.resolve("kafka", 9092)) for _ in range(3)]
    await asyncio.sleep(0)
    resolver.free.set()
    results = await asyncio.gather(*waiting)
    assert len(resolver.asked) == 1
    assert results[0] == results[1] == results[2]
    await connector.resolve("kafka", 9092)
    assert len(resolver.asked) == 2


@pytest.mark.fault(16)
async def test_a_resolver_failure_reaches_all_waiters_and_no_later_call(resolver: Resolver) -> None:
    connector = TcpConnector()
    resolver.error = socket.gaierror(socket.EAI_AGAIN, "try again")
    waiting = [asyncio.create_task(connector.resolve("kafka", 9092)) for _ in range(2)]
    await asyncio.sleep(0)
    resolver.free.set()
    for task in waiting:
        with pytest.raises(OSError, match="try again"):
            await task
    resolver.error = None
    assert await connector.resolve("kafka", 9092)


async def test_small_packets_are_sent_without_delay() -> None:
    async with ScriptedBroker() as broker:
        connection = BrokerConnection(1, "127.0.0.1", broker.port, client_id="test")
        transport = await TcpConnector().connect(
            ("127.0.0.1", broker.port), lambda: connection, tls=None, server_hostname=None
        )
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.abort()
        await connection.wait_closed()
