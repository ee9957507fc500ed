"""Name resolution and connecting, as an interface that a simulation can replace.

All other modules use a `Connector` for addresses and transports, so that a simulation can provide
transports in memory. Their protocols are `asyncio.BufferedProtocol`s: the transport reads directly
into the protocol's buffer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

from aiokclient import threads

__all__ = ["Address", "Connector", "TcpConnector"]

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
            ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            job = self._jobs[key] = threads.Job(ask)
            resolving = self._resolving[key] = threads.run_blocking(job)
            resolving.add_done_callback(partial(self._resolved, key))
        await asyncio.wait([resolving])
        return list(dict.fromkeys(_address(*found) for *_, found in resolving.result()))

    def queued(self, host: str) -> bool:
        """Return whether a lookup of the name waits for a thread."""
        return any(not job.begun for (_, name, _), job in self._jobs.items() if name == host)

    def _resolved(self, key: tuple[object, str, int], resolving: asyncio.Future[list[Any]]) -> None:
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
    import ipaddress  # It is imported here, because only connections need it.

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
