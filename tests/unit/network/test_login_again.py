"""A repeated login on an open connection: what the connection writes in the meantime."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from scripted import MemoryTransport

from aiokclient import SaslPlain
from aiokclient.errors import KafkaError, SaslAuthenticationError
from aiokclient.metrics import Metrics
from aiokclient.network.authentication import authenticate_again
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.login import Sasl
from aiokclient.network.pool import ConnectionPool, PoolOwner
from aiokclient.network.sasl import Login
from aiokclient.network.setup import ConnectionSettings
from aiokclient.network.traffic import Traffic
from aiokclient.policy import Backoff
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


class SlowSasl(Sasl):
    """A mechanism whose token arrives when the test lets it."""

    def __init__(self) -> None:
        super().__init__("PLAIN", PLAIN)
        self.gate = asyncio.Event()
        self.outcomes: list[KafkaError | None] = []

    async def prepare_login(self, host: str, timeout_s: float) -> Login:
        await self.gate.wait()
        return Login(PLAIN)

    def on_outcome(self, login: Login, error: KafkaError | None) -> None:
        self.outcomes.append(error)


@pytest.mark.parametrize("code", [0, 58])
async def test_outcome_of_a_repetition_is_told_to_the_owner_of_the_token(
    connect: Connect, code: int
) -> None:
    connection, transport = connect()
    connection.broker.api_versions = {
        ApiKey.SASL_AUTHENTICATE: (0, 1),
        ApiKey.SASL_HANDSHAKE: (0, 1),
    }
    sasl = SlowSasl()
    login = asyncio.ensure_future(authenticate_again(connection, sasl, Login(PLAIN), 5.0))
    await turns()
    answer(transport, 0, HANDSHAKE)
    await turns()
    answer(transport, 1, code.to_bytes(2, "big") + AUTHENTICATE[2:])
    await login
    assert connection.closed is (code != 0)
    assert [type(error) for error in sasl.outcomes] == [
        SaslAuthenticationError if code else type(None)
    ]
    connection.close()


async def test_repetition_does_not_count_as_failed_when_the_connection_closes_before_its_token(
    connect: Connect, settings: Callable[..., ConnectionSettings]
) -> None:
    traffic, sasl = Traffic(Metrics(), "test"), SlowSasl()
    connection, transport = connect(traffic=traffic)
    pool = ConnectionPool(
        1, "memory", 9092, settings(), owner=PoolOwner(), backoff=Backoff(), setup=Backoff(5, 5),
        rng=random.Random(1),
    )  # fmt: skip
    renewal = asyncio.ensure_future(
        pool._log_in_again(connection, sasl, asyncio.get_running_loop().time())
    )
    await turns()
    connection.close()
    sasl.gate.set()
    await renewal
    assert written(transport) == []
    assert sasl.outcomes == []
    assert traffic.own_metrics.counter("reauthentications.failed").value == 0
