"""A proxy in front of one broker that understands Kafka's protocol.

The proxy has two addresses. One is for `bootstrap_servers`. The other one replaces the broker's own
address in all responses. On request, the proxy answers one Metadata request with
REBOOTSTRAP_REQUIRED. It counts the connections, and the requests and bytes on each.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import FindCoordinatorResponse, MetadataResponse

HEAD = struct.Struct(">hhi")
PREFIX = 4
"""Bytes of the length before each frame."""
REQUIRED = 129
ALTERED: dict[int, Any] = {
    ApiKey.METADATA: MetadataResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
}


class ProxiedConnection:
    """One connection of a client, with the count of its requests for each API."""

    def __init__(self, *, is_bootstrap: bool) -> None:
        self.is_bootstrap = is_bootstrap
        self.client_id = ""
        self.requests: Counter[int] = Counter()
        self.sent: list[tuple[int, int]] = []
        """The API and the bytes of each request."""
        self.received: list[tuple[int, int]] = []
        """The API and the bytes of each response."""
        self.is_open = True
        self.waiting: dict[int, tuple[int, int]] = {}
        """The API and the version of requests without a response, by correlation id."""
        self._writers: list[asyncio.StreamWriter] = []

    def opened(self, *writers: asyncio.StreamWriter) -> None:
        self._writers += writers

    def close(self) -> None:
        """Close the connection on both sides."""
        self.is_open = False
        for writer in self._writers:
            writer.close()

    def __repr__(self) -> str:
        names = {ApiKey(key).api_name: count for key, count in self.requests.items()}
        kind = "bootstrap" if self.is_bootstrap else "broker"
        return f"<{kind} connection, {'open' if self.is_open else 'closed'}, {names}>"


class MetadataProxy:
    """The proxy. `connections` has all connections of clients, the oldest first."""

    altered: Mapping[int, Any] = ALTERED
    """The responses that are decoded and altered, by API."""

    def __init__(self, broker: tuple[str, int]) -> None:
        self.broker = broker
        self.connections: list[ProxiedConnection] = []
        self.refused = 0
        """The number of Metadata requests that were answered with REBOOTSTRAP_REQUIRED."""
        self._to_refuse = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ports: list[int] = []
        self._changed = asyncio.Event()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    async def __aenter__(self) -> MetadataProxy:
        for is_bootstrap in (True, False):

            async def serve(reader: Any, writer: Any, is_bootstrap: bool = is_bootstrap) -> None:
                await self._serve(reader, writer, is_bootstrap)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self._ports.append(server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error: object) -> None:
        for server in self._servers:
            server.close()
        for connection in self.connections:
            connection.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def open(self) -> list[ProxiedConnection]:
        """Return the connections that are open."""
        return [each for each in self.connections if each.is_open]

    def close_bootstraps(self) -> None:
        """Close the connections through the bootstrap address."""
        for each in self.open():
            if each.is_bootstrap:
                each.close()
        self._changed.set()

    def require_rebootstrap(self) -> None:
        """Answer the next Metadata request through the broker's address with the error code."""
        self._to_refuse += 1

    async def until(self, right: Any, timeout: float = 120.0) -> None:
        """Wait for a condition, which is checked after each request, response, and close."""
        try:
            async with asyncio.timeout(timeout):
                while not right():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"The condition is false after {timeout} s. Connections: {self.connections}"
            ) from None

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_bootstrap: bool
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = ProxiedConnection(is_bootstrap=is_bootstrap)
        self.connections.append(connection)
        try:
            from_broker, to_broker = await asyncio.open_connection(*self.broker)
            connection.opened(writer, to_broker)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_requests(connection, reader, to_broker))
                group.create_task(self._pass_responses(connection, from_broker, writer))
        except* (OSError, EOFError):
            pass
        finally:
            connection.close()
            self._changed.set()

    async def _pass_requests(
        self,
        connection: ProxiedConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            frame = await read_frame(reader)
            key, version, number = HEAD.unpack_from(frame)
            if not connection.requests:
                connection.client_id = client_id_of(frame)
            connection.requests[key] += 1
            connection.sent.append((key, PREFIX + len(frame)))
            connection.waiting[number] = key, version
            self.passed(connection, frame, key, version)
            self._changed.set()
            await write_frame(writer, frame)

    async def _pass_responses(
        self,
        connection: ProxiedConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            frame = await read_frame(reader)
            key, version = connection.waiting.pop(int.from_bytes(frame[:4], "big"), (-1, 0))
            if key in self.altered:
                frame = self._altered(connection, frame, key, version)
            connection.received.append((key, PREFIX + len(frame)))
            await write_frame(writer, frame)
            self._changed.set()

    def _altered(
        self, connection: ProxiedConnection, frame: bytes, key: int, version: int
    ) -> bytes:
        kind = self.altered[key]
        size = 4 + kind.header_version(version)  # The second header has an empty list of tags.
        response = kind.decode(frame[size:], version)
        self.alter(connection, key, response)
        return frame[:size] + b"".join(map(bytes, response.encode(version)))

    def passed(self, connection: ProxiedConnection, frame: bytes, key: int, version: int) -> None:
        """Handle a request that is passed on."""

    def alter(self, connection: ProxiedConnection, key: int, response: Any) -> None:
        """Change a response before it is passed on."""
        if key == ApiKey.METADATA:
            self._alter_metadata(connection, response)
        elif key == ApiKey.FIND_COORDINATOR:
            for each in (response, *response.coordinators):
                if each.port > 0:
                    each.host, each.port = "127.0.0.1", self._ports[1]

    def _alter_metadata(self, connection: ProxiedConnection, response: MetadataResponse) -> None:
        for each in response.brokers:
            each.host, each.port = "127.0.0.1", self._ports[1]
        if self._to_refuse and not connection.is_bootstrap:
            self._to_refuse -= 1
            self.refused += 1
            response.error_code = REQUIRED
            response.brokers, response.topics = [], []


def client_id_of(frame: bytes) -> str:
    """Return the client id in a request."""
    return frame[HEAD.size + 2 : body_of(frame)].decode()


def body_of(frame: bytes) -> int:
    """Return the index after the client id in a request."""
    size = int.from_bytes(frame[HEAD.size : HEAD.size + 2], "big", signed=True)
    return HEAD.size + 2 + max(size, 0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4, "big") + frame)
    await writer.drain()
