"""Ports of servers other than Kafka brokers: the error says what is wrong."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from aiokclient import Client
from aiokclient.errors import KafkaError
from aiokclient.testing import EmbeddedCluster

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a server on the loopback interface, and yield its address."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"\x7f" * 100_000)
    await writer.drain()


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


def certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def failure(address: str, **options: object) -> KafkaError:
    """Return the error that the start of a client at the address raises."""
    options.setdefault("default_api_timeout_ms", 20_000)
    client = Client(bootstrap_servers=address, **options)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as raised:
        await client.start()
    await client.close()
    return raised.value


@pytest.mark.fault(29)
async def test_an_http_server_is_explained() -> None:
    async with serving(http) as address:
        error = await failure(address)
    assert "HTTP" in str(error)
    assert address in str(error)


@pytest.mark.fault(29)
async def test_a_server_that_sends_garbage_is_explained() -> None:
    async with serving(garbage) as address:
        error = await failure(address)
    assert address in str(error)


@pytest.mark.fault(29)
async def test_a_server_that_hangs_up_is_explained() -> None:
    async with serving(nothing) as address:
        error = await failure(address, default_api_timeout_ms=1_000)
    assert address in str(error)


@pytest.mark.fault(29)
async def test_a_start_with_plaintext_at_a_tls_port_says_so() -> None:
    async with serving(nothing, certificate()) as address:
        error = await failure(address)
    assert "TLS" in str(error)


@pytest.mark.fault(29)
async def test_a_start_with_tls_at_a_plaintext_port_names_the_address() -> None:
    async with EmbeddedCluster() as cluster:
        error = await failure(cluster.bootstrap_servers, security=ssl.create_default_context())
    assert "TLS" in str(error)
    assert cluster.bootstrap_servers in str(error)
