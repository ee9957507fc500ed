"""Tests of the listening sockets of the embedded cluster's brokers."""

import asyncio
import gc
import socket
from typing import cast

import pytest

from aiokclient.testing.broker.connections.listener import TcpListener


class Greeting(asyncio.Protocol):
    """A protocol that greets each client, and keeps the connection until the client closes it."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(b"hello")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


class GreetingServer:
    """A listening socket, with the protocols of the connections that it accepted."""

    def __init__(self) -> None:
        self.served: list[Greeting] = []
        self.listener = TcpListener()
        self.listening = self.listener.listen("127.0.0.1", 0, self.greet)

    def greet(self) -> Greeting:
        self.served.append(Greeting())
        return self.served[-1]

    def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.listening.port))
        client.setblocking(False)
        return client

    async def end(self) -> None:
        self.listening.close()
        self.listener.close()
        await asyncio.wait_for(asyncio.gather(*(each.lost for each in self.served)), 10)


@pytest.mark.parametrize("iterations", range(6))
async def test_no_connection_stays_open_when_close_follows_accept(iterations):
    server = GreetingServer()
    await server.listening.serve()
    loop = asyncio.get_running_loop()
    with server.connect() as client:
        for _ in range(iterations):
            await asyncio.sleep(0)
        server.listening.close()
        # If the connection was accepted before the socket closed, its protocol sends the greeting.
        assert await asyncio.wait_for(read(loop, client), 10) in (b"", b"hello")
    await server.end()
    gc.collect()


async def read(loop: asyncio.AbstractEventLoop, client: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(client, 100)
    except ConnectionResetError:
        return b""


async def test_connections_are_accepted_again_when_descriptors_are_free(monkeypatch, caplog):
    monkeypatch.setattr("aiokclient.testing.broker.connections.listener.RETRY_S", 0.001)
    server = GreetingServer()
    await server.listening.serve()
    loop = asyncio.get_running_loop()
    full = [OSError(24, "Too many open files")] * 2
    accept = socket.socket.accept

    def accept_later(this: socket.socket) -> tuple[socket.socket, object]:
        if full:
            raise full.pop()
        return accept(this)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    with server.connect() as client:
        assert await asyncio.wait_for(loop.sock_recv(client, 100), 10) == b"hello"
    assert caplog.text.count("cannot accept a connection: [Errno 24] Too many open files") == 2
    await server.end()
