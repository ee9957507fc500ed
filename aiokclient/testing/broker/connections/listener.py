"""The source of a broker's connections: sockets, or the simulated network."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from aiokclient.config.kinds import written

BACKLOG = 512
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class Listening(Protocol):
    """A bound address that accepts connections until `close`. `close` is synchronous."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None:
        """Serve all pending and later connections. Repeated calls do nothing."""

    def close(self) -> None: ...


class Listener(Protocol):
    """A factory of listening addresses.

    `port` 0 selects a free port, which a later call may use again for the same broker. With `tls`,
    connections are encrypted; a listener that cannot do that raises ValueError.
    """

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listening: ...


class TcpListener:
    """A listener with TCP sockets. A broker's port stays reserved while the broker is stopped.

    A bound socket that does not listen reserves the port: connections to it are refused, and no
    other process can use it until the broker starts again.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], socket.socket] = {}

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> Listening:
        if (host, port) not in self._kept:
            kept = _bind_socket(host, port)
            port = kept.getsockname()[1]
            self._kept[host, port] = kept
        sock = _bind_socket(host, port)
        sock.listen(BACKLOG)
        return _Sockets(sock, protocol_factory, tls)

    def close(self) -> None:
        """Release all ports. Sockets that still listen do so until they are closed themselves."""
        for each in self._kept.values():
            each.close()
        self._kept.clear()


class _Sockets:
    """A listening socket.

    The operating system accepts connections immediately. They are served when `serve` is called.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.port: int = sock.getsockname()[1]
        self._sock: socket.socket | None = sock
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._acceptor: Acceptor | None = None

    async def serve(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._acceptor = Acceptor(sock, self._protocol_factory, self._tls)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._acceptor is not None:
            self._acceptor.close()


class Acceptor:
    """A server for the connections of a listening socket, until `close()`.

    In many releases of Python, `asyncio.Server.close()` leaves a connection open that was accepted
    in the same iteration of the event loop: building its transport fails with an AssertionError
    that only debug mode reports. Here every accepted connection is either served or closed.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listening = listening
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], socket.socket] = {}
        self._retry: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._watch_socket()

    def close(self) -> None:
        """Stop listening immediately.

        Connections that are being opened are closed; the others stay open.
        """
        if not self._is_listening():
            return
        if self._retry is not None:
            self._retry.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._tls is not None:
            for connection in self._opening.values():
                _end_handshake(connection)

    def _is_listening(self) -> bool:
        return self._listening.fileno() >= 0

    def _watch_socket(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening, self._accept_connections)

    def _accept_connections(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor or memory is free. The socket stays readable, so try again later.
                _log.warning("An embedded broker cannot accept a connection: %s.", error)
                self._loop.remove_reader(self._listening)
                self._retry = self._loop.call_later(RETRY_S, self._watch_socket)
                return
            task = self._loop.create_task(self._open_connection(connection))
            self._opening[task] = connection
            task.add_done_callback(self._opening.pop)

    async def _open_connection(self, connection: socket.socket) -> None:
        if not self._is_listening():
            connection.close()
            return
        connection.setblocking(False)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._protocol_factory, connection, ssl=self._tls
            )
        except OSError as error:  # This includes ssl.SSLError and TimeoutError.
            _log.debug("An embedded broker could not open a connection: %s.", error)
            return
        if not self._is_listening():
            transport.abort()


def _end_handshake(connection: socket.socket) -> None:
    """End a connection in its TLS handshake, which then fails."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # The client has already ended the connection.


def _bind_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port < 65536:
        raise ValueError(f"{port} is not a port. Use a number up to 65535, or 0 for a free port.")
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        reason = f"cannot listen at {written((host, port))}: {error.strerror}"
        raise OSError(error.errno, reason) from None
    return sock
