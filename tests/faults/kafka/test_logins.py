"""Logins by SASL on a real Kafka: every mechanism, every refusal, and logins that are repeated."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import (
    Admin,
    Client,
    Consumer,
    Controller,
    NewTopic,
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
    SaslAuthenticationError,
    TokenProviderError,
    UnsupportedSaslMechanismError,
)
from aiokclient.network.sasl.scram import HASHES
from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

SEC = "org.apache.kafka.common.security."
PASSWORD = "alice-secret"
JAAS = {
    "plain": f'{SEC}plain.PlainLoginModule required username="admin" password="admin-secret" '
    f'user_admin="admin-secret" user_alice="{PASSWORD}";',
    "scram-sha-256": f"{SEC}scram.ScramLoginModule required;",
    "scram-sha-512": f"{SEC}scram.ScramLoginModule required;",
    "oauthbearer": f"{SEC}oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="admin";',
}
LISTENERS = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "REAUTH": "SASL_PLAINTEXT",
    "SCRAMONLY": "SASL_PLAINTEXT",
}
REAUTH_MS = 3_000


def sasl(listener: str, *mechanisms: str) -> dict[str, object]:
    prefix = f"listener.name.{listener}."
    return {
        prefix + "sasl.enabled.mechanisms": ",".join(map(str.upper, mechanisms)),
        **{f"{prefix}{name}.sasl.jaas.config": JAAS[name] for name in mechanisms},
    }


def keystore(path: Path, certificate: trustme.LeafCert) -> Path:
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(pem + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    return path


class Secured:
    """A broker with a listener for each kind of login."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(ca))
        self.tls = Tls(cafile=str(ca))
        properties: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore(
                folder / "broker.pem", authority.issue_cert("localhost", "127.0.0.1")
            ),
            "delegation.token.secret.key": "a-test-secret",
            **sasl("sasl_plaintext", *JAAS),
            **sasl("sasl_ssl", *JAAS),
            **sasl("reauth", *JAAS),
            **sasl("scramonly", "scram-sha-512"),
            **{
                f"listener.name.reauth.{name}.connections.max.reauth.ms": REAUTH_MS for name in JAAS
            },
        }
        self.cluster = KafkaCluster(KAFKA, properties=properties, listeners=LISTENERS)

    async def create_users(self) -> None:
        async with Client(bootstrap_servers=self.cluster.bootstrap) as client:
            for number, name in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")):
                request = messages.AlterUserScramCredentialsRequest(
                    upsertions=[
                        ScramCredentialUpsertion(
                            name="alice",
                            mechanism=number,
                            iterations=4096,
                            salt=b"salt",
                            salted_password=_salted(PASSWORD, HASHES[name]),
                        )
                    ]
                )
                response = await client.request(request, Controller())
                assert [result.error_code for result in response.results] == [0]

    def servers(self, listener: str) -> str:
        return self.cluster.listener(listener)


def _salted(password: str, hash_name: str) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), b"salt", 4096)


@pytest.fixture(scope="module")
def secured(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("logins"))
    with secured.cluster:
        asyncio.run(secured.create_users())
        yield secured


def unsecured(life_s: float = 3600, user: str = "alice") -> OAuthToken:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + life_s})
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return OAuthToken(".".join([*texts, ""]), int(1000 * (now + life_s)), user)


async def tokens() -> OAuthToken:
    return unsecured()


LOGINS: dict[str, Callable[[Tls | None], Any]] = {
    "PLAIN": lambda tls: SaslPlain("alice", PASSWORD, tls),
    "SCRAM-SHA-256": lambda tls: SaslScram("alice", PASSWORD, "SCRAM-SHA-256", tls=tls),
    "SCRAM-SHA-512": lambda tls: SaslScram("alice", PASSWORD, tls=tls),
    "OAUTHBEARER": lambda tls: SaslOAuthBearer(tokens, tls),
}


