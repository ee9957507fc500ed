"""A virtual network with the faults of a real one, which one seeded generator determines.

It is the `Connector` of simulated clients and the listener of simulated brokers. Each end of a
connection has a name: `connector()` sets the name of a client, and a server's name is
``"host:port"``, with an IPv6 address in brackets.

    network.weather = Weather(loss=0.01, slicing=0.5)      # probabilities for all connections
    network.part({"client"}, {"127.0.0.1:9092"})           # nothing passes, nothing is lost
    network.heal()
    network.cut("127.0.0.1:9092")                          # reset the connections of this name
    network.cut_next(requests=17)                          # reset the next one after 17 bytes
    network.names["kafka"] = NameFault.FAIL                # or EMPTY, BLOCK, or addresses
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiokclient.config.kinds import bare, written
from aiokclient.network.transport import Address
from aiokclient.testing.simulation.wires import Connection, VirtualTransport, Wire
from aiokclient.types import public_in

FIRST_PORT: Final = 9092


@public_in("aiokclient.testing")
class NameFault(Enum):
    """A way in which the resolution of a name fails."""

    FAIL = "fails at once"
    EMPTY = "answers without addresses"
    BLOCK = "never answers"


@public_in("aiokclient.testing")
@dataclass
class Weather:
    """The fault probabilities, from 0 to 1, and the latency range in seconds, of all connections.

    `loss`: The probability that a connection is reset at some byte of a write.
    `slicing`: The probability that a read returns only a part of the data, often a single byte.
    `refusal`: The probability that a connection is refused.
    `name_failure`: The probability that a name is not resolved.
    """

    latency_s: tuple[float, float] = (0.0002, 0.002)
    loss: float = 0.0
    slicing: float = 0.0
    refusal: float = 0.0
    name_failure: float = 0.0


class VirtualServer:
    """A listening server. `close()` stops listening; connections stay open."""

    def __init__(
        self, network: VirtualNetwork, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.host, self.port = address
        self.factory = factory
        self.context = copy_context()
        self._network = network

    async def serve(self) -> None:
        """Do nothing: the server accepts connections from the beginning."""

    def close(self) -> None:
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Return immediately. The method exists for compatibility with asyncio."""


