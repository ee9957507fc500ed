"""Connections to a broker of the embedded cluster that receive data without a socket."""

import asyncio
from typing import Any

from aiokclient.protocol.framing import ClientPipeline
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.connections.connection import BrokerProtocol


class FakeTransport(asyncio.Transport):
    """A transport that stores what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.written: list[bytes] = []
        self.aborted = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))


def connection_of(cluster: EmbeddedCluster, node_id: int = 1) -> BrokerProtocol:
    """Return a new connection to a broker, without a transport."""
    broker = cluster._brokers[node_id]
    return BrokerProtocol(broker, cluster._state, broker, "PLAINTEXT")


def frame(request: Any, version: int | None = None, correlation_ids: int = 1) -> bytes:
    """Return frames of the same request, one for each of `correlation_ids` correlation ids."""
    pipeline = ClientPipeline("bounds")
    version = request.max_version if version is None else version
    return b"".join(
        b"".join(pipeline.encode_request(request, version)[1]) for _ in range(correlation_ids)
    )


def feed(protocol: BrokerProtocol, data: bytes) -> int:
    """Deliver bytes as a transport does, until the connection pauses reading.

    Return how many it read.
    """
    transport: Any = protocol._transport
    start = 0
    while start < len(data) and transport.reading:
        room = protocol.get_buffer(-1)
        count = min(len(room), len(data) - start)
        room[:count] = data[start : start + count]
        protocol.buffer_updated(count)
        start += count
    return start
