"""Tests of transports that close later than they report, or hold more data than they report."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from aiokclient.errors import DisconnectedError
from aiokclient.network.connection import BrokerConnection
from aiokclient.protocol import messages


@pytest.fixture
async def connection() -> AsyncIterator[BrokerConnection]:
    loop = asyncio.get_running_loop()
    accepted = asyncio.Event()

    class Peer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set()

    server = await loop.create_server(Peer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, made = await loop.create_connection(
        lambda: BrokerConnection(1, host, port, client_id="test"), host, port
    )
    made.end_setup({18: (0, 3), 0: (3, 9)}, 1 << 20)
    # Both sockets exist now, so the client's file descriptor differs from that of the other end.
    await accepted.wait()
    yield made
    server.close()


@pytest.mark.parametrize("expect_response", [True, False])
async def test_a_closing_transport_gets_no_data(
    connection: BrokerConnection, expect_response: bool
) -> None:
    transport = connection._transport
    assert transport is not None
    descriptor = transport.get_extra_info("socket").fileno()
    transport.abort()  # This has the same effect as a reset by the peer.
    assert not connection.closed
    answer = connection.send(
        messages.ProduceRequest(), timeout_s=10, expect_response=expect_response
    )
    assert isinstance(answer.exception(), DisconnectedError)
    await connection.wait_closed()
    assert connection.closed
    loop = asyncio.get_running_loop()
    # The loop does not watch the file descriptor any more, because the next socket may reuse it.
    assert not loop.remove_writer(descriptor)
    assert not loop.remove_reader(descriptor)


class Slow(asyncio.Protocol):
    """A server protocol that sends one message, and reads nothing until the test allows it."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(b"\0\0\0\1x")
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(exc)


async def test_data_that_tls_has_encrypted_is_still_sent() -> None:
    """The request expects no response, so no response shows whether the data arrived."""
    loop, authority, peers = asyncio.get_running_loop(), trustme.CA(), list[Slow]()
    at_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(at_server)
    at_client = ssl.create_default_context()
    authority.configure_trust(at_client)

    def accept() -> Slow:
        peers.append(Slow())
        return peers[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0, ssl=at_server)
    host, port = server.sockets[0].getsockname()
    transport, made = await loop.create_connection(
        lambda: BrokerConnection(1, host, port, client_id="test"),
        *(host, port),
        ssl=at_client,
        server_hostname="localhost",
    )
    # A socket that is closed before it has read everything discards what it was to send.
    await made.exchange_frame([b""])
    made.end_setup({0: (3, 9)}, 1 << 20)
    encrypts: Any = getattr(transport, "_ssl_protocol", None)
    # uvloop does not expose its inner transport.
    below = None if encrypts is None else encrypts._transport
    data = messages.produce.PartitionProduceData(index=0, records=bytes(4000))
    topic = messages.produce.TopicProduceData(name="t", partition_data=[data])
    request = messages.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
    count = 0
    while below is None or not below.get_write_buffer_size():
        if not made.send(request, timeout_s=10, expect_response=False).done():
            assert below is None
            break
        count += 1
    assert below is None or not transport.get_write_buffer_size()
    made.close()
    (peer,) = peers
    peer.transport.resume_reading()
    assert await peer.ended is None
    size = 4 + int.from_bytes(peer.received[:4])
    assert len(peer.received) == count * size
    await made.wait_closed()
    server.close()
