"""Logins on a real Kafka: every mechanism, with and without TLS, and listeners that fit none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stolen_time
from kafka_harness import JavaTool
from kerberos_peers import needs_kerberos
from logging_in import login_time, refusal, round_trip
from secured_kafka import AUDIENCE, ISSUER, LOGINS, PASSWORD, SEC, USER, SecuredKafka, unsecured

from aiokclient import (
    Admin,
    OAuthToken,
    Plaintext,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import (
    BootstrapError,
    ConnectionSetupError,
    IllegalSaslStateError,
    KafkaError,
    UnsupportedSaslMechanismError,
)

HELD_S = 0.010
"""The longest CPU time for which a login may block the event loop."""

WAYS = [
    pytest.param(login, transport, marks=needs_kerberos if login == "GSSAPI" else ())
    for login in LOGINS
    for transport in ("PLAINTEXT", "SSL")
    if (login, transport) != ("mTLS", "PLAINTEXT")
]
"""Every kind of login on each transport, except client certificates (mTLS) without TLS."""


@pytest.mark.parametrize(("login", "transport"), WAYS)
async def test_records_pass_after_a_login(
    secured: SecuredKafka, login: str, transport: str
) -> None:
    await round_trip(**(await secured.way(login, transport)).options)


@pytest.mark.parametrize(("login", "transport"), WAYS)
async def test_a_login_holds_the_event_loop_for_under_10_ms(
    secured: SecuredKafka, login: str, transport: str
) -> None:
    times = []
    while not times or (min(times) >= HELD_S and len(times) < 5):
        # The processor may be slow for a while, so the test uses the shortest of several attempts.
        times.append((await login_time(**(await secured.way(login, transport)).options)).held_s)
    assert min(times) < HELD_S


async def test_a_token_provider_that_computes_in_the_event_loop_is_measured(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The provider computes until its thread has used a certain CPU time. The clock of the thread
    # also counts pauses of the machine, so the measurement must not subtract them. Without the file
    # of the counters, it cannot do so.
    monkeypatch.setattr(stolen_time, "STAT", tmp_path / "no counters")

    async def computes() -> OAuthToken:
        ends = time.thread_time() + 2 * HELD_S
        while time.thread_time() < ends:
            pass
        return unsecured()

    security = SaslOAuthBearer(computes)
    found = await login_time(bootstrap_servers=secured.servers("SASL_PLAINTEXT"), security=security)
    assert found.held_s >= 2 * HELD_S


def jaas(module: str, **options: str) -> str:
    given = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{module} required {given};"


def user_properties(mechanism: str, module: str) -> dict[str, str]:
    text = jaas(SEC + module, username=USER, password=PASSWORD)
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": text}


def token_properties(kafka: SecuredKafka) -> dict[str, str]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": kafka.tokens.token_url(ISSUER),
        "sasl.oauthbearer.scope": AUDIENCE,
        "sasl.login.callback.handler.class": f"{SEC}oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": jaas(f"{SEC}oauthbearer.OAuthBearerLoginModule"),
    }


def kerberos_properties(kafka: SecuredKafka) -> dict[str, str]:
    assert kafka.kdc is not None
    text = jaas(
        "com.sun.security.auth.module.Krb5LoginModule",
        useKeyTab="true",
        keyTab=kafka.kdc.keytab(USER),
        principal=USER,
    )
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": text,
    }


PROPERTIES: dict[str, Callable[[SecuredKafka], dict[str, str]]] = {
    "mTLS": lambda kafka: {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(kafka.certificates.client),
    },
    "PLAIN": lambda kafka: user_properties("PLAIN", "plain.PlainLoginModule"),
    "SCRAM-SHA-256": lambda kafka: user_properties("SCRAM-SHA-256", "scram.ScramLoginModule"),
    "SCRAM-SHA-512": lambda kafka: user_properties("SCRAM-SHA-512", "scram.ScramLoginModule"),
    "unsecured token": lambda kafka: {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas(
            f"{SEC}oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub=USER
        ),
    },
    "client credentials": lambda kafka: {
        **token_properties(kafka),
        "sasl.oauthbearer.client.credentials.client.id": USER,
        "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
    },
    "JWT bearer": lambda kafka: {
        **token_properties(kafka),
        "sasl.oauthbearer.jwt.retriever.class": f"{SEC}oauthbearer.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": str(kafka.key),
        "sasl.oauthbearer.assertion.claim.iss": USER,
        "sasl.oauthbearer.assertion.claim.sub": USER,
        "sasl.oauthbearer.assertion.claim.aud": kafka.tokens.issuer(ISSUER),
    },
    "GSSAPI": kerberos_properties,
}
"""The properties of a Java client for each kind of login."""


@pytest.mark.parametrize(
    "login",
    [
        pytest.param(login, marks=needs_kerberos if login == "GSSAPI" else ())
        for login in PROPERTIES
    ],
)
async def test_the_properties_of_a_java_client_are_accepted(
    secured: SecuredKafka, login: str
) -> None:
    properties = {
        "bootstrap.servers": (await secured.way(login, "SSL")).servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secured.tls.cafile,
        **PROPERTIES[login](secured),
    }
    async with Admin.from_properties(properties) as admin:
        assert (await admin.describe_cluster()).brokers
        assert PASSWORD not in repr(vars(admin))


async def test_a_mechanism_that_the_broker_lacks_names_those_that_it_has(
    secured: SecuredKafka,
) -> None:
    servers = secured.servers("SCRAMONLY")
    error = await refusal(servers, security=SaslPlain("alice", PASSWORD))
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert "offers SCRAM-SHA-512" in str(error)


async def test_wrong_ports_are_explained_at_once(secured: SecuredKafka) -> None:
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
    ]
    for servers, security, kind, text in cases:
        error = await refusal(servers, security=security)
        assert type(error) is kind, error
        assert text in str(error)
        assert servers in str(error)


async def test_a_missing_login_is_explained_at_the_deadline(secured: SecuredKafka) -> None:
    cases: list[tuple[str, Any, str]] = [
        (secured.servers("SASL_PLAINTEXT"), Plaintext(), "requires SASL with"),
        (secured.servers("SASL_SSL"), secured.tls, "tls=Tls()) or"),
        (secured.servers("SCRAMONLY"), Plaintext(), "SaslScram(user, passw"),
    ]
    for servers, security, text in cases:
        error = await refusal(servers, security=security, default_api_timeout_ms=2_000)
        assert type(error) is BootstrapError, error
        assert text in str(error)


PASSWORDS = [
    "\u00bd",
    "\ufb01ne",
    "e\u0301",
    "a\u00a0b",
    "I\u00adX",
    "\u00aa\u2168",
    "\u65e5\u672c",
]


@pytest.mark.usefixtures("kafka_tools_jars")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords_that_are_not_ascii_are_those_of_java(
    secured: SecuredKafka, tmp_path: Path, mechanism: str
) -> None:
    """Java's client logs in with the password that `Admin` has stored, and so does this one."""
    servers = secured.servers("SASL_PLAINTEXT")
    passwords = [*PASSWORDS, "".join(PASSWORDS)]
    async with Admin(bootstrap_servers=secured.cluster.bootstrap) as admin:
        for number, password in enumerate(passwords):
            stored = UserScramCredentialUpsertion(f"u{number}", password, mechanism)
            (await admin.alter_user_scram_credentials([stored])).raise_for_errors()
    for number, password in enumerate(passwords):
        security = SaslScram(f"u{number}", password, mechanism)
        async with Admin(bootstrap_servers=servers, security=security) as admin:
            await admin.describe_cluster()
    user = f"u{number}"
    login = jaas(f"{SEC}scram.ScramLoginModule", username=user, password=password)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    }
    file = tmp_path / "client.properties"
    lines = "".join(f"{name}={text}\n" for name, text in properties.items())
    file.write_text("".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in lines))
    tool = JavaTool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", servers, "--command-config", str(file), "--list"),
    )
    await asyncio.to_thread(tool.run)
