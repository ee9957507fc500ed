"""A transport may be closing a turn of the loop before it says so."""

import asyncio
from collections.abc import AsyncIterator

import pytest

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
    made.ready({18: (0, 3), 0: (3, 9)}, 1 << 20)
    # Its socket has a number by now, and will not get that of the other end.
    await accepted.wait()
    yield made
    server.close()


@pytest.mark.parametrize("expect_response", [True, False])
async def test_nothing_is_given_to_it(connection: BrokerConnection, expect_response: bool) -> None:
    transport = connection._transport
    assert transport is not None
    descriptor = transport.get_extra_info("socket").fileno()
    transport.abort()  # as it does itself when the peer has reset the connection
    assert not connection.closed
    answer = connection.send(
        messages.ProduceRequest(), timeout_s=10, expect_response=expect_response
    )
    assert isinstance(answer.exception(), DisconnectedError)
    await connection.wait_closed()
    assert connection.closed
    loop = asyncio.get_running_loop()
    # Nobody watches the number any more, which the next socket may get.
    assert not loop.remove_writer(descriptor)
    assert not loop.remove_reader(descriptor)
