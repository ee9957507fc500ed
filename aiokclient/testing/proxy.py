"""A proxy on loopback that treats real connections badly: between any client and any broker.

`FaultProxy` stands before one address. Brokers tell clients where they are, so a client would
go round a proxy that it was only given to bootstrap from; `ProxyConnector` therefore sits in
the client (``connector=``) and leads every connection, whatever its address, through a proxy:

    async with ProxyConnector() as connector:
        connector.faults.latency_s = 0.05
        async with Producer(bootstrap_servers=..., connector=connector) as producer: ...

Nothing is rewritten: the bytes are those of the client and of the broker. A `ProxyFaults` is read
anew for each piece that passes, so it may be changed at any time; one given to a connector
holds for all its proxies.
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
from aiokclient.testing.broker.listener import BACKLOG, Acceptor

__all__ = ["FaultProxy", "ProxyConnector", "ProxyFaults"]

LINGER_NOT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset, and what is unsent is thrown away."""
READ_AHEAD: Final = 1 << 20
"""Bytes that wait in the proxy, each way, before it stops reading."""


@dataclass
class ProxyFaults:
    """What happens to the bytes. Seconds, bytes; None and 0 mean: not at all.

    `latency_s`: added in each direction. `slice_bytes`: no delivery is larger.
    `reset_requests_at`, `reset_responses_at`: each new connection is reset once so many bytes of
    that direction passed; `reset_once`: the next new one only. `lifetime_s`: each new connection
    is reset after a time in this range. `frozen`: nothing passes, nothing is lost, nobody is
    told. `half_open`: the broker's side of each connection is gone, the client's is not told;
    once so, a connection stays so. `refuse`: new connections are reset at once.
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


class FaultProxy:
    """A proxy before one address; ``port`` is where it listens on loopback, once started."""

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
        listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port = listening.getsockname()[1]
        self._acceptor = Acceptor(listening, self._accept)

    async def close(self) -> None:
        """Stop listening and reset what is open."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self.cut()

    def cut(self) -> int:
        """Reset all connections on both sides; how many there were."""
        pairs = list(self.connections)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def changed(self) -> None:
        """Look again at ``faults``: call it after thawing, or after asking for half-open."""
        for pair in list(self.connections):
            pair.look()

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
    """A connection through the proxy: the client's side and the broker's."""

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

    def opened(self) -> None:
        """The client is there: go to the broker, or do not."""
        loop = asyncio.get_running_loop()
        faults = self.proxy.faults
        self.proxy.connections[self] = None
        if faults.refuse:
            self.reset()
            return
        if faults.lifetime_s is not None:
            self._timer = loop.call_later(self.proxy.rng.uniform(*faults.lifetime_s), self.reset)
        if not self.half_open:
            self._connecting = loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.broker, *self.proxy.target)
        except OSError:
            self.reset()

    def look(self) -> None:
        if self.proxy.faults.half_open:
            self.half_open = True
            self.broker.reset()
        if not self.proxy.faults.frozen:
            for side in (self.client, self.broker):
                if side.ended:
                    self.lost(side)
        self.client.pass_on()
        self.broker.pass_on()

    def lost(self, side: _Side) -> None:
        """One side ended: end the other, unless it is not to know."""
        if side is self.broker and self.half_open:
            return
        if not self.proxy.faults.frozen:
            side.other.finish()
        if self.client.ended and self.broker.ended:
            self._forget()

    def reset(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self.client.reset()
        self.broker.reset()
        self._forget()

    def _forget(self) -> None:
        self.proxy.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


class _Side(asyncio.Protocol):
    """One end. What it reads waits here until it is time to pass it on to the other."""

    other: _Side

    def __init__(self, pair: _Pair, reset_at: int | None) -> None:
        self._pair, self._reset_at = pair, reset_at
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._passed = self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._finishing = False
        self.ended = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if (sock := self._transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self._pair.client:
            self._pair.opened()
        else:
            self.other.pass_on()

    def data_received(self, data: bytes) -> None:
        due = asyncio.get_running_loop().time() + self._pair.proxy.faults.latency_s
        self._waiting.append((due, data))
        self._waiting_bytes += len(data)
        self.pass_on()
        if self._waiting_bytes > READ_AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._transport = None
        self._pair.lost(self)

    def pause_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.resume_reading()

    # What the pair calls.

    def pass_on(self) -> None:
        """Give the other side the next piece if it is due, and come back for the rest."""
        faults = self._pair.proxy.faults
        if self._timer is not None or not self._waiting or faults.frozen:
            return
        if self.other.ended or self._pair.half_open:
            self._drop()
            return
        loop = asyncio.get_running_loop()
        if self.other._transport is None or self._waiting[0][0] > loop.time():
            if self.other._transport is not None:
                self._timer = loop.call_at(self._waiting[0][0], self._again)
            return
        self._write(self._next_piece(faults.slice_bytes))
        if self._waiting:
            self._timer = loop.call_later(0, self._again)
        elif self.other._finishing:
            self.other.finish()

    def finish(self) -> None:
        """Close this side once all that is on its way to it has been passed on."""
        self._finishing = True
        if not self.other._waiting and self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        self._drop()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is None:
            self.ended = True
            return
        if (sock := self._transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._transport.abort()

    def _drop(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _again(self) -> None:
        self._timer = None
        self.pass_on()

    def _next_piece(self, limit: int | None) -> bytes:
        due, data = self._waiting.popleft()
        if limit is not None and len(data) > limit:
            self._waiting.appendleft((due, data[limit:]))
            data = data[:limit]
        self._waiting_bytes -= len(data)
        if self._transport is not None and self._waiting_bytes <= READ_AHEAD:
            self._transport.resume_reading()
        return data

    def _write(self, data: bytes) -> None:
        assert self.other._transport is not None
        end = self._reset_at
        if end is None or self._passed + len(data) < end:
            self._passed += len(data)
            self.other._transport.write(data)
            return
        self.other._transport.write(data[: end - self._passed])
        self._passed = end
        # What was written has to leave before the reset throws away what has not.
        asyncio.get_running_loop().call_soon(self._pair.reset)


class ProxyConnector(TcpConnector):
    """A connector that leads all connections through proxies, one for each address."""

    def __init__(self, faults: ProxyFaults | None = None) -> None:
        self.faults = ProxyFaults() if faults is None else faults
        self.proxies: dict[Address, FaultProxy] = {}

    async def proxy(self, address: Address) -> FaultProxy:
        """The proxy before an address; started at first use."""
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
        """Reset all connections through all proxies; how many there were."""
        return sum(proxy.cut() for proxy in self.proxies.values())

    def changed(self) -> None:
        """Look again at ``faults``, in all proxies."""
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
