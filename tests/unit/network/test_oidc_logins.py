"""Logins with tokens of a token endpoint, on the embedded cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hidden import assert_hidden
from token_server import TokenServer, granted, refused, token_server

from aiokclient import OidcClientCredentials, Producer, SaslOAuthBearer, State
from aiokclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    TokenProviderError,
    TokenRefusedError,
)
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.tokens import TokenIssuer

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    """The issuer that the listener trusts."""
    return TokenIssuer(issuer="https://issuer.test", audience="kafka")


@pytest.fixture(scope="module")
def cluster(issuer: TokenIssuer) -> Iterator[EmbeddedCluster]:
    """A cluster whose listener expects tokens."""
    listener = BrokerListener(
        mechanisms=("OAUTHBEARER",),
        jwks=issuer.jwks,
        token_issuer="https://issuer.test",
        token_audience="kafka",
    )
    with EmbeddedCluster(topics={"t": 1}, listeners={"SASL": listener}) as cluster:
        yield cluster


@pytest.fixture
async def server(issuer: TokenIssuer) -> AsyncIterator[TokenServer]:
    """A token endpoint that grants tokens of the issuer."""
    async with token_server() as made:
        made.respond = lambda asked: granted(issuer.token("alice"))
        yield made


def producer(cluster: EmbeddedCluster, server: TokenServer, **options: Any) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap_servers_for("SASL"),
        security=SaslOAuthBearer(OidcClientCredentials(server.url, "app", SECRET)),
        **options,
    )


async def test_a_client_logs_in_with_the_token_of_an_endpoint(
    cluster: EmbeddedCluster, server: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with producer(cluster, server) as made:
        await made.send("t", b"v")
        shown = f"{made!r}{made.health()!r}{made._config!r}{vars(made)!r}"
    assert len(server.requests) == 1, "all connections share one token"
    assert SECRET not in shown + caplog.text


async def test_a_wrong_secret_fails_the_start_at_once(
    cluster: EmbeddedCluster, server: TokenServer
) -> None:
    server.respond = lambda asked: refused("invalid_client", None, 401)
    made = producer(cluster, server, default_api_timeout_ms=3_600_000)
    async with asyncio.timeout(60):
        with pytest.raises(TokenRefusedError, match="invalid_client") as caught:
            await made.start()
    await made.close()
    assert caught.value.endpoint == server.url
    assert_hidden(caught.value, SECRET)


async def test_a_server_that_fails_is_asked_again_until_the_start_succeeds(
    cluster: EmbeddedCluster, server: TokenServer
) -> None:
    answers = [(500, b"oops"), (200, b"garbage")]
    grant = server.respond
    server.respond = lambda asked: answers.pop() if answers else grant(asked)
    async with producer(cluster, server) as made:
        assert made.state is State.RUNNING
        await made.send("t", b"v")
    assert len(server.requests) == 3


async def test_a_server_that_keeps_failing_fails_the_start_at_its_deadline(
    cluster: EmbeddedCluster, server: TokenServer
) -> None:
    server.respond = lambda asked: (500, b"oops")
    made = producer(cluster, server, default_api_timeout_ms=500)
    with pytest.raises(KafkaError) as caught:
        await made.start()
    await made.close()
    assert isinstance(caught.value, TokenProviderError)
    assert "HTTP status 500" in str(caught.value)
    assert_hidden(caught.value, SECRET)


async def test_a_running_client_goes_on_after_the_endpoint_refused_another_token(
    cluster: EmbeddedCluster, server: TokenServer, issuer: TokenIssuer
) -> None:
    server.respond = lambda asked: granted(issuer.token("alice", lifetime_s=2))
    made = producer(cluster, server, delivery_timeout_ms=3_000, request_timeout_ms=1_000)
    await made.start()
    server.respond = lambda asked: refused("invalid_client", None, 401)

    async def go_on() -> None:
        while True:
            await made.send("t", b"v")
            await asyncio.sleep(0.05)

    async with asyncio.timeout(60):
        with pytest.raises(DeliveryTimeoutError) as caught:
            await go_on()
    assert isinstance(caught.value.__cause__, TokenRefusedError)
    assert made.state is State.DEGRADED
    assert any("invalid_client" in why for why in made.health().reasons)
    server.respond = lambda asked: granted(issuer.token("alice"))
    await cluster.until(lambda: made.state is State.RUNNING)
    await made.send("t", b"v")
    await made.close()
