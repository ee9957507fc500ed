"""Name resolution, connecting, and writing to transports.

All other modules use a `Connector` for addresses and transports, so that a simulation can provide
transports in memory. Their protocols are `asyncio.BufferedProtocol`s: the transport reads directly
into the protocol's buffer.

The selector transport of Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never calls `pause_writing`
from `writelines` (CVE-2024-12254), so that it buffers unsent data without a limit. In these
versions, if data is buffered, `write_segments` writes the last segment by `write`, which checks the
limit for all buffered data. This needs no private function, and also works with every other
transport (TLS, uvloop, the simulation's).

A fork copies the file descriptors of all sockets. Through its copies, a forked process would write
into the middle of its parent's requests, and read its parent's responses. Even if it only closed
its transports, it would remove the parent's sockets from the selector, because both processes share
it. So in the forked process, each descriptor is replaced by that of a socket whose other end is
closed (`detach_in_forks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import aiokclient.network.diagnosis as diagnosis
from aiokclient import threads
from aiokclient.config.kinds import LONGEST_HOST, written
from aiokclient.log.texts import bounded

if TYPE_CHECKING:
    import ssl

    from aiokclient.network.connection import BrokerConnection

Address: TypeAlias = tuple[str, int]
"""An IP address (or another name that the connector understands) and a port."""


class Connector(Protocol):
    """An object that opens connections: over sockets, or in memory for the simulation."""

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Return all addresses of a host, of any family and in any order.

        Raises OSError if the name cannot be resolved. There is no deadline: the caller must set
        one.
        """
        ...

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> asyncio.Transport:
        """Return a transport connected to the address, after the TLS handshake if `tls` is given.

        With `tls`, `protocol_factory` is called when the server has accepted the connection, before
        the handshake. `server_hostname` is the name that the certificate must contain. Raises
        OSError, of which `ssl.SSLError` is a subclass. A cancellation leaves no socket open.
        """
        ...


class TcpConnector:
    """A connector for TCP, optionally with TLS.

    Names are resolved in threads of the library. There is at most one thread for each name, so that
    a resolver that blocks cannot occupy all threads.
    """

    def __init__(self) -> None:
        self._resolving: dict[tuple[object, str, int], asyncio.Future[list[Any]]] = {}
        self._jobs: dict[tuple[object, str, int], threads.Job[list[Any]]] = {}

    async def resolve(self, host: str, port: int) -> list[Address]:
        if _is_literal(host):
            return [(host, port)]
        loop = asyncio.get_running_loop()
        key = (loop, host, port)
        resolving = self._resolving.get(key)
        if resolving is None:
            # Not `loop.getaddrinfo`, which takes a thread of the default executor, and waits while
            # the application occupies all of them.
            ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            job = self._jobs[key] = threads.Job(ask)
            resolving = self._resolving[key] = threads.run_blocking(job)
            resolving.add_done_callback(partial(self._on_resolved, key))
        await asyncio.wait([resolving])
        return list(dict.fromkeys(_address(*found) for *_, found in resolving.result()))

    def is_queued(self, host: str) -> bool:
        """Return whether a lookup of the name waits for a thread."""
        return any(not job.begun for (_, name, _), job in self._jobs.items() if name == host)

    def _on_resolved(
        self, key: tuple[object, str, int], resolving: asyncio.Future[list[Any]]
    ) -> None:
        del self._resolving[key], self._jobs[key]
        if not resolving.cancelled():
            # Mark the exception as retrieved: the caller may have been cancelled.
            resolving.exception()

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        if tls is None:
            transport, _ = await loop.create_connection(protocol_factory, *address)
        else:
            name = address[0] if server_hostname is None else server_hostname
            # uvloop makes the protocol before it connects, so that a refused connection could not
            # be told from a TLS handshake that fails.
            sock = await _connected_socket(address)
            transport, _ = await loop.create_connection(
                protocol_factory, sock=sock, ssl=tls, server_hostname=name
            )
        # asyncio sets TCP_NODELAY on TCP sockets. Other event loops may not.
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return transport


