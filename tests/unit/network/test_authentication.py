"""Tests of SASL authentication on both sides, with a mechanism that verifies nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from aiokclient import AnyBroker, Client
from aiokclient.config.security import Plaintext
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    DisconnectedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.diagnosis import NotConnectedError
from aiokclient.network.login import Sasl
from aiokclient.network.sasl import MECHANISMS, Login
from aiokclient.network.setup import ConnectionSettings, open_connection
from aiokclient.network.transport import TcpConnector
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import ListGroupsRequest, MetadataRequest
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.connections import sasl as server

SECRET = b"sesame"


class Null:
    """A mechanism that sends one message, and a second one if the broker requests it."""

    thread = None

    def __init__(self, login: Login) -> None:
        self._messages = [login.credentials.message, b"again"]

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        return self._messages.pop(0) if challenge in (b"", b"more") else None


class ServerNull:
    def __init__(self, accounts: server.Accounts) -> None: ...

    def answer_message(self, message: bytes) -> server.Challenge:
        if message == b"again":
            return server.Challenge(b"done", done=True)
        if message != SECRET:
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, "Wrong message.")
        return server.Challenge(b"more", done=False)


@dataclasses.dataclass(frozen=True, slots=True)
class NullSecurity(Plaintext):
    message: bytes = SECRET
    sasl_mechanism: ClassVar[str | None] = "NULL"


@pytest.fixture(autouse=True)
def null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "NULL", Null)
    monkeypatch.setitem(server.MECHANISMS, "NULL", ServerNull)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    listener = BrokerListener(mechanisms=("NULL",), max_reauth_ms=60_000)
    with EmbeddedCluster(listeners={"SASL": listener}) as made:
        yield made


async def connect(
    cluster: EmbeddedCluster, sasl: Sasl | None, timeout_s: float = 30, listener: str = "SASL"
) -> BrokerConnection:
    settings = ConnectionSettings(TcpConnector(), "test", None, 1 << 20, None, sasl=sasl)
    host, port = cluster.address(1, listener)
    return await open_connection(1, host, port, settings, timeout_s=timeout_s, rung=0)


def given(message: bytes = SECRET) -> Sasl:
    return Sasl("NULL", NullSecurity(message))


def asked(cluster: EmbeddedCluster) -> list[tuple[ApiKey, int]]:
    return [(each.api, each.version) for each in cluster.requests]


async def test_a_mechanism_goes_between_api_versions_and_the_first_request(
    cluster: EmbeddedCluster,
) -> None:
    connection = await connect(cluster, given())
    assert connection.broker.session_lifetime_ms == 60_000
    await connection.send(MetadataRequest(topics=[]), timeout_s=30)
    assert asked(cluster) == [
        (ApiKey.API_VERSIONS, 5),
        (ApiKey.SASL_HANDSHAKE, 1),
        (ApiKey.SASL_AUTHENTICATE, 2),
        (ApiKey.SASL_AUTHENTICATE, 2),
        (ApiKey.METADATA, 13),
    ]
    connection.close()


async def test_a_client_authenticates_each_of_its_connections(cluster: EmbeddedCluster) -> None:
    security: Any = NullSecurity()
    async with Client(
        bootstrap_servers=cluster.bootstrap_servers_for("SASL"), security=security
    ) as client:
        assert (await client.request(ListGroupsRequest(), AnyBroker())).groups == []


async def test_an_older_version_of_sasl_authenticate_is_negotiated(
    cluster: EmbeddedCluster,
) -> None:
    cluster._state.versions.limit_versions({ApiKey.SASL_AUTHENTICATE: (0, 0)}, None)
    connection = await connect(cluster, given())
    assert connection.broker.session_lifetime_ms == 0
    connection.close()


async def test_a_refused_message_raises_what_the_broker_says(cluster: EmbeddedCluster) -> None:
    with pytest.raises(SaslAuthenticationError, match="Wrong message"):
        await connect(cluster, given(b"wrong"))
    await cluster.until(lambda: cluster.connections() == 0)


async def test_a_client_with_wrong_credentials_does_not_start(cluster: EmbeddedCluster) -> None:
    security: Any = NullSecurity(b"wrong")
    client = Client(
        bootstrap_servers=cluster.bootstrap_servers_for("SASL"),
        security=security,
        default_api_timeout_ms=3_000,
    )
    with pytest.raises((BootstrapError, SaslAuthenticationError), match="rejected the credentials"):
        await client.start()
    await client.close()


async def test_a_mechanism_that_is_not_offered_raises_the_mechanisms_that_are(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MECHANISMS, "OTHER", Null)
    with pytest.raises(UnsupportedSaslMechanismError, match=r"uses OTHER.* offers NULL"):
        await connect(cluster, Sasl("OTHER", NullSecurity()))
    await cluster.until(lambda: cluster.connections() == 0)


async def test_a_listener_without_sasl_raises_illegal_sasl_state() -> None:
    async with EmbeddedCluster() as plain:
        with pytest.raises(IllegalSaslStateError):
            await connect(plain, given(), listener="PLAINTEXT")


async def test_a_broker_that_does_not_answer_in_time_counts_as_not_connected(
    cluster: EmbeddedCluster,
) -> None:
    with cluster.delay(ApiKey.SASL_AUTHENTICATE, 30):
        with pytest.raises(NotConnectedError, match=r"SASL authentication within 0\.2 s"):
            await connect(cluster, given(), timeout_s=0.2)
        await cluster.until(lambda: cluster.connections() == 0)


async def test_a_cancelled_authentication_leaves_no_connection(cluster: EmbeddedCluster) -> None:
    with cluster.delay(ApiKey.SASL_HANDSHAKE, 30):
        task = asyncio.ensure_future(connect(cluster, given()))
        await cluster.until(lambda: (ApiKey.SASL_HANDSHAKE, 1) in asked(cluster))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cluster.until(lambda: cluster.connections() == 0)


async def test_a_connection_lost_during_the_authentication_is_retriable(
    cluster: EmbeddedCluster,
) -> None:
    with (
        cluster.drop(ApiKey.SASL_AUTHENTICATE),
        pytest.raises(DisconnectedError, match="during the SASL authentication") as caught,
    ):
        await connect(cluster, given())
    assert caught.value.retriable


async def test_an_authentication_without_an_end_is_abandoned(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless:
        thread = None

        def __init__(self, credentials: object) -> None: ...

        def answer_challenge(self, challenge: bytes) -> bytes:
            return SECRET

    monkeypatch.setitem(MECHANISMS, "NULL", Endless)
    with pytest.raises(SaslAuthenticationError, match="did not complete"):
        await connect(cluster, given())


# -- the broker's side ---------------------------------------------------------------------------


async def test_an_unauthenticated_connection_that_sends_anything_else_is_closed(
    cluster: EmbeddedCluster,
) -> None:
    connection = await connect(cluster, None)
    with pytest.raises(KafkaError) as caught:
        await connection.send(MetadataRequest(topics=[]), timeout_s=30)
    assert isinstance(caught.value, DisconnectedError)
    assert not isinstance(caught.value, ApiTimeoutError)


async def test_an_unauthenticated_connection_may_send_frames_up_to_a_mebibyte(
    cluster: EmbeddedCluster,
) -> None:
    reader, writer = await asyncio.open_connection(*cluster.address(1, "SASL"))
    writer.write(((1 << 20) + 1).to_bytes(4, "big"))
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("step", server.AuthenticationStep)
def test_a_step_allows_only_the_requests_in_its_table(step: server.AuthenticationStep) -> None:
    accounts: Any = None
    authentication = server.Authentication(("NULL",), accounts, lambda: 0.0, lambda: 0)
    authentication.step = step
    taken = {api for api in ApiKey if authentication.is_allowed(api)}
    assert taken == server.ALLOWED[step]
    if step is not server.AuthenticationStep.CONVERSATION:
        with pytest.raises(Refused) as caught:
            authentication.answer_message(b"")
        assert caught.value.code == Code.ILLEGAL_SASL_STATE
    if step not in (server.AuthenticationStep.VERSIONS, server.AuthenticationStep.HANDSHAKE):
        with pytest.raises(Refused) as caught:
            authentication.choose_mechanism("NULL")
        assert caught.value.code == Code.ILLEGAL_SASL_STATE
