"""The errors of `start` when the server at an address is not a usable Kafka broker.

See also `tests/faults/proxy/test_wrong_ports.py` and `tests/faults/kafka/test_tls.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from loops import VARIABLE

from aiokclient import Admin, Client, Consumer, Producer, Tls
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.errors import BootstrapError, ConnectionSetupError, KafkaError, TlsError

Make = Callable[..., Lifecycle]
CLIENTS: list[Make] = [Client, Producer, Consumer, Admin]


@pytest.fixture
async def one_try(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Allow only one attempt, by moving the loop's clock past the deadline at the first failure."""
    loop = asyncio.get_running_loop()
    if os.environ.get(VARIABLE) == "uvloop":
        pytest.skip("the timers of uvloop do not follow its time()")
    time = loop.time

    class Over(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.__dict__.get("event") == "bootstrap_failed":
                monkeypatch.setattr(loop, "time", lambda: time() + 1_000)

    handler, logger = Over(), logging.getLogger("aiokclient")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


async def start_failure(make: Make, **options: Any) -> KafkaError:
    made = make(**options)
    with pytest.raises(KafkaError) as caught:
        await made.start()
    await made.close()
    return caught.value


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a server that answers any request with these bytes, and yield its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            writer.write(answer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("make", CLIENTS)
async def test_start_explains_a_tls_port_used_with_plaintext(
    make: Make, server_tls: ssl.SSLContext
) -> None:
    async with answering(b"", server_tls) as address:
        error = await start_failure(make, bootstrap_servers=address)
    assert type(error) is ConnectionSetupError
    assert f"{address} is a TLS port, but the client uses plaintext" in str(error)
    assert "Set security=Tls()" in str(error)


@pytest.mark.parametrize("make", CLIENTS)
async def test_start_explains_a_plaintext_port_used_with_tls(make: Make, servers: str) -> None:
    error = await start_failure(make, bootstrap_servers=servers, security=Tls())
    assert type(error) is ConnectionSetupError
    assert f"{servers} is a plaintext port, but the client uses TLS" in str(error)
    assert "Set security=Plaintext()" in str(error)


@pytest.mark.parametrize("make", CLIENTS)
async def test_start_explains_an_http_server(make: Make) -> None:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        error = await start_failure(make, bootstrap_servers=address)
    assert type(error) is ConnectionSetupError
    assert f"{address} is an HTTP server, not a Kafka broker" in str(error)
    assert "Check the port in bootstrap_servers" in str(error)


async def test_start_explains_an_untrusted_certificate(server_tls: ssl.SSLContext) -> None:
    async with answering(b"", server_tls) as address:
        error = await start_failure(Producer, bootstrap_servers=address, security=Tls())
    assert type(error) is TlsError
    assert f"The certificate of {address} is not accepted" in str(error)
    assert "the certificate authority given to Tls()" in str(error)


class NoSuchName:
    """A connector for which no name resolves."""

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        raise OSError(-2, "Name or service not known")

    async def connect(self, *args: Any, **options: Any) -> asyncio.Transport:
        raise AssertionError("a connection without a resolved name")


@pytest.mark.usefixtures("one_try")
@pytest.mark.parametrize("make", CLIENTS)
async def test_start_explains_a_name_that_does_not_resolve(make: Make) -> None:
    options = {"bootstrap_servers": "kafka.invalid:9092", "connector": NoSuchName()}
    error = await start_failure(make, **options)
    assert type(error) is BootstrapError
    assert isinstance(error, TimeoutError)
    assert "name kafka.invalid cannot be resolved" in str(error)
    assert "Check bootstrap_servers" in str(error)


@pytest.mark.usefixtures("one_try")
async def test_start_explains_a_name_that_the_system_cannot_resolve() -> None:
    options = {"socket_connection_setup_timeout_ms": 1_000}  # A resolver may take several seconds.
    error = await start_failure(Client, bootstrap_servers="kafka.invalid:9092", **options)
    assert type(error) is BootstrapError
    assert re.search("kafka.invalid.* (cannot be resolved|took over)", str(error))


@pytest.mark.usefixtures("one_try")
@pytest.mark.parametrize("make", CLIENTS)
async def test_start_explains_a_refused_connection(make: Make, unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    error = await start_failure(make, bootstrap_servers=address)
    assert type(error) is BootstrapError
    assert f"{address}" in str(error)
    assert "Connection refused" in str(error)
    assert [attempt[0] for attempt in error.attempts] == [address]


async def test_start_needs_only_one_good_address(servers: str, unused_tcp_port: int) -> None:
    several = f"127.0.0.1:{unused_tcp_port},{servers}"
    async with Producer(bootstrap_servers=several) as producer:
        await producer.send("orders", b"v")
