"""Tests of what a client sends to which address before its login, and how much it reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokclient import (
    Client,
    Consumer,
    OAuthToken,
    Plaintext,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    Tls,
)
from aiokclient.errors import (
    ConnectionSetupError,
    IllegalSaslStateError,
    KafkaError,
    TlsError,
    UnsupportedSaslMechanismError,
)
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import SaslAuthenticateResponse
from aiokclient.testing import BrokerListener, EmbeddedCluster, unsecured_token

USERS = {"alice": "open-sesame"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS = {
    "SASL": BrokerListener(mechanisms=MECHANISMS, users=USERS),
    "SASL_SSL": BrokerListener(tls=True, mechanisms=MECHANISMS, users=USERS),
    "PLAIN": BrokerListener(mechanisms=("PLAIN",), users=USERS),
    "SCRAM": BrokerListener(mechanisms=("SCRAM-SHA-256",), users=USERS),
}
LIMIT = 1024 * 1024


async def token() -> OAuthToken:
    return OAuthToken(unsecured_token("alice"), 2**50)


MAKERS: dict[str, Callable[[Tls | None], Any]] = {
    "PLAIN": lambda tls: SaslPlain("alice", "open-sesame", tls),
    "SCRAM-SHA-256": lambda tls: SaslScram("alice", "open-sesame", "SCRAM-SHA-256", tls=tls),
    "SCRAM-SHA-512": lambda tls: SaslScram("alice", "open-sesame", tls=tls),
    "OAUTHBEARER": lambda tls: SaslOAuthBearer(token, tls),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 1}, listeners=LISTENERS) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def reset(cluster: EmbeddedCluster) -> None:
    cluster.reset()


async def refusal(servers: str, security: Any, timeout_ms: int = 5_000) -> KafkaError:
    client = Client(bootstrap_servers=servers, security=security, default_api_timeout_ms=timeout_ms)
    with pytest.raises(KafkaError) as caught:
        await client.start()
    await client.close()
    return caught.value


def received(cluster: EmbeddedCluster) -> set[ApiKey]:
    return {request.api for request in cluster.requests}


@asynccontextmanager
async def raw_server(
    answer: Callable[[bytes], bytes | None],
) -> AsyncIterator[tuple[str, bytearray]]:
    """Run a server that stores what it receives.

    `answer` returns the response to each piece of data, or None to close the connection.
    """
    stored = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            stored.extend(data)
            said = answer(data)
            if said is None:
                break
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}", stored
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_with_tls_never_falls_back_to_plaintext(
    cluster: EmbeddedCluster, mechanism: str
) -> None:
    servers = cluster.bootstrap_servers_for("SASL")
    error = await refusal(servers, MAKERS[mechanism](cluster.client_tls))
    assert isinstance(error, ConnectionSetupError)
    # To find out the protocol of the port, the client asks for API versions without its client id.
    asked = [(each.api, each.version, each.client_id) for each in cluster.requests]
    assert asked == [(ApiKey.API_VERSIONS, 0, None)]


async def test_a_client_with_tls_sends_only_handshakes_to_a_port_without() -> None:
    async with raw_server(lambda data: None) as (address, stored):
        await refusal(address, SaslPlain("alice", "open-sesame", Tls()), timeout_ms=2000)
    assert stored
    assert stored[0] == 0x16, "the type of a TLS record with a handshake"
    assert b"open-sesame" not in stored


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_nothing_is_sent_before_the_certificate_is_verified(
    cluster: EmbeddedCluster, mechanism: str
) -> None:
    before = cluster.requests_total
    error = await refusal(cluster.bootstrap_servers_for("SASL_SSL"), MAKERS[mechanism](Tls()))
    assert isinstance(error, TlsError)
    assert cluster.requests_total == before


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("PLAIN", "SCRAM-SHA-256"),
        ("PLAIN", "SCRAM-SHA-512"),
        ("PLAIN", "OAUTHBEARER"),
        ("SCRAM", "SCRAM-SHA-512"),
        ("SCRAM", "PLAIN"),
    ],
)
async def test_a_client_never_uses_another_mechanism_than_the_configured_one(
    cluster: EmbeddedCluster, listener: str, mechanism: str
) -> None:
    error = await refusal(cluster.bootstrap_servers_for(listener), MAKERS[mechanism](None))
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert received(cluster) <= {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    asked = [each for each in cluster.requests if each.api is ApiKey.SASL_HANDSHAKE]
    assert {request.message.mechanism for request in asked} == {mechanism}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_no_credentials_are_sent_to_a_listener_without_sasl(
    cluster: EmbeddedCluster, mechanism: str
) -> None:
    error = await refusal(cluster.bootstrap_servers, MAKERS[mechanism](None))
    assert isinstance(error, IllegalSaslStateError)
    assert received(cluster) <= {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


def test_certificates_and_host_names_are_verified_by_default() -> None:
    context = Tls().ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    chain = Tls(check_hostname=False, strict=False).ssl_context()
    assert chain.verify_mode is ssl.CERT_REQUIRED, "the chain is always verified"


@pytest.mark.parametrize(("size", "closed"), [(LIMIT, False), (LIMIT + 1, True)])
async def test_a_frame_before_the_login_has_at_most_a_mebibyte(size: int, closed: bool) -> None:
    async with raw_server(lambda data: size.to_bytes(4, "big")) as (address, _):
        error = await refusal(address, Plaintext(), timeout_ms=2000)
    # If the size is allowed, the client waits for the rest of the frame.
    assert ("is not a Kafka broker" in str(error)) == closed


async def test_a_login_message_beyond_a_mebibyte_closes_the_connection(
    cluster: EmbeddedCluster,
) -> None:
    def enlarge(request: Any, response: Any) -> Any:
        return SaslAuthenticateResponse(auth_bytes=bytes(LIMIT))

    servers = cluster.bootstrap_servers_for("SASL")
    with cluster.alter(ApiKey.SASL_AUTHENTICATE, enlarge):
        error = await refusal(servers, MAKERS["SCRAM-SHA-256"](None))
    assert isinstance(error, ConnectionSetupError)
    assert ApiKey.SASL_AUTHENTICATE in received(cluster)


class Watched(TcpConnector):
    """A connector that notes the addresses of all connections."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[Address] = set()

    async def connect(self, address: Address, *args: Any, **options: Any) -> asyncio.Transport:
        self.addresses.add(address)
        return await super().connect(address, *args, **options)


async def test_a_client_talks_only_to_its_brokers_and_sends_no_telemetry(
    cluster: EmbeddedCluster,
) -> None:
    connector = Watched()
    common: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers_for("SASL"),
        "security": MAKERS["SCRAM-SHA-512"](None),
        "connector": connector,
    }
    async with Producer(**common) as producer:
        await producer.send("t", b"value")
    async with Consumer("t", group_id="g", auto_offset_reset="earliest", **common) as consumer:
        assert await consumer.get(timeout=30) is not None
    assert connector.addresses == {cluster.address(1, "SASL")}
    assert ApiKey.PRODUCE in received(cluster)
    assert not received(cluster) & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