async def _connected_socket(address: Address) -> socket.socket:
    """Return a socket that is connected to an IP address.

    If the event loop connects, uvloop calls the factory of the protocol before it does.
    """
    loop = asyncio.get_running_loop()
    family, kind, proto, _, where = socket.getaddrinfo(
        *address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _address(host: str, port: int, _flow: int = 0, scope: int = 0) -> Address:
    """Return the host with its scope (the network interface) if it needs one, and the port."""
    return (f"{host}%{scope}" if scope else str(host), int(port))


def _is_literal(host: str) -> bool:
    # Not by `ipaddress`, whose import takes as long as that of thirty other classes.
    is_v6 = ":" in host
    try:
        socket.inet_pton(
            *((socket.AF_INET6, host.partition("%")[0]) if is_v6 else (socket.AF_INET, host))
        )
    except (OSError, ValueError):
        return False
    return True


async def resolve(connector: Connector, host: str, port: int, timeout_s: float) -> list[Address]:
    """Return the addresses of a host, at least one.

    Raises UnresolvedError if it has none, and ResolutionTimeoutError after `timeout_s` seconds.
    """
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await connector.resolve(host, port)
    except TimeoutError:
        raise diagnosis.ResolutionTimeoutError(
            f"Resolving {written((host, port))} took over {timeout_s:.1f} s"
            f"{delayed_by(connector, host)}."
        ) from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        text = f"The name {bounded(host, LONGEST_HOST)} cannot be resolved ({text})."
        raise diagnosis.UnresolvedError(text) from error
    if not addresses:
        raise diagnosis.UnresolvedError(f"The name {bounded(host, LONGEST_HOST)} has no address.")
    return addresses


def delayed_by(connector: Connector, host: str) -> str:
    """Return the end of a sentence about a resolution that takes long. It may be empty."""
    queued = isinstance(connector, TcpConnector) and connector.is_queued(host)
    return " because no thread was free for it" if queued else ""


Segment: TypeAlias = bytes | bytearray | memoryview

JOINED = 16 * 1024
PIECE = 4 * 1024
"""Segments with at most this many bytes in total, or on average, are copied into one, because that
is cheaper than writing them one by one."""
LARGE_PIECE = 48 * 1024
"""Segments of at least this many bytes on average are written one by one if `writelines` of the
transport would copy them into one, as that of Python 3.11 does: a copy out of the processor's cache
costs more than a system call."""


def _never_pauses(version: tuple[int, int, int]) -> bool:
    """Return whether `writelines` of this Python ignores the transport's limit."""
    # `writelines` of these versions does not call `pause_writing` (CVE-2024-12254).
    return (3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2)


NEVER_PAUSES = _never_pauses(sys.version_info[:3])


def write_segments(
    transport: asyncio.WriteTransport, segments: Sequence[Segment], size: int
) -> None:
    """Write segments of `size` bytes in total, in order. Large segments are not copied.

    The segments must not be changed until the transport has sent them. If the transport's buffer
    exceeds its limit, the protocol's `pause_writing` is called in this call or in the next one.
    """
    if len(segments) == 1:
        transport.write(segments[0])
    elif size <= JOINED or size <= len(segments) * PIECE:
        transport.write(b"".join(segments))
    elif NEVER_PAUSES and transport.get_write_buffer_size():
        _write_with_limit(transport, segments)
    elif size >= len(segments) * LARGE_PIECE and _joins_lines(transport):
        for segment in segments:
            transport.write(segment)
    else:
        transport.writelines(segments)


def _joins_lines(transport: asyncio.WriteTransport) -> bool:
    """Return whether `writelines` is the inherited one, which copies all segments into one."""
    return type(transport).writelines is asyncio.WriteTransport.writelines


def _write_with_limit(transport: asyncio.WriteTransport, segments: Sequence[Segment]) -> None:
    """Write the last nonempty segment by `write`, so that the transport checks its limit."""
    filled = [segment for segment in segments if len(segment)]
    if len(filled) > 1:
        transport.writelines(filled[:-1])
    if filled:
        transport.write(filled[-1])


_connected: weakref.WeakSet[BrokerConnection] = weakref.WeakSet()


def detach_in_forks(connection: BrokerConnection) -> None:
    """Detach a connection from its socket in each process that is forked later. Synchronous."""
    _connected.add(connection)


def _detach_all() -> None:
    connections = list(_connected)
    if not connections:
        return
    closed, other = socket.socketpair()
    with closed:
        other.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                _detach(connection.read_info("socket"), closed)


def _detach(sock: Any, closed: socket.socket) -> None:
    if sock is not None and (descriptor := sock.fileno()) >= 0:
        os.dup2(closed.fileno(), descriptor, inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_all)
