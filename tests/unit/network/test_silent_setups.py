"""A server that accepts a connection and then is silent: the error names what it did not answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokclient import Producer, SaslScram, Tls
from aiokclient.errors import BootstrapError
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster

HANDSHAKE = "did not answer the TLS handshake within"
ADVICE = "Check that it speaks TLS on this port."


@asynccontextmanager
async def silent_server(tls: ssl.SSLContext | None = None) -> AsyncGenerator[str, None]:
    """Run a server that accepts connections, reads everything, and never answers."""
    connections: set[asyncio.StreamWriter] = set()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        with contextlib.suppress(OSError):
            while await reader.read(1000):
                pass
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in connections:
            each.close()


async def error_of_start(address: str, **options: Any) -> BootstrapError:
    limits: dict[str, Any] = {
        "default_api_timeout_ms": 1200,
        "request_timeout_ms": 500,
        "socket_connection_setup_timeout_ms": 500,
        "socket_connection_setup_timeout_max_ms": 500,
    }
    producer: Producer[Any, Any] = Producer(bootstrap_servers=address, **limits | options)
    with pytest.raises(BootstrapError) as raised:
        await producer.start()
    await producer.close()
    return raised.value


async def test_server_that_does_not_answer_the_tls_handshake_is_said_to_have_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with silent_server() as address:
        error = await error_of_start(address, security=Tls())
    assert f"{address} accepted the connection, but {HANDSHAKE} 0." in str(error)
    assert str(error).count(ADVICE) == 1
    assert str(error).count(address) == 1
    (line,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert HANDSHAKE in line.getMessage()
    assert ADVICE.rstrip(".") in line.getMessage()


async def test_tls_handshake_without_an_answer_is_named_at_an_earlier_deadline() -> None:
    async with silent_server() as address:
        error = await error_of_start(
            address, security=Tls(), socket_connection_setup_timeout_ms=10_000
        )
    assert "has not answered the TLS handshake yet (does it speak TLS on this port?)" in str(error)


async def test_sasl_over_tls_without_an_answer_names_the_handshake() -> None:
    async with silent_server() as address:
        error = await error_of_start(address, security=SaslScram("u", "p", tls=Tls()))
    assert HANDSHAKE in str(error)


async def test_server_without_tls_that_is_silent_is_named_with_its_first_request() -> None:
    async with silent_server() as address:
        error = await error_of_start(address)
    assert "accepted the connection, but did not answer ApiVersions within 0.5 s" in str(error)
    assert "TLS" not in str(error)


LISTENERS = {
    "SASL_PLAINTEXT": BrokerListener(mechanisms=("SCRAM-SHA-512",), users={"u": "p"}),
    "SASL_SSL": BrokerListener(tls=True, mechanisms=("SCRAM-SHA-512",), users={"u": "p"}),
}


@pytest.mark.parametrize("name", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("api", "since", "step"),
    [
        (ApiKey.API_VERSIONS, 1, "ApiVersions"),
        (ApiKey.SASL_HANDSHAKE, 1, "SaslHandshake for SCRAM-SHA-512"),
        (ApiKey.SASL_AUTHENTICATE, 1, "SaslAuthenticate, message 1 of SCRAM-SHA-512"),
        (ApiKey.SASL_AUTHENTICATE, 2, "SaslAuthenticate, message 2 of SCRAM-SHA-512"),
        (ApiKey.METADATA, 1, "Metadata"),
    ],
)
@pytest.mark.parametrize("setup_ms", [500, 10_000])
async def test_step_of_a_setup_that_has_no_answer_is_named(
    name: str, api: ApiKey, since: int, step: str, setup_ms: int
) -> None:
    async with EmbeddedCluster(listeners=LISTENERS) as cluster:
        tls = cluster.client_tls if name.endswith("SSL") else None
        security = SaslScram("u", "p", tls=tls)
        seen = 0

        def is_due(message: Any) -> bool:
            nonlocal seen
            seen += 1
            return seen >= since and (since == 1 or seen % 2 == 0)

        cluster.delay(api, 60, where=is_due)
        error = await error_of_start(
            cluster.bootstrap_servers_for(name),
            security=security,
            request_timeout_ms=setup_ms,
            socket_connection_setup_timeout_ms=setup_ms,
            socket_connection_setup_timeout_max_ms=setup_ms,
        )
        cluster.reset()
    assert step in str(error)
    # A connection whose setup is complete has obviously been accepted.
    is_set_up = api is ApiKey.METADATA and setup_ms < 1000
    assert ("accepted the connection, but " in str(error)) != is_set_up
