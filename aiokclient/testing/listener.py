"""Where a broker's connections come from: sockets, or the simulation's memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol


class Listening(Protocol):
    """A place where connections are taken until `close` (plain, at once)."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class Listener(Protocol):
    """Opens places. `port` 0 asks for any free one, which stays free for the next call."""

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
    ) -> Listening: ...


class TcpListener:
    """Sockets. A port once given out is kept while its broker is down.

    A bound socket that does not listen holds the port: connections to it are refused, and
    nobody else gets it, until the broker comes back.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], socket.socket] = {}

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
    ) -> Listening:
        if (host, port) not in self._kept:
            kept = _bind(host, port)
            port = kept.getsockname()[1]
            self._kept[host, port] = kept
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol_factory, sock=_bind(host, port), backlog=512)
        return _Sockets(server, port)

    def close(self) -> None:
        """Give up all ports. What still listens goes on until it is closed itself."""
        for each in self._kept.values():
            each.close()
        self._kept.clear()


class _Sockets:
    def __init__(self, server: asyncio.Server, port: int) -> None:
        self._server = server
        self.port = port

    def close(self) -> None:
        self._server.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
    except OSError as error:
        place.close()
        reason = f"cannot listen at {host}:{port}: {error.strerror}"
        raise OSError(error.errno, reason) from None
    return place
