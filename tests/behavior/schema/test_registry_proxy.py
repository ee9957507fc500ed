"""A registry that is reached through an HTTP proxy."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from registry_stub import RegistryStub

from aiokclient.config.security import Tls
from aiokclient.errors import (
    ConfigError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    TlsError,
)
from aiokclient.events import RegistryOutage
from aiokclient.schema import Schema, SchemaRegistry
from aiokclient.testing.certificates import Certificates

STRING = Schema('"string"')
PASSWORD = "hunter2-of-the-proxy"


class Proxy:
    """An HTTP proxy: a tunnel for CONNECT, and one request of each connection for other methods."""

    def __init__(self, authorization: str | None = None) -> None:
        self.authorization = authorization
        self.requests: list[str] = []
        """The first line of each request, after which `headers` has its headers."""
        self.headers: list[dict[str, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _accept(self, reader: Any, writer: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _connect(self, host: str | None, port: int | None) -> Any:
        there, to_there = await asyncio.open_connection(host, port)
        self._writers.append(to_there)
        return there, to_there

    async def _serve(self, reader: Any, writer: Any) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines)
        }
        self.requests.append(first)
        self.headers.append(headers)
        if headers.get("proxy-authorization") != self.authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        method, target, version = first.split()
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            there, to_there = await self._connect(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            parts = urlsplit(target)
            there, to_there = await self._connect(parts.hostname, parts.port)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            kept = "".join(f"{line}\r\n" for line in lines if not line.lower().startswith("proxy-"))
            to_there.write(f"{method} {path} {version}\r\n{kept}\r\n".encode())
        await asyncio.gather(_pass(reader, to_there), _pass(there, writer))


async def _pass(reader: Any, writer: Any) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_requests_go_through_a_proxy(stub: RegistryStub) -> None:
    async with Proxy(basic("ann", PASSWORD)) as proxy:
        through = f"http://ann:{PASSWORD}@{proxy.address}"
        async with SchemaRegistry(stub.url, proxy=through, timeout=10.0) as registry:
            registered = await registry.register("orders", STRING)
            assert registered.id is not None
            assert (await registry.by_id(registered.id)).schema == STRING
            assert PASSWORD not in repr(registry)
    assert proxy.requests[0] == f"POST {stub.url}/subjects/orders/versions HTTP/1.1"
    assert proxy.headers[0]["host"] == stub.url.removeprefix("http://")


async def test_a_registry_with_tls_is_reached_through_a_tunnel() -> None:
    certificates = await asyncio.to_thread(Certificates, ["localhost", "127.0.0.1"])
    server = certificates.server_context("valid", client_certificate=False)
    trusting = Tls(cadata=certificates.authority)
    async with RegistryStub(tls=server) as stub, Proxy() as proxy:
        options: dict[str, Any] = {"proxy": proxy.url, "timeout": 10.0}
        async with SchemaRegistry(
            stub.url, security=trusting, basic_auth="ann:secret", **options
        ) as registry:
            for number in range(3):
                await registry.register("orders", Schema(str(number)))
        assert stub.requests[0].headers["authorization"] == basic("ann", "secret")
        assert proxy.requests == [f"CONNECT {stub.url.removeprefix('https://')} HTTP/1.1"]
        assert "authorization" not in proxy.headers[0]
        async with SchemaRegistry(stub.url, security=Tls(), **options) as registry:
            with pytest.raises(TlsError, match=f"registry at {stub.url} failed"):
                await registry.by_id(1)


@pytest.mark.fault(60)
async def test_what_a_proxy_refuses_is_named(stub: RegistryStub) -> None:
    certificates = await asyncio.to_thread(Certificates, ["127.0.0.1"])
    server = certificates.server_context("valid", client_certificate=False)
    async with Proxy(basic("ann", PASSWORD)) as proxy, RegistryStub(tls=server) as secured:
        wrong = f"http://ann:wrong-password@{proxy.address}"
        async with SchemaRegistry(stub.url, proxy=wrong, timeout=1.0) as registry:
            with pytest.raises(SchemaRegistryError) as refused:
                await registry.by_id(1)
            assert refused.value.status == 407
        tls = Tls(cadata=certificates.authority)
        async with SchemaRegistry(secured.url, proxy=wrong, security=tls, timeout=1.0) as registry:
            expected = f"the proxy {proxy.url} has not connected: 407"
            with pytest.raises(SchemaRegistryUnavailableError, match=expected) as caught:
                await registry.by_id(1)
            assert "wrong-password" not in str(caught.value)
    async with SchemaRegistry(stub.url, proxy=proxy.url, timeout=1.0) as registry:
        events = registry.events()
        expected = f"the proxy {proxy.url} has not connected: .*Connect"
        with pytest.raises(SchemaRegistryUnavailableError, match=expected):
            await registry.by_id(1)
        event = await anext(events)
        assert isinstance(event, RegistryOutage)
        assert (event.url, event.broker) == (stub.url, None)
        assert isinstance(event.cause, ConnectionError)
    assert stub.requests == []


@pytest.mark.parametrize(
    "proxy", ["proxy:3128", "https://proxy:3128", "http://proxy/path", "socks5://proxy:1", "", 7]
)
def test_a_proxy_that_is_no_url_of_one_is_refused(proxy: Any) -> None:
    with pytest.raises(ConfigError, match="proxy"):
        SchemaRegistry("http://registry:8081", proxy=proxy)


async def test_a_proxy_may_be_among_the_properties(stub: RegistryStub) -> None:
    async with Proxy() as proxy:
        host, _, port = proxy.address.partition(":")
        for properties in (
            {"schema.registry.proxy": proxy.url},
            {"schema.registry.proxy.host": host, "schema.registry.proxy.port": port},
        ):
            async with SchemaRegistry.from_properties(
                {"schema.registry.url": stub.url, **properties}
            ) as registry:
                await registry.subjects()
        assert len(proxy.requests) == 2
    with pytest.raises(ConfigError, match=r"proxy\.port: It is missing"):
        SchemaRegistry.from_properties(
            {"schema.registry.url": stub.url, "schema.registry.proxy.host": "proxy"}
        )


async def test_requests_are_counted_by_url_and_outcome(stub: RegistryStub) -> None:
    async with SchemaRegistry(stub.url, timeout=10.0) as registry:
        assert registry.metrics() == {}
        stub.answer(status=503)
        await registry.register("orders", STRING)
        stub.answer(hangs_up=True)
        await registry.subjects()
        metrics = registry.metrics()
    name = f"schema.registry.requests{{outcome=%s,url={stub.url}}}"
    assert {key: value for key, value in metrics.items() if "requests" in key} == {
        name % "200": 2,
        name % "503": 1,
        name % "none": 1,
    }
    (took,) = registry.metric_values("schema.registry.request.seconds")
    assert took.labels == {"url": stub.url}
    assert took.unit == "s"
