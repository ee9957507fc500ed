"""A proxy on loopback that injects faults into real connections between any client and any broker.

`FaultProxy` forwards the connections to one address. Brokers send their own addresses to clients.
So a client that uses a proxy only for the bootstrap then bypasses it. `ProxyConnector` therefore
runs inside the client (``connector=``) and routes every connection, whatever its address, through a
proxy:

    async with ProxyConnector() as connector:
        connector.faults.latency_s = 0.05
        async with Producer(bootstrap_servers=..., connector=connector) as producer: ...

The proxy does not change any bytes. It reads its `ProxyFaults` again for each piece of data, so
that they may be changed at any time. The faults of a connector apply to all its proxies.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast

from aiokclient.network.transport import Address, TcpConnector
from aiokclient.testing.broker.connections.listener import BACKLOG, Acceptor
from aiokclient.types import public_in

LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that makes closing send a reset and discard unsent data."""
READ_AHEAD: Final = 1 << 20
"""Bytes that the proxy buffers in each direction before it stops reading."""


@public_in("aiokclient.testing")
@dataclass
class ProxyFaults:
    """The faults of a proxy. None, 0, and False switch a fault off.

    `latency_s`: Seconds of delay that are added in each direction.
    `slice_bytes`: The maximum number of bytes that are forwarded at once.
    `reset_requests_at`, `reset_responses_at`: Each new connection is reset when this many bytes
        has passed in that direction.
    `reset_once`: `reset_requests_at` and `reset_responses_at` apply only to the next new
        connection.
    `lifetime_s`: Each new connection is reset after a random number of seconds in this range.
    `frozen`: Nothing is forwarded, nothing is lost, and neither side is notified.
    `half_open`: The broker's side of each connection is closed, but the client is not notified. A
        connection that is half-open stays so.
    `refuse`: New connections are reset immediately.
    """

    latency_s: float = 0.0
    slice_bytes: int | None = None
    reset_requests_at: int | None = None
    reset_responses_at: int | None = None
    reset_once: bool = False
    lifetime_s: tuple[float, float] | None = None
    frozen: bool = False
    half_open: bool = False
    refuse: bool = False


