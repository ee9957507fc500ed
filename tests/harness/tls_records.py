"""A TCP proxy that notes the TLS records in both directions, without decrypting them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

DATA: Final = 23
"""The type of records with data. In TLS 1.3, every encrypted record has this outer type."""
ALERT_BYTES: Final = 19
"""The size of an encrypted alert of TLS 1.3: two bytes, the true type, and a tag of 16 bytes.

The shortest request of Kafka's protocol is larger, and so is a message of a handshake.
"""


REFUSAL_BYTES: Final = 64
"""A size above that of a Java broker's refusal of a certificate, and below that of a response.

A response to ApiVersions has hundreds of bytes.
"""


class Record(NamedTuple):
    """One TLS record."""

    of_client: bool
    kind: int
    size: int


class RecordProxy:
    """A proxy in front of one address. `record_proxy` starts one."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.servers = ""
        """The address of the proxy."""
        self.records: list[Record] = []
        """The records of all connections, in the order in which the proxy received them."""
        self.connections = 0

    def data(self, *, of_client: bool) -> list[Record]:
        """Return the records of one side that may have data: encrypted ones larger than alerts."""
        return [
            record
            for record in self.records
            if record.of_client == of_client and record.kind == DATA and record.size > ALERT_BYTES
        ]

    def data_after_handshake(self) -> list[Record]:
        """Return the broker's records with data after the client's first encrypted record.

        This record ends the client's handshake. In TLS 1.3, a client sends requests before it
        knows whether its certificate is accepted.
        """
        kinds = [record.of_client and record.kind == DATA for record in self.records]
        later = self.records[kinds.index(True) :] if True in kinds else []
        return [r for r in later if not r.of_client and r.kind == DATA and r.size > REFUSAL_BYTES]

    async def serve(self, listening: socket.socket) -> None:
        """Accept connections until the task is cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                here, _ = await loop.sock_accept(listening)
                self.connections += 1
                group.create_task(self._connect(here))

    async def _connect(self, here: socket.socket) -> None:
        with here, socket.socket() as there:
            there.setblocking(False)
            await asyncio.get_running_loop().sock_connect(there, self._target)
            await asyncio.gather(self._carry(here, there, True), self._carry(there, here, False))

    async def _carry(self, source: socket.socket, to: socket.socket, of_client: bool) -> None:
        # asyncio's streams would drop data that arrived before a reset, so use the socket directly.
        loop = asyncio.get_running_loop()
        unread = b""
        with contextlib.suppress(OSError):
            while piece := await loop.sock_recv(source, 1 << 16):
                unread = self._note(unread + piece, of_client)
                await loop.sock_sendall(to, piece)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def _note(self, data: bytes, of_client: bool) -> bytes:
        """Note the records in the data, and return what is not a whole record yet."""
        while len(data) >= 5:
            size = int.from_bytes(data[3:5], "big")
            if len(data) < 5 + size:
                break
            self.records.append(Record(of_client, data[0], size))
            data = data[5 + size :]
        return data


@contextlib.asynccontextmanager
async def record_proxy(target: str) -> AsyncIterator[RecordProxy]:
    """Start a proxy for an address such as "127.0.0.1:9092"."""
    proxy = RecordProxy(target)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        proxy.servers = f"127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(proxy.serve(listening))
        try:
            yield proxy
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
