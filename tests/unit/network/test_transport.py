"""Tests of name resolution and sockets."""

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import traceback
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


async def test_refused_connection_with_tls_leaves_no_socket_open(unused_tcp_port: int) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asyncio.get_running_loop().set_debug(True)  # So that the loop refuses a blocking socket.
    with pytest.raises(ConnectionRefusedError) as caught:
        await TcpConnector().connect(
            ("127.0.0.1", unused_tcp_port),
            lambda: BrokerConnection(1, "127.0.0.1", 1, client_id="test"),
            tls=tls,
            server_hostname="kafka",
        )
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    sockets = [frame.f_locals["sock"] for frame in frames if "sock" in frame.f_locals]
    assert sockets
    assert {sock.fileno() for sock in sockets} == {-1}


@pytest.mark.parametrize(
    ("found", "address"),
    [
        (("fe80::1", 1, 0, 3), ("fe80::1%3", 1)),
        (("fe80::1", 1, 5, 0), ("fe80::1", 1)),
        (("10.0.0.1", 1), ("10.0.0.1", 1)),
    ],
)
async def test_address_has_the_scope_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, found: tuple[Any, ...], address: tuple[str, int]
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 6, "", found)])
    assert await TcpConnector().resolve("kafka", 1) == [address]


async def test_failure_that_nobody_waits_for_is_not_reported_by_the_loop(
    resolver: Resolver,
) -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    connector = TcpConnector()
    resolver.error = socket.gaierror(socket.EAI_AGAIN, "try again")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await connector.resolve("kafka", 9092)
    (resolving,) = connector._resolving.values()
    ended = asyncio.Event()
    resolving.add_done_callback(lambda _: ended.set())
    del resolving
    resolver.free.set()
    await ended.wait()
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []
    assert connector._resolving == {}


async def test_small_requests_are_sent_without_delay_on_any_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    create = loop.create_connection

    async def created(*args: Any, **named: Any) -> Any:
        transport, protocol = await create(*args, **named)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        return transport, protocol

    # uvloop does not set the option itself, and its methods cannot be replaced.
    with contextlib.suppress(AttributeError):
        monkeypatch.setattr(loop, "create_connection", created)
    async with ScriptedBroker() as broker:
        transport = await TcpConnector().connect(
            ("127.0.0.1", broker.port),
            lambda: BrokerConnection(1, "127.0.0.1", broker.port, client_id="test"),
            tls=None,
            server_hostname=None,
        )
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.abort()
