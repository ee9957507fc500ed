"""Logins on the embedded cluster: warnings, limits, and secrets that stay hidden."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hidden import assert_hidden

from aiokclient import (
    AnyBroker,
    Client,
    OAuthToken,
    Plaintext,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
)
from aiokclient.errors import (
    BootstrapError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationError,
    TokenProviderError,
)
from aiokclient.network.sasl import scram
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import ListGroupsRequest, SaslAuthenticateResponse
from aiokclient.testing import BrokerListener, EmbeddedCluster

SECRET = "open-sesame"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    listener = BrokerListener(
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        users={"alice": SECRET},
    )
    with EmbeddedCluster(topics={"t": 1}, listeners={"SASL": listener}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def reset(cluster: EmbeddedCluster) -> None:
    cluster.reset()


async def token() -> OAuthToken:
    return OAuthToken(SECRET, 2**50)


SECURITIES: list[Callable[[str], Any]] = [
    lambda secret: SaslPlain("alice", secret),
    lambda secret: SaslScram("alice", secret, "SCRAM-SHA-256"),
    lambda secret: SaslScram("alice", secret),
]


async def refusal(cluster: EmbeddedCluster, security: Any, timeout_ms: int = 5_000) -> KafkaError:
    client = Client(
        bootstrap_servers=cluster.bootstrap_servers_for("SASL"),
        security=security,
        default_api_timeout_ms=timeout_ms,
    )
    with pytest.raises(KafkaError) as caught:
        await client.start()
    await client.close()
    return caught.value


@pytest.mark.parametrize("make", SECURITIES)
async def test_a_client_logs_in(
    cluster: EmbeddedCluster, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    servers = cluster.bootstrap_servers_for("SASL")
    async with Producer(bootstrap_servers=servers, security=make(SECRET)) as producer:
        events = producer.events()
        await producer.send("t", b"v")
        shown = f"{producer!r}{producer.health()!r}{producer.metrics()!r}{vars(producer)!r}"
    assert SECRET not in shown + caplog.text + repr([event async for event in events])


async def test_the_keys_of_scram_are_computed_once_for_all_connections(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive, computed = scram.derive_keys, []

    def counted(*args: Any) -> Any:
        computed.append(args)
        return derive(*args)

    monkeypatch.setattr(scram, "derive_keys", counted)
    servers = cluster.bootstrap_servers_for("SASL")
    security = SaslScram("alice", SECRET, "SCRAM-SHA-256")
    async with Client(bootstrap_servers=servers, security=security) as client:
        async with Producer(client=client) as producer:
            await producer.send("t", b"v")
        assert len(computed) == 1


@pytest.mark.parametrize("make", SECURITIES)
async def test_a_refused_login_shows_no_secret(
    cluster: EmbeddedCluster, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = f"not-{SECRET}"
    error = await refusal(cluster, make(wrong))
    assert isinstance(error, SaslAuthenticationError)
    assert "the user 'alice' with the mechanism" in str(error)
    assert_hidden(error, wrong)
    assert SECRET.encode() not in pickle.dumps(error)
    assert SECRET not in caplog.text


async def test_a_refused_token_shows_no_secret(cluster: EmbeddedCluster) -> None:
    error = await refusal(cluster, SaslOAuthBearer(token))
    assert isinstance(error, SaslAuthenticationError)
    assert_hidden(error, SECRET)


@pytest.mark.parametrize("make", [*SECURITIES, lambda secret: SaslOAuthBearer(token)])
@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
async def test_a_lost_connection_during_a_login_shows_no_secret(
    cluster: EmbeddedCluster, make: Any, api: ApiKey
) -> None:
    with cluster.drop(api):
        error = await refusal(cluster, make(SECRET), timeout_ms=500)
    assert_hidden(error, SECRET)


async def test_a_broker_that_repeats_the_password_does_not_make_it_visible(
    cluster: EmbeddedCluster,
) -> None:
    def repeat(request: Any, response: Any) -> Any:
        return SaslAuthenticateResponse(error_code=58, error_message=f"{SECRET} is wrong.")

    with cluster.alter(ApiKey.SASL_AUTHENTICATE, repeat):
        error = await refusal(cluster, SaslPlain("alice", SECRET))
    assert "*** is wrong" in str(error)
    assert_hidden(error, SECRET)


@pytest.mark.parametrize(
    ("size", "kind"), [(64 * 1024 + 1, "accepts at most 65536"), (100, "malformed")]
)
async def test_a_challenge_is_bounded(cluster: EmbeddedCluster, size: int, kind: str) -> None:
    def enlarge(request: Any, response: Any) -> Any:
        return SaslAuthenticateResponse(auth_bytes=b"x" * size)

    with cluster.alter(ApiKey.SASL_AUTHENTICATE, enlarge):
        error = await refusal(cluster, SaslScram("alice", SECRET))
    assert isinstance(error, SaslAuthenticationError)
    assert kind in str(error)
    assert "SASL_AUTHENTICATION_FAILED" not in str(error), "the broker has not refused the client"


def answer_first(message: bytes) -> Callable[[Any, Any], Any]:
    """Answer the client's first SCRAM message, and no other, with this message."""

    def change(request: Any, response: Any) -> Any:
        first = bytes(request.auth_bytes).startswith(b"n,,")
        return SaslAuthenticateResponse(auth_bytes=message) if first else response

    return change


