"""The network below httpcore2: connections over the library's own connector.

httpcore2 would resolve names in threads of the application, and read certificates in the event
loop. Here, a `Connector` resolves and connects, as for brokers, and `TlsContexts` reads certificate
files in a thread, and again when they are replaced. httpcore2 does not know of TLS: a connection to
an https URL has it from the beginning.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import httpcore2

from aiokclient.config.security import Tls
from aiokclient.log.client_log import ClientLog
from aiokclient.network.tls import TlsContexts, server_name
from aiokclient.network.transport import Address, Connector
from aiokclient.schema.http.endpoints import Endpoint

PAUSE_AT: Final = 256 * 1024
"""The number of unread bytes at which a connection stops reading."""
CONNECTIONS: Final = 10
"""The number of connections of one client. Further requests wait for one."""
KEEPALIVE_S: Final = 30.0
"""Seconds after which an idle connection is not used again."""
ADDRESS_S: Final = 3.0
"""The longest time for one of several addresses of a name, in seconds."""
CLOSE_S: Final = 1.0
"""The longest wait for the end of a connection that was aborted, in seconds."""


class HttpStream(asyncio.BufferedProtocol, httpcore2.AsyncNetworkStream):
    """A connection, as asyncio writes to it and httpcore2 reads from it.

    The deadlines are those of the whole attempt, which cancels the task that waits here. So the
    timeouts of httpcore2 are not used.

    `tunnel` has the contexts for TLS within the tunnel of a proxy, which begins later.
    """

    def __init__(self, tunnel: TlsContexts | None = None) -> None:
        self._tunnel = tunnel
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(16 * 1024)
        self._unread = bytearray()
        self._paused = False
        self._has_ended = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._unread += self._buffer[:nbytes]
        if len(self._unread) >= PAUSE_AT and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._changed.set()

    def eof_received(self) -> None:
        self._has_ended = True
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._error = exc
        for event in (self._changed, self._writable, self._lost):
            event.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while not self._unread and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._unread and self._error is not None:
            raise httpcore2.ReadError(str(self._error) or type(self._error).__name__)
        data = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        if self._paused and not self._unread and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._lost.is_set() or self._transport is None:
            raise httpcore2.WriteError("The connection was lost.")
        self._transport.write(buffer)
        await self._writable.wait()

    async def aclose(self) -> None:
        """Abort the connection, and wait until its socket is closed."""
        if self._transport is None:
            return
        # Not `close`, which would wait for the other side of TLS. Nothing is left to be sent.
        self._transport.abort()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._lost.wait()
        except TimeoutError:
            pass

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> HttpStream:
        """Return this connection with TLS. It has that already, unless it is a proxy's tunnel."""
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is None or self._transport is None:
            return self
        context, loop = await tunnel.current_context(), asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                self._transport, self, context, server_hostname=server_name(server_hostname or "")
            )
        except ssl.SSLError as error:
            raise HandshakeError(error, await tunnel.is_outdated(context)) from None
        except OSError as error:
            raise httpcore2.ConnectError(error.strerror or str(error)) from None
        if transport is None:
            raise httpcore2.ConnectError("The proxy has closed the connection")
        self._transport = transport
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # On an idle connection: the server has closed it, or sent what nobody asked for.
            return bool(self._unread) or self._has_ended
        return None if self._transport is None else self._transport.get_extra_info(info)


class RegistryBackend(httpcore2.AsyncNetworkBackend):
    """The way in which httpcore2 connects to the endpoints of a registry, or to their proxy."""

    def __init__(
        self,
        connector: Connector,
        tls: TlsContexts | None,
        tls_addresses: Iterable[Address],
        *,
        has_proxy: bool,
    ) -> None:
        self._connector = connector
        self._tls = tls
        self._tls_addresses = frozenset(() if has_proxy else tls_addresses)
        self._tunnel = tls if has_proxy else None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> HttpStream:
        context = None
        if self._tls is not None and (host, port) in self._tls_addresses:
            context = await self._tls.current_context()
        try:
            addresses = await self._connector.resolve(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(
                f"The name {host} cannot be resolved ({error.strerror or error})"
            ) from None
        problem: OSError = OSError(f"The name {host} has no address")
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            stream = HttpStream(self._tunnel)
            try:
                # The deadline of the attempt bounds the last address.
                async with asyncio.timeout(ADDRESS_S if left else None):
                    await self._connector.connect(
                        address,
                        partial(_same, stream),
                        tls=context,
                        server_hostname=None if context is None else server_name(host),
                    )
            except TimeoutError:
                problem = OSError(f"{host} does not answer at {address[0]}")
            except OSError as error:
                problem = error
            else:
                return stream
        # The error of the handshake, or of the last address.
        if isinstance(problem, ssl.SSLError):
            assert self._tls is not None
            assert context is not None
            raise HandshakeError(problem, await self._tls.is_outdated(context))
        raise httpcore2.ConnectError(problem.strerror or str(problem)) from None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _same(stream: HttpStream) -> HttpStream:
    return stream


class HandshakeError(httpcore2.ConnectError):
    """An error of the TLS handshake, with OpenSSL's as `ssl_error`.

    `is_outdated` tells whether the files of certificates have been replaced meanwhile.
    """

    def __init__(self, ssl_error: ssl.SSLError, is_outdated: bool) -> None:
        super().__init__(str(ssl_error))
        self.ssl_error = ssl_error
        self._is_outdated = is_outdated

    @property
    def is_permanent(self) -> bool:
        """Whether another attempt would fail in the same way."""
        ended = isinstance(self.ssl_error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        return not (ended or self._is_outdated)


def make_pool(
    connector: Connector,
    endpoints: Iterable[Endpoint],
    tls: Tls | None,
    proxy: Endpoint | None,
    log: ClientLog,
) -> httpcore2.AsyncConnectionPool:
    """Return a pool of connections. Blocking: call it in a thread.

    Raises ConfigError, which names the file of certificates that is missing or cannot be used.
    """
    contexts = None
    if tls is not None:
        contexts = TlsContexts(tls, log)
        contexts.load_files()
    addresses = [(each.host, each.port) for each in endpoints if each.has_tls]
    through = None
    if proxy is not None:
        headers = [] if proxy.basic is None else [("Proxy-Authorization", proxy.basic.header)]
        through = httpcore2.Proxy(
            proxy.url, headers=[(name, value.reveal()) for name, value in headers]
        )
    return httpcore2.AsyncConnectionPool(
        proxy=through,
        # httpcore2 makes a context of its own if it has none. The stream ignores this one.
        ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        max_connections=CONNECTIONS,
        keepalive_expiry=KEEPALIVE_S,
        network_backend=RegistryBackend(
            connector, contexts, addresses, has_proxy=proxy is not None
        ),
    )
