"""Where a broker's connections come from: sockets, or the simulation's memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

BACKLOG = 512


class Listening(Protocol):
    """A place where nobody is refused from the beginning on, until `close` (plain, at once)."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None:
        """Take the connections that have come and those that will; again: nothing."""

    def close(self) -> None: ...


class Listener(Protocol):
    """Opens places. `port` 0 asks for any free one, which stays free for the next call."""

    def listen(
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

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
    ) -> Listening:
        if (host, port) not in self._kept:
            kept = _bind(host, port)
            port = kept.getsockname()[1]
            self._kept[host, port] = kept
        place = _bind(host, port)
        place.listen(BACKLOG)
        return _Sockets(place, protocol_factory)

    def close(self) -> None:
        """Give up all ports. What still listens goes on until it is closed itself."""
        for each in self._kept.values():
            each.close()
        self._kept.clear()


class _Sockets:
    """The operating system takes connections at once; they are served from `serve` on."""

    def __init__(
        self, place: socket.socket, protocol_factory: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        self.port: int = place.getsockname()[1]
        self._place: socket.socket | None = place
        self._protocol_factory = protocol_factory
        self._server: asyncio.Server | None = None
        self._closed = False

    async def serve(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._protocol_factory, sock=place, backlog=BACKLOG)
        self._server = server
        if self._closed:
            server.close()

    def close(self) -> None:
        self._closed = True
        if self._place is not None:
            self._place.close()
            self._place = None
        if self._server is not None:
            self._server.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port < 65536:
        raise ValueError(f"{port} is not a port: that is a number to 65535, 0 for any free one")
    place = socket.socket(family, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
    except OSError as error:
        place.close()
        reason = f"cannot listen at {host}:{port}: {error.strerror}"
        raise OSError(error.errno, reason) from None
    return place
