"""Visits of the tour of secrets: schema registries."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any
from urllib.parse import quote

from registry_proxy import RegistryProxy
from registry_stub import RegistryStub
from secret_endpoints import granting
from secret_tour import PASSWORD, SECRETS, WRONG, Tour
from token_server import refused, token_server

from aiokclient import OAuthToken, OidcClientCredentials
from aiokclient.schema import Schema, SchemaRegistry

__all__ = ["REGISTRIES"]

BEARER, CLIENT_SECRET = SECRETS["bearer token"], SECRETS["client secret"]
HEADER = SECRETS["foreign token"]
STRING = Schema('"string"')


def basic(password: str) -> str:
    return f"Basic {b64encode(f'alice:{password}'.encode()).decode()}"


async def look_at(tour: Tour, stub: RegistryStub, registry: SchemaRegistry) -> None:
    """Use a registry that accepts the client, refuses it, hangs up, is silent, and echoes."""
    look = tour.collector.look
    sent: str = stub.authorization or ""
    async with registry:
        look(registry, await registry.register("orders", STRING))
        tour.collector.tasks()
        # What follows fails. What succeeds may take longer, on a loaded machine.
        requests = registry._requests
        assert requests is not None
        password = PASSWORD if sent.startswith("Basic") else ""
        echo = f"{sent} {password} {sent.rpartition(' ')[2]} {HEADER}".encode()
        for status in (200, 302, 400, 401, 403, 404, 500):
            stub.answer(echo, status=status, times=2 if status == 401 else 1)
            with tour.refused():
                await registry.latest("orders")
        for answer in ({"error_code": 40403, "message": echo.decode()}, [echo.decode()]):
            stub.answer(answer if isinstance(answer, dict) else b"[]", status=404)
            with tour.refused():
                await registry.latest("orders")
        requests._timeout_s = 0.3
        stub.answer(echo, status=503, times=1000)
        with tour.refused():
            await registry.latest("orders")
        stub._canned.clear()
        stub.answer(hangs_up=True, times=1000)
        with tour.refused():
            await registry.latest("orders")
        stub._canned.clear()
        stub.silence()
        asking = asyncio.ensure_future(registry.version("orders", 1))
        await stub.until_requests(len(stub.requests) + 1)
        tour.collector.tasks()
        with tour.refused():
            await asking
        stub.silence(False)
        await stub.stop()
        with tour.refused():
            await registry.latest("orders")
    with tour.refused():
        await registry.latest("orders")
    await stub.start()
    look(registry)


async def visit_registry_users(tour: Tour) -> None:
    """Ask a schema registry as a user with a password, and make mistakes."""
    async with RegistryStub(authorization=basic(PASSWORD)) as stub:
        in_url = stub.url.replace("//", f"//alice:{quote(PASSWORD, safe='')}@")
        for registry in (
            SchemaRegistry(stub.url, basic_auth=("alice", PASSWORD), headers={"X-Key": HEADER}),
            SchemaRegistry(in_url, headers={"X-Key": HEADER}),
            SchemaRegistry.from_properties(
                {
                    "schema.registry.url": stub.url,
                    "basic.auth.credentials.source": "USER_INFO",
                    "basic.auth.user.info": f"alice:{PASSWORD}",
                },
                headers={"X-Key": HEADER},
            ),
        ):
            await look_at(tour, stub, registry)
        wrong = in_url.replace(quote(PASSWORD, safe=""), quote(WRONG, safe=""))
        async with SchemaRegistry(wrong) as registry:
            with tour.refused():
                await registry.types()
    of_several_types: list[Any] = [in_url, 5]
    mistakes: tuple[Any, ...] = (
        lambda: SchemaRegistry(in_url, basic_auth=("alice", WRONG)),
        lambda: SchemaRegistry(in_url.replace("http:", "ftp:")),
        lambda: SchemaRegistry(in_url + "?key=" + HEADER),
        lambda: SchemaRegistry(f"http://alice:{PASSWORD}@registry:port"),
        lambda: SchemaRegistry(of_several_types),
        lambda: SchemaRegistry(PASSWORD),
        lambda: SchemaRegistry({in_url: PASSWORD}),
        lambda: SchemaRegistry("http://r", basic_auth=PASSWORD),
        lambda: SchemaRegistry("http://r", basic_auth=("alice", PASSWORD.encode())),
        lambda: SchemaRegistry("http://r", headers={"Authorization": basic(PASSWORD)}),
        lambda: SchemaRegistry("http://r", headers={"X-Key": f"{HEADER}\n"}),
        lambda: SchemaRegistry("http://r", headers=[HEADER]),
        lambda: SchemaRegistry("http://r", token_provider=BEARER),
        lambda: SchemaRegistry("http://r", basic_auth=("alice", PASSWORD), timeout=0),
        lambda: SchemaRegistry.from_properties({"basic.auth.user.info": f"a:{PASSWORD}"}),
        lambda: SchemaRegistry.from_properties(
            {"schema.registry.url": in_url, "basic.auth.user.info": f"a:{PASSWORD}"}
        ),
        lambda: SchemaRegistry.from_properties(
            {"schema.registry.url": "http://r", "basic.auth.user.infos": f"a:{PASSWORD}"}
        ),
        lambda: SchemaRegistry.from_properties(
            {
                "schema.registry.url": "http://r",
                "basic.auth.credentials.source": "SASL_INHERIT",
                "basic.auth.user.info": f"a:{PASSWORD}",
            }
        ),
        lambda: SchemaRegistry.from_properties(
            {"schema.registry.url": "http://r", "bearer.auth.token": f"{BEARER} {BEARER}"},
            basic_auth=("alice", PASSWORD),
        ),
    )
    for mistake in mistakes:
        with tour.refused():
            mistake()


async def visit_registry_tokens(tour: Tour) -> None:
    """Ask a schema registry with tokens that are given, and with those of an endpoint."""

    async def opaque() -> OAuthToken:
        return OAuthToken(BEARER, 2**50)

    async with RegistryStub(authorization=f"Bearer {BEARER}") as stub:
        for registry in (
            SchemaRegistry(stub.url, token_provider=opaque, headers={"X-Key": HEADER}),
            SchemaRegistry.from_properties(
                {"schema.registry.url": stub.url, "bearer.auth.token": BEARER},
                headers={"X-Key": HEADER},
            ),
        ):
            await look_at(tour, stub, registry)
    async with token_server() as server, RegistryStub() as stub:
        server.respond = granting(tour)
        endpoint = {
            "schema.registry.url": stub.url,
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": server.url,
            "bearer.auth.client.id": "app",
            "bearer.auth.client.secret": CLIENT_SECRET,
        }
        providers = (OidcClientCredentials(server.url, "app", CLIENT_SECRET),)
        registries = [SchemaRegistry(stub.url, token_provider=each) for each in providers]
        for registry in (*registries, SchemaRegistry.from_properties(endpoint)):
            async with registry:
                tour.collector.look(registry, await registry.types())
        server.respond = lambda asked: refused("invalid_client", f"{CLIENT_SECRET} is wrong", 401)
        async with SchemaRegistry.from_properties(endpoint, timeout=0.3) as registry:
            with tour.refused():
                await registry.types()
        server.respond = lambda asked: (500, CLIENT_SECRET.encode())
        async with SchemaRegistry.from_properties(endpoint, timeout=0.3) as registry:
            with tour.refused():
                await registry.types()
        for missing in endpoint:
            if missing != "bearer.auth.credentials.source":
                with tour.refused():
                    given = {name: text for name, text in endpoint.items() if name != missing}
                    SchemaRegistry.from_properties(given)


async def visit_registry_proxy(tour: Tour) -> None:
    """Ask a schema registry through a proxy with a password, and make mistakes."""
    quoted = quote(PASSWORD, safe="")
    async with RegistryStub() as stub, RegistryProxy(basic(PASSWORD)) as proxy:
        proxy.echo = f"{basic(PASSWORD)} {PASSWORD}"
        through = proxy.url.replace("//", f"//alice:{quoted}@")
        secured = stub.url.replace("http:", "https:")  # It is not reached.
        properties = {"schema.registry.url": stub.url, "schema.registry.proxy": through}
        for registry in (
            SchemaRegistry(stub.url, proxy=through),
            SchemaRegistry.from_properties(properties),
        ):
            async with registry:
                tour.collector.look(registry, await registry.register("orders", STRING))
                tour.collector.tasks()
        proxy.authorization = basic(WRONG)
        for registry in (
            SchemaRegistry(stub.url, proxy=through, timeout=0.3),
            SchemaRegistry(secured, proxy=through, timeout=0.3),
            SchemaRegistry.from_properties(properties, timeout=0.3),
        ):
            async with registry:
                with tour.refused():
                    await registry.latest("orders")
                tour.collector.look(registry)
    async with SchemaRegistry(stub.url, proxy=through, timeout=0.3) as registry:
        with tour.refused():  # The proxy is gone.
            await registry.types()
    mistakes: tuple[Any, ...] = (
        lambda: SchemaRegistry("http://r", proxy=through.replace("http:", "https:")),
        lambda: SchemaRegistry("http://r", proxy=f"{through}/path"),
        lambda: SchemaRegistry("http://r", proxy=f"http://alice:{PASSWORD}@proxy:port"),
        lambda: SchemaRegistry("http://r", proxy=PASSWORD),
        lambda: SchemaRegistry("http://r", proxy=[through]),
        lambda: SchemaRegistry("http://r", proxy=through, timeout=0),
        lambda: SchemaRegistry.from_properties({"schema.registry.proxy": through}),
        lambda: SchemaRegistry.from_properties(
            {"schema.registry.url": "http://r", "schema.registry.proxies": through}
        ),
    )
    for mistake in mistakes:
        with tour.refused():
            mistake()


REGISTRIES = (visit_registry_users, visit_registry_tokens, visit_registry_proxy)