@public_in("aiokclient.testing")
class FaultProxy:
    """A proxy for one address.

    ``port`` is the port on loopback at which the proxy listens. It is set by `start`.
    """

    def __init__(
        self, target: Address, faults: ProxyFaults | None = None, rng: random.Random | None = None
    ) -> None:
        self.target, self.port = target, 0
        self.faults = ProxyFaults() if faults is None else faults
        self.rng = random.Random(0) if rng is None else rng
        self.connections: dict[_Pair, None] = {}
        self.accepted = 0
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Listen on a free port of the loopback address, and store it in `port`."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port = listening.getsockname()[1]
        self._acceptor = Acceptor(listening, self._accept)

    async def close(self) -> None:
        """Stop listening and reset all connections."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self.cut()

    def cut(self) -> int:
        """Reset all connections on both sides, and return their number."""
        pairs = list(self.connections)
        for pair in pairs:
            pair.reset_both()
        return len(pairs)

    def changed(self) -> None:
        """Apply changed ``faults`` to open connections.

        Call it after ``frozen`` was cleared or ``half_open`` was set.
        """
        for pair in list(self.connections):
            pair.apply_faults()

    def _accept(self) -> asyncio.Protocol:
        self.accepted += 1
        return _Pair(self).client

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Pair:
    """A connection through the proxy, with its client side and its broker side."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        faults = proxy.faults
        self.client = _Side(self, faults.reset_requests_at)
        self.broker = _Side(self, faults.reset_responses_at)
        self.client.other, self.broker.other = self.broker, self.client
        if faults.reset_once:
            faults.reset_requests_at = faults.reset_responses_at = None
        self.half_open = faults.half_open
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def on_opened(self) -> None:
        """Connect to the broker, or apply the faults that prevent it."""
        loop = asyncio.get_running_loop()
        faults = self.proxy.faults
        self.proxy.connections[self] = None
        if faults.refuse:
            self.reset_both()
            return
        if faults.lifetime_s is not None:
            self._timer = loop.call_later(
                self.proxy.rng.uniform(*faults.lifetime_s), self.reset_both
            )
        if not self.half_open:
            self._connecting = loop.create_task(self._connect_to_broker())

    async def _connect_to_broker(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.broker, *self.proxy.target)
        except OSError:
            self.reset_both()

    def apply_faults(self) -> None:
        if self.proxy.faults.half_open:
            self.half_open = True
            self.broker.reset_connection()
        if not self.proxy.faults.frozen:
            for side in (self.client, self.broker):
                if side.ended:
                    self.on_side_lost(side)
        self.client.forward_data()
        self.broker.forward_data()

    def on_side_lost(self, side: _Side) -> None:
        """Close the other side after `side` ended, unless a fault hides this from the other one."""
        if side is self.broker and self.half_open:
            return
        if not self.proxy.faults.frozen:
            side.other.close_when_forwarded()
        if self.client.ended and self.broker.ended:
            self._forget_pair()

    def reset_both(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self.client.reset_connection()
        self.broker.reset_connection()
        self._forget_pair()

    def _forget_pair(self) -> None:
        self.proxy.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


class _Side(asyncio.Protocol):
    """One side of a connection through the proxy.

    Data that was read from this side is buffered here until it is forwarded to the other side.
    """

    other: _Side

    def __init__(self, pair: _Pair, reset_at: int | None) -> None:
        self._pair, self._reset_at = pair, reset_at
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._passed = self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._finishing = False
        self.ended = False

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if (sock := self._transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self._pair.client:
            self._pair.on_opened()
        else:
            self.other.forward_data()

    def data_received(self, data: bytes) -> None:
        due = asyncio.get_running_loop().time() + self._pair.proxy.faults.latency_s
        self._waiting.append((due, data))
        self._waiting_bytes += len(data)
        self.forward_data()
        if self._waiting_bytes > READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._transport = None
        self._pair.on_side_lost(self)

    def pause_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.resume_reading()

    # -- called by the pair

    def forward_data(self) -> None:
        """Forward the next piece of data if it is due, and schedule the rest."""
        faults = self._pair.proxy.faults
        if self._timer is not None or not self._waiting or faults.frozen:
            return
        if self.other.ended or self._pair.half_open:
            self._drop_data()
            return
        loop = asyncio.get_running_loop()
        if self.other._transport is None or self._waiting[0][0] > loop.time():
            if self.other._transport is not None:
                self._timer = loop.call_at(self._waiting[0][0], self._on_timer)
            return
        self._write_data(self._next_piece(faults.slice_bytes))
        if self._waiting:
            self._timer = loop.call_later(0, self._on_timer)
        elif self.other._finishing:
            self.other.close_when_forwarded()

    def close_when_forwarded(self) -> None:
        """Close this side when all data for it has been forwarded."""
        self._finishing = True
        if not self.other._waiting and self._transport is not None:
            self._transport.close()

    def reset_connection(self) -> None:
        self._drop_data()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is None:
            self.ended = True
            return
        if (sock := self._transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._transport.abort()

    def _drop_data(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _on_timer(self) -> None:
        self._timer = None
        self.forward_data()

    def _next_piece(self, limit: int | None) -> bytes:
        due, data = self._waiting.popleft()
        if limit is not None and len(data) > limit:
            self._waiting.appendleft((due, data[limit:]))
            data = data[:limit]
        self._waiting_bytes -= len(data)
        if self._transport is not None and self._waiting_bytes <= READ_AHEAD:
            self._transport.resume_reading()
        return data

    def _write_data(self, data: bytes) -> None:
        assert self.other._transport is not None
        end = self._reset_at
        if end is None or self._passed + len(data) < end:
            self._passed += len(data)
            self.other._transport.write(data)
            return
        self.other._transport.write(data[: end - self._passed])
        self._passed = end
        # What was written must be sent before the reset, which discards unsent data.
        asyncio.get_running_loop().call_soon(self._pair.reset_both)


@public_in("aiokclient.testing")
class ProxyConnector(TcpConnector):
    """A connector that routes all connections through proxies, one for each address."""

    def __init__(self, faults: ProxyFaults | None = None) -> None:
        self.faults = ProxyFaults() if faults is None else faults
        self.proxies: dict[Address, FaultProxy] = {}

    async def proxy(self, address: Address) -> FaultProxy:
        """Return the proxy for an address, which is started at its first use."""
        found = self.proxies.get(address)
        if found is None:
            found = self.proxies[address] = FaultProxy(address, self.faults)
            await found.start()
        return found

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> asyncio.Transport:
        proxy = await self.proxy(address)
        return await super().connect(
            ("127.0.0.1", proxy.port), protocol_factory, tls=tls, server_hostname=server_hostname
        )

    def cut(self) -> int:
        """Reset all connections through all proxies, and return their number."""
        return sum(proxy.cut() for proxy in self.proxies.values())

    def changed(self) -> None:
        """Apply changed ``faults`` to the open connections of all proxies."""
        for proxy in self.proxies.values():
            proxy.changed()

    async def close(self) -> None:
        for proxy in self.proxies.values():
            await proxy.close()
        self.proxies.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