def answer_last(message: bytes) -> Callable[[Any, Any], Any]:
    def change(request: Any, response: Any) -> Any:
        last = bytes(request.auth_bytes).startswith(b"c=")
        return SaslAuthenticateResponse(auth_bytes=message) if last else response

    return change


WRONG_MESSAGES = [
    answer_first(b""),
    answer_first(b"\xff"),
    answer_first(b"nonsense"),
    answer_first(b"e=other-error"),
    answer_first(b"r=other,s=c2FsdA==,i=4096"),
    answer_first(b"m=ext,r=other,s=c2FsdA==,i=4096"),
    answer_first(b"x" * 65_537),
    answer_last(b""),
    answer_last(b"\xff"),
    answer_last(b"nonsense"),
    answer_last(b"e=invalid-proof"),
    answer_last(b"v=d3Jvbmc="),
    answer_last(b"v=!"),
]


@pytest.mark.parametrize("change", WRONG_MESSAGES)
async def test_a_wrong_scram_message_names_the_address_and_the_mechanism(
    cluster: EmbeddedCluster, change: Any
) -> None:
    with cluster.alter(ApiKey.SASL_AUTHENTICATE, change):
        error = await refusal(cluster, SaslScram("alice", SECRET, "SCRAM-SHA-256"))
    assert isinstance(error, SaslAuthenticationError)
    assert str(error).count(cluster.bootstrap_servers_for("SASL")) == 1
    assert "with the mechanism SCRAM-SHA-256" in str(error)
    assert_hidden(error, SECRET)


async def test_a_secret_in_the_clear_is_warned_of_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    servers = cluster.bootstrap_servers_for("SASL")
    async with Client(bootstrap_servers=servers, security=SaslPlain("alice", SECRET)) as client:
        async with Producer(client=client) as producer:
            await producer.send("t", b"v")
        await client.request(ListGroupsRequest(), AnyBroker())
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.event for record in warnings] == ["credentials_unencrypted"]
    caplog.clear()
    async with Client(bootstrap_servers=servers, security=SaslScram("alice", SECRET)):
        pass
    assert caplog.records == []


async def test_a_client_without_sasl_is_told_what_to_set(cluster: EmbeddedCluster) -> None:
    error = await refusal(cluster, Plaintext(), timeout_ms=1_000)
    assert isinstance(error, BootstrapError)
    assert "requires SASL with PLAIN or SCRAM-SHA-256" in str(error)
    assert "set security=SaslPlain(user, password)" in str(error)


async def test_a_client_with_sasl_on_a_port_without_is_told_what_to_set(
    cluster: EmbeddedCluster,
) -> None:
    client = Client(
        bootstrap_servers=cluster.bootstrap_servers, security=SaslPlain("alice", SECRET)
    )
    with pytest.raises(IllegalSaslStateError, match=r"Set security=Plaintext\(\)"):
        await client.start()
    await client.close()


async def test_a_server_that_closes_after_api_versions_may_require_a_login() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(12)
        await reader.readexactly(int.from_bytes(head[:4], "big") - 8)
        # ApiVersions v0: UNSUPPORTED_VERSION first, then the versions of three APIs.
        version = int.from_bytes(head[6:8], "big")
        code = b"\0\0" if version == 0 else b"\0\x23"
        apis = b"".join(key.to_bytes(2, "big") + b"\0\0\0\x01" for key in (3, 17, 18))
        apis = apis[:-6] + (18).to_bytes(2, "big") + b"\0\0\0\0"
        body = head[8:12] + code + b"\0\0\0\x03" + apis
        writer.write(len(body).to_bytes(4, "big") + body)
        if version:
            await serve(reader, writer)
            return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = Client(bootstrap_servers=f"{host}:{port}", default_api_timeout_ms=1_000)
    with pytest.raises(BootstrapError, match=f"If {host}:{port} requires SASL, set security="):
        await client.start()
    await client.close()
    server.close()
    await server.wait_closed()


async def test_a_token_provider_that_fails_shows_its_error_as_the_cause(
    cluster: EmbeddedCluster,
) -> None:
    async def fails() -> OAuthToken:
        raise LookupError("no server")

    error = await refusal(cluster, SaslOAuthBearer(fails), timeout_ms=1_000)
    assert isinstance(error, TokenProviderError)
    assert isinstance(error.__cause__, LookupError)