async def round_trip(**options: Any) -> None:
    topic = f"login-{uuid.uuid4().hex[:8]}"
    async with Client(**options) as client:
        async with Admin(client=client) as admin:
            (await admin.create_topics([NewTopic(topic, 1, 1)])).raise_for_errors()
        async with Producer(client=client) as producer:
            await producer.send(topic, b"v" * 100_000)
        async with Consumer(topic, client=client, auto_offset_reset="earliest") as consumer:
            record = await consumer.get(timeout=30)
    assert record is not None
    assert record.value == b"v" * 100_000


async def refusal(servers: str, **options: Any) -> KafkaError:
    """Return the error that the start of a client raises, which must not wait for its deadline."""
    client = Client(bootstrap_servers=servers, **{"default_api_timeout_ms": 60_000, **options})
    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        await client.start()
    assert time.monotonic() - began < 30
    await client.close()
    return caught.value


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", LOGINS)
async def test_records_pass_after_a_login(secured: Secured, mechanism: str, listener: str) -> None:
    tls = secured.tls if listener == "SASL_SSL" else None
    await round_trip(bootstrap_servers=secured.servers(listener), security=LOGINS[mechanism](tls))


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f'{SEC}plain.PlainLoginModule required username="alice" password="{PASSWORD}";'),
        (
            "SCRAM-SHA-512",
            f'{SEC}scram.ScramLoginModule required username="alice" password="{PASSWORD}";',
        ),
        (
            "OAUTHBEARER",
            f"{SEC}oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="alice";',
        ),
    ],
)
async def test_the_properties_of_a_java_client_are_accepted(
    secured: Secured, mechanism: str, jaas: str
) -> None:
    properties = {
        "bootstrap.servers": secured.servers("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.tls.cafile,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    async with Admin.from_properties(properties) as admin:
        assert (await admin.describe_cluster()).brokers
        assert PASSWORD not in repr(vars(admin))


async def test_a_delegation_token_logs_in(secured: Secured) -> None:
    servers = secured.servers("SASL_PLAINTEXT")
    security = SaslPlain("alice", PASSWORD)
    async with Client(bootstrap_servers=servers, security=security) as client:
        request = messages.CreateDelegationTokenRequest(max_lifetime_ms=-1)
        made = await client.request(request, Controller())
        assert made.error_code == 0
        # The broker learns of the token a moment after the controller has made it.
        described = messages.DescribeDelegationTokenRequest(owners=None)
        for _ in range(200):
            if (await client.request(described, Controller())).tokens:
                break
            await asyncio.sleep(0.05)
    hmac = base64.b64encode(made.hmac).decode()
    await round_trip(
        bootstrap_servers=servers,
        security=SaslScram(made.token_id, hmac, "SCRAM-SHA-256", token_auth=True),
    )


@pytest.mark.fault(48)
@pytest.mark.parametrize(
    "security",
    [
        SaslPlain("alice", "wrong"),
        SaslPlain("nobody", PASSWORD),
        SaslScram("alice", "wrong"),
        SaslScram("nobody", PASSWORD, "SCRAM-SHA-256"),
    ],
)
async def test_wrong_credentials_raise_what_the_broker_says(
    secured: Secured, security: Any
) -> None:
    servers = secured.servers("SASL_PLAINTEXT")
    error = await refusal(servers, security=security)
    assert isinstance(error, SaslAuthenticationError)
    for part in (servers, security.sasl_mechanism, repr(security.user), "Authentication failed"):
        assert part in str(error)


async def test_an_expired_token_is_refused(secured: Secured) -> None:
    async def expired() -> OAuthToken:
        token = unsecured(-100)
        return OAuthToken(token.token, int(1000 * (time.time() + 1000)), "alice")

    error = await refusal(secured.servers("SASL_PLAINTEXT"), security=SaslOAuthBearer(expired))
    assert isinstance(error, SaslAuthenticationError)
    assert "invalid_token" in str(error)
    assert "OAUTHBEARER" in str(error)


@pytest.mark.fault(47)
async def test_a_failing_token_provider_is_the_error_of_the_start(secured: Secured) -> None:
    async def fails() -> OAuthToken:
        raise OSError("no token server")

    async def hangs() -> OAuthToken:
        await asyncio.sleep(1000)
        raise AssertionError

    for provider, text in ((fails, "raised OSError"), (hangs, "did not return")):
        error = await refusal(
            secured.servers("SASL_PLAINTEXT"),
            security=SaslOAuthBearer(provider),
            default_api_timeout_ms=2_000,
        )
        assert isinstance(error, TokenProviderError)
        assert text in str(error)
        assert isinstance(error.__cause__, OSError) == (provider is fails)


async def test_a_mechanism_that_the_broker_lacks_names_those_that_it_has(secured: Secured) -> None:
    servers = secured.servers("SCRAMONLY")
    error = await refusal(servers, security=SaslPlain("alice", PASSWORD))
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert "offers SCRAM-SHA-512" in str(error)


async def test_wrong_ports_are_explained_at_once(secured: Secured) -> None:
    tls, plain = secured.tls, secured.cluster.bootstrap
    login = SaslScram("alice", PASSWORD)
    cases: list[tuple[str, Any, type[KafkaError], str]] = [
        (plain, login, IllegalSaslStateError, "does not use SASL, but the client does"),
        (secured.servers("SSL"), login, ConnectionSetupError, "with SASL tls=Tls()"),
        (
            secured.servers("SSL"),
            SaslScram("alice", PASSWORD, tls=tls),
            IllegalSaslStateError,
            r"Set security=Tls() (security_protocol='SSL')",
        ),
        (
            secured.servers("SASL_PLAINTEXT"),
            SaslScram("alice", PASSWORD, tls=tls),
            ConnectionSetupError,
            "security_protocol='SASL_PLAINTEXT'",
        ),
        (secured.servers("SASL_SSL"), login, ConnectionSetupError, "security_protocol='SASL_SSL'"),
        (
            secured.servers("SASL_PLAINTEXT"),
            Plaintext(),
            ConnectionSetupError,
            "requires SASL with",
        ),
        (secured.servers("SASL_SSL"), tls, ConnectionSetupError, "tls=Tls()) or"),
        (secured.servers("SCRAMONLY"), Plaintext(), ConnectionSetupError, "SaslScram(user, passw"),
    ]
    for servers, security, kind, text in cases:
        error = await refusal(servers, security=security)
        assert type(error) is kind, error
        assert text in str(error)
        assert servers in str(error)


# -- repeated logins -----------------------------------------------------------------------------


@pytest.fixture
async def topic(secured: Secured) -> str:
    name = f"again-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    return name


@pytest.mark.slow
@pytest.mark.fault(46)
@pytest.mark.parametrize("mechanism", LOGINS)
async def test_repeated_logins_amid_requests_lose_and_reorder_nothing(
    secured: Secured, topic: str, mechanism: str
) -> None:
    servers, count, read = secured.servers("REAUTH"), 0, list[bytes]()
    security = LOGINS[mechanism](None)
    async with Client(bootstrap_servers=servers, security=security) as client:
        events, sent = client.events(), list[Any]()
        async with (
            Consumer(topic, client=client, auto_offset_reset="earliest") as consumer,
            Producer(client=client, linger_ms=0) as producer,
        ):
            ends = time.monotonic() + 4 * REAUTH_MS / 1000
            while time.monotonic() < ends:
                for _ in range(20):
                    sent.append(producer.send(topic, str(count).encode()))
                    count += 1
                read += [record.value or b"" for record in await consumer.poll(0.01)]
            offsets = [(await delivery).offset for delivery in sent]
            while len(read) < count:
                found = await consumer.poll(10)
                assert found
                read += [record.value or b"" for record in found]
        await client.close()
        seen = [event async for event in events]
    assert offsets == list(range(count))
    assert read == [str(number).encode() for number in range(count)]
    kinds = [type(event).__name__ for event in seen]
    again = [event for event in seen if getattr(event, "again", False)]
    assert len(again) >= 6, kinds
    assert all(0 < event.lifetime_ms <= REAUTH_MS for event in again)
    assert not [e for e in seen if type(e).__name__ == "Disconnected" and e.cause is not None]
