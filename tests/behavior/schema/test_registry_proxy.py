"""A registry that is reached through an HTTP proxy."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from registry_proxy import RegistryProxy
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


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_requests_go_through_a_proxy(stub: RegistryStub) -> None:
    async with RegistryProxy(basic("ann", PASSWORD)) as proxy:
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
    async with RegistryStub(tls=server) as stub, RegistryProxy() as proxy:
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
    async with RegistryProxy(basic("ann", PASSWORD)) as proxy, RegistryStub(tls=server) as secured:
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
    async with RegistryProxy() as proxy:
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