class VirtualNetwork:
    """A virtual network. ``trace`` hashes the time, the connection, and the bytes of every request.

    ``tamper(connection, to_server, data)``, if it is set, returns the bytes to send instead of
    ``data``, for each write.
    """

    def __init__(self, rng: random.Random, weather: Weather | None = None) -> None:
        self.rng, self.weather = rng, weather or Weather()
        self.names: dict[str, NameFault | Sequence[str]] = {"localhost": ["127.0.0.1"]}
        self.refusing: set[str] = set()
        self.slowed: dict[str, float] = {}
        self.dead: set[str] = set()
        """The names of clients whose processes were killed: nothing passes to or from them."""
        self.connections: dict[int, Connection] = {}
        self.trace = hashlib.sha256()
        self.tamper: Callable[[Connection, bool, memoryview], bytes | memoryview] | None = None
        self.events: deque[tuple[float, str]] = deque(maxlen=200)
        self.connections_made = self.connections_cut = 0
        self._servers: dict[Address, VirtualServer] = {}
        self._next_port = FIRST_PORT
        self._parted: list[tuple[frozenset[str], frozenset[str]]] = []
        self._healed = asyncio.Event()
        self._next_cut: tuple[int | None, int | None] | None = None

    # -- for brokers and clients

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> VirtualServer:
        """Listen at an address; with port 0, at a port that was never used.

        Raises OSError if the port is in use, and ValueError for TLS.
        """
        if tls is not None:
            raise ValueError(
                "The simulated network does not support TLS, because its bytes are different in "
                "each run. Use BrokerListener(tls=False) in a simulation."
            )
        if not port:
            port = self._next_port
            self._next_port += 1
        if (host, port) in self._servers:
            raise OSError(f"The address {written((host, port))} is already in use.")
        server = self._servers[host, port] = VirtualServer(self, (host, port), protocol_factory)
        return server

    def close(self) -> None:
        """Do nothing. Brokers call this when they end."""

    def unlisten(self, server: VirtualServer) -> None:
        if self._servers.get((server.host, server.port)) is server:
            del self._servers[server.host, server.port]

    def connector(self, name: str = "client") -> VirtualConnector:
        """Return a connector for the clients with this name."""
        return VirtualConnector(self, name)

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Return the addresses of a name, after applying the configured faults."""
        await asyncio.sleep(self.draw_latency())
        known = self.names.get(host)
        if known is NameFault.BLOCK:
            await asyncio.get_running_loop().create_future()
        if known is NameFault.FAIL or self._is_drawn(self.weather.name_failure):
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        if known is NameFault.EMPTY:
            return []
        if isinstance(known, Sequence):
            return [(address, port) for address in known]
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise socket.gaierror(socket.EAI_NONAME, "name or service not known") from None
        return [(host, port)]

    async def connect(
        self, name: str, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> VirtualTransport:
        """Connect the client with this name. Raises OSError.

        Waits while a network partition separates the two ends.
        """
        server_name = written(address)
        await asyncio.sleep(self.draw_latency() + self.slowed.get(server_name, 0.0))
        while self._are_parted(name, server_name):
            if name in self.dead:
                await asyncio.get_running_loop().create_future()
            await self._healed.wait()
        server = self._servers.get(address)
        refused = server_name in self.refusing or self._is_drawn(self.weather.refusal)
        if server is None or refused:
            self._add_event(f"refused {name} -> {server_name}")
            raise ConnectionRefusedError(f"{server_name} refused the connection.")
        connection = Connection(self, name, server_name, self.connections_made)
        self.connections_made += 1
        self.connections[connection.number] = connection
        if self._next_cut is not None:
            connection.requests.cut_at, connection.responses.cut_at = self._next_cut
            self._next_cut = None
        server_context = server.context.copy()
        accepting = server_context.run(server.factory)
        near, far = connection.join_ends(factory(), accepting, copy_context(), server_context)
        self._add_event(f"opened {connection.number} {name} -> {server_name}")
        far.begin_protocol()
        near.begin_protocol()
        return near

    # -- faults

    def part(self, one: Collection[str], other: Collection[str]) -> None:
        """Separate two sets of names. Data from one set to the other waits until `heal`."""
        self._parted.append((frozenset(one), frozenset(other)))
        self._healed.clear()
        self._add_event(f"parted {sorted(one)} | {sorted(other)}")

    def heal(self) -> None:
        """End all network partitions, and deliver what was delayed by them."""
        self._parted.clear()
        self._healed.set()
        self._add_event("healed")
        for connection in list(self.connections.values()):
            connection.deliver_delayed()

    def cut(self, name: str | None = None) -> int:
        """Reset all connections, or those with an end of this name; return their number."""
        found = [
            connection
            for connection in self.connections.values()
            if name in (None, connection.client, connection.server)
        ]
        for connection in found:
            connection.cut()
        return len(found)

    def kill(self, name: str) -> None:
        """Reset the connections of a client, and let nothing pass from it or to it any more.

        So its brokers see the end of its process, whatever its tasks still do.
        """
        self.dead.add(name)
        self.cut(name)

    def cut_next(self, *, requests: int | None = None, responses: int | None = None) -> None:
        """Reset the next connection after this many bytes of its requests or responses arrived."""
        self._next_cut = (requests, responses)

    def refuse(self, name: str, refused: bool = True) -> None:
        """Refuse new connections to the server of this name, or accept them again."""
        (self.refusing.add if refused else self.refusing.discard)(name)

    # -- called by the wires

    def find_latency(self, connection: Connection) -> float:
        return self.draw_latency() + self.slowed.get(connection.server, 0.0)

    def draw_byte_to_cut(self, length: int) -> int | None:
        """Return the number of bytes of a write after which the connection is reset, or None."""
        if not self._is_drawn(self.weather.loss):
            return None
        return self.rng.randrange(length + 1)

    def draw_piece(self, available: int) -> int:
        """Return how many bytes the next read returns, if `available` bytes have arrived."""
        if available <= 1 or not self._is_drawn(self.weather.slicing):
            return available
        return 1 if self.rng.random() < 0.3 else self.rng.randint(1, available)

    def is_parted(self, connection: Connection) -> bool:
        if not self._parted and not self.dead:
            return False
        return self._are_parted(connection.client, connection.server)

    def on_write(self, connection: Connection, wire: Wire, data: memoryview) -> memoryview:
        """Return the bytes to send for a write. If a client writes, add them to the trace."""
        to_server = wire is connection.requests
        if to_server:
            now = asyncio.get_running_loop().time()
            self.trace.update(f"{now:.9f} {connection.number} {len(data)} ".encode())
            self.trace.update(data)
        if self.tamper is not None:
            return memoryview(self.tamper(connection, to_server, data)).cast("B")
        return data

    def forget_connection(self, connection: Connection) -> None:
        if self.connections.pop(connection.number, None) is not None:
            self.connections_cut += 1
            self._add_event(f"closed {connection.number}")

    def find_address(self, connection: Connection, server: bool) -> tuple[str, int]:
        if server:
            host, _, port = connection.server.rpartition(":")
            return bare(host), int(port)
        return connection.client, connection.number

    def _are_parted(self, client: str, server: str) -> bool:
        return client in self.dead or any(
            (client in one and server in other) or (server in one and client in other)
            for one, other in self._parted
        )

    def draw_latency(self) -> float:
        """Return the seconds that something takes to pass."""
        return self.rng.uniform(*self.weather.latency_s)

    def _is_drawn(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def _add_event(self, what: str) -> None:
        self.events.append((asyncio.get_running_loop().time(), what))


class VirtualConnector:
    """The `Connector` of clients with one name on a simulated network. It does not support TLS."""

    def __init__(self, network: VirtualNetwork, name: str) -> None:
        self.network, self.name = network, name

    async def resolve(self, host: str, port: int) -> list[Address]:
        return await self.network.resolve(host, port)

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> asyncio.Transport:
        if tls is not None:
            raise OSError("The simulated network does not support TLS.")
        return await self.network.connect(self.name, address, protocol_factory)
