"""Tests that the limit on unsent bytes holds for every Python, event loop, and transport."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from scripted import MemoryTransport

from aiokclient.network import transport as transports
from aiokclient.network.connection import BrokerConnection
from aiokclient.protocol import messages

LIMIT = 4 << 20
"""A limit that is larger than the transport's own limit plus one request."""
REQUESTS = 64
RECORDS = 1 << 20


def request() -> messages.ProduceRequest:
    data = messages.produce.PartitionProduceData(index=0, records=bytes(RECORDS))
    topic = messages.produce.TopicProduceData(name="t", partition_data=[data])
    return messages.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])


class Stopped(asyncio.Protocol):
    """A peer that reads nothing until the test allows it."""

    def __init__(self, connected: asyncio.Future["Stopped"]) -> None:
        self.connected = connected
        self.received = 0
        self.complete = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.pause_reading()
        self.connected.set_result(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.received >= REQUESTS * RECORDS and not self.complete.done():
            self.complete.set_result(None)


async def fill_a_connection_whose_peer_reads_nothing(tls: bool) -> None:
    loop = asyncio.get_running_loop()
    connected: asyncio.Future[Stopped] = loop.create_future()
    at_server = at_client = None
    if tls:
        authority = trustme.CA()
        at_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(at_server)
        at_client = ssl.create_default_context()
        authority.configure_trust(at_client)

    server = await loop.create_server(lambda: Stopped(connected), "127.0.0.1", 0, ssl=at_server)
    host, port = server.sockets[0].getsockname()
    transport, made = await loop.create_connection(
        lambda: BrokerConnection(1, host, port, client_id="test"),
        *(host, port),
        ssl=at_client,
        server_hostname="localhost" if tls else None,
    )
    made.end_setup({0: (3, 9)}, 1 << 20)
    message = request()
    futures = [made.send(message, timeout_s=60, expect_response=False) for _ in range(REQUESTS)]
    held = [future for future in futures if not future.done()]
    assert held
    assert transport.get_write_buffer_size() < LIMIT
    peer = await connected
    peer.transport.resume_reading()
    await asyncio.gather(*futures)
    await peer.complete
    made.abort()
    await made.wait_closed()
    server.close()


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
async def test_requests_are_held_when_the_peer_reads_nothing(tls: bool) -> None:
    await fill_a_connection_whose_peer_reads_nothing(tls)


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_requests_are_held_under_uvloop_when_the_peer_reads_nothing(tls: bool) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fill_a_connection_whose_peer_reads_nothing(tls))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((3, 11, 9), False),
        ((3, 12, 0), True),
        ((3, 12, 8), True),
        ((3, 12, 9), False),
        ((3, 13, 0), True),
        ((3, 13, 1), True),
        ((3, 13, 2), False),
        ((3, 14, 0), False),
    ],
)
def test_the_pythons_without_a_limit_are_known(
    version: tuple[int, int, int], expected: bool
) -> None:
    assert transports._never_pauses(version) is expected


@pytest.mark.parametrize("parts", [[b"a" * 20_000, b"b" * 20_000, b""], [b"", b"a" * 50_000]])
@pytest.mark.parametrize("never_pauses", [False, True])
@pytest.mark.parametrize("buffered", [0, 1])
async def test_all_segments_are_written_in_order_when_some_are_empty(
    connect: Callable[..., tuple[BrokerConnection, MemoryTransport]],
    monkeypatch: pytest.MonkeyPatch,
    parts: list[bytes],
    never_pauses: bool,
    buffered: int,
) -> None:
    monkeypatch.setattr(transports, "NEVER_PAUSES", never_pauses)
    connection, transport = connect()
    transport.unwritten = buffered
    transports.write_segments(transport, parts, sum(map(len, parts)))
    assert transport.sent == b"".join(parts)
    connection.close()


class Joining(asyncio.WriteTransport):
    """A transport with the inherited `writelines`, as that of Python 3.11 for plain sockets."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize("size", [1_000, 49_000, 131_072])
def test_large_segments_are_never_copied_into_one(size: int) -> None:
    transport = Joining()
    parts = [bytes([number]) * size for number in range(3)]
    transports.write_segments(transport, parts, sum(map(len, parts)))
    assert transport.written == (parts if size >= transports.LARGE_PIECE else [b"".join(parts)])
