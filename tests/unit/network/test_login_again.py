"""A repeated login on an open connection: what the connection writes in the meantime."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from scripted import MemoryTransport

from aiokclient import SaslPlain
from aiokclient.network.authentication import authenticate_again
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.login import Sasl
from aiokclient.network.sasl import Login
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.metadata import MetadataRequest

Connect = Callable[..., tuple[BrokerConnection, MemoryTransport]]
PLAIN = SaslPlain("alice", "secret")
HANDSHAKE = b"\0\0" + b"\0\0\0\0"
AUTHENTICATE = b"\0\0" + b"\xff\xff" + b"\0\0\0\0" + b"\0" * 8
"""The bodies of successful responses."""


def written(transport: MemoryTransport) -> list[ApiKey]:
    """Return the APIs of the requests that were written."""
    data, apis = transport.sent, []
    while data:
        size = int.from_bytes(data[:4], "big")
        apis.append(ApiKey(int.from_bytes(data[4:6], "big")))
        data = data[4 + size :]
    return apis


def answer(transport: MemoryTransport, correlation_id: int, body: bytes) -> None:
    frame = correlation_id.to_bytes(4, "big") + body
    transport.feed(len(frame).to_bytes(4, "big") + frame)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_are_held_from_the_handshake_to_the_end_of_a_repeated_login(
    connect: Connect,
) -> None:
    connection, transport = connect()
    connection.broker.api_versions = {
        ApiKey.SASL_AUTHENTICATE: (0, 1),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.METADATA: (1, 1),
    }
    login = asyncio.ensure_future(
        authenticate_again(connection, Sasl("PLAIN", PLAIN), Login(PLAIN), 5.0)
    )
    await turns()
    held = [connection.send(MetadataRequest(topics=[]), timeout_s=5.0) for _ in range(2)]
    assert written(transport) == [ApiKey.SASL_HANDSHAKE]
    answer(transport, 0, HANDSHAKE)
    await turns()
    held.append(connection.send(MetadataRequest(topics=[]), timeout_s=5.0))
    assert written(transport) == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    answer(transport, 1, AUTHENTICATE)
    await login
    assert written(transport)[2:] == [ApiKey.METADATA] * 3
    connection.close()
    for future in held:
        with pytest.raises(Exception, match="closed"):
            await future


async def test_a_refused_repetition_writes_nothing_else(connect: Connect) -> None:
    connection, transport = connect()
    connection.broker.api_versions = {
        ApiKey.SASL_AUTHENTICATE: (0, 1),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.METADATA: (1, 1),
    }
    again: Any = authenticate_again(connection, Sasl("PLAIN", PLAIN), Login(PLAIN), 5.0)
    login = asyncio.ensure_future(again)
    await turns()
    held = connection.send(MetadataRequest(topics=[]), timeout_s=5.0)
    answer(transport, 0, HANDSHAKE)
    await turns()
    answer(transport, 1, b"\0\x3a" + AUTHENTICATE[2:])
    await login
    assert connection.closed
    assert written(transport) == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    with pytest.raises(Exception, match="refused"):
        await held
