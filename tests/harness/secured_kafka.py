"""One real Kafka node with a listener for every kind of login, and the logins that it accepts."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import trustme
from cryptography.hazmat.primitives import serialization
from kafka_harness import KAFKA, KafkaCluster, TokenServer
from kerberos_peers import MISSING, REALM, Kdc

from aiokclient import (
    Admin,
    OAuthToken,
    OidcClientCredentials,
    OidcJwtBearer,
    SaslGssapi,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    Tls,
    UserScramCredentialUpsertion,
)
from aiokclient.config.security import Security

SEC = "org.apache.kafka.common.security."
USER, PASSWORD = "alice", "alice-secret"
"""A user who may do everything."""
STRANGER, STRANGER_PASSWORD = "bob", "bob-secret"
"""A user without any permission."""
REAUTH_MS = 5_000
"""Milliseconds after which a client of the listener REAUTH must log in again."""

JAAS = {
    "plain": f'{SEC}plain.PlainLoginModule required username="admin" password="admin-secret" '
    f'user_admin="admin-secret" user_{USER}="{PASSWORD}";',
    "scram-sha-256": f"{SEC}scram.ScramLoginModule required;",
    "scram-sha-512": f"{SEC}scram.ScramLoginModule required;",
    "oauthbearer": f"{SEC}oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="admin";',
}
LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
    "FOREIGN": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "REAUTH_PLAINTEXT": "SASL_PLAINTEXT",
    "SCRAMONLY": "SASL_PLAINTEXT",
    "JWKS_PLAINTEXT": "SASL_PLAINTEXT",
    "JWKS_SSL": "SASL_SSL",
    "PAST_PLAINTEXT": "SASL_PLAINTEXT",
    "PAST_SSL": "SASL_SSL",
}
KERBEROS_LISTENERS = {"GSSAPI_PLAINTEXT": "SASL_PLAINTEXT", "GSSAPI_SSL": "SASL_SSL"}
AUDIENCE = "kafka"
"""The audience of the tokens that the broker accepts."""
ISSUER, PAST = "logins", "past"
"""Issuers of signed tokens. The tokens of the second issuer have expired."""
ISSUERS = {"jwks": ISSUER, "past": PAST}
"""The issuer that a listener trusts, by the first part of the listener's name."""
EXPIRED_CLAIMS = {"sub": USER, "aud": [AUDIENCE], "exp": 1_000_000_000}


def keystore(path: Path, certificate: trustme.LeafCert) -> Path:
    """Write a key and its certificates to one file, in the PKCS #8 form that Kafka reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    path.write_bytes(pem + chain)
    return path


def unsecured(life_s: float = 3600, user: str = USER) -> OAuthToken:
    """Return a token without a signature, which listeners without keys accept."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + life_s})
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return OAuthToken(".".join([*texts, ""]), int(1000 * (now + life_s)), user)


async def unsecured_tokens() -> OAuthToken:
    return unsecured()


class Certificates:
    """The certificates of the brokers and of a client, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        then: dict[str, Any] = {"not_before": past, "not_after": past.replace(month=2)}
        name: dict[str, Any] = {"common_name": USER}
        ours, other = trustme.CA(), trustme.CA()
        here = ("localhost", "127.0.0.1")
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        ours.cert_pem.write_to_path(str(self.ca))
        other.cert_pem.write_to_path(str(self.other_ca))
        self.broker = keystore(folder / "broker.pem", ours.issue_cert(*here))
        self.brokers = {
            "elsewhere": keystore(folder / "elsewhere.pem", ours.issue_cert("elsewhere.example")),
            "expired": keystore(folder / "expired.pem", ours.issue_cert(*here, **then)),
            "foreign": keystore(folder / "foreign.pem", other.issue_cert(*here)),
        }
        """The certificates of brokers that clients must refuse, by the name of the listener."""
        self.client = keystore(folder / "client.pem", ours.issue_cert(USER, **name))
        self.clients = {
            "expired": keystore(folder / "past.pem", ours.issue_cert(USER, **name, **then)),
            "foreign": keystore(folder / "stranger.pem", other.issue_cert(USER, **name)),
        }
        """The certificates of clients that brokers must refuse."""

    def tls(self, **options: Any) -> Tls:
        """Return options that trust the brokers' authority."""
        return Tls(cafile=str(self.ca), **options)


class Way(NamedTuple):
    """The address and the credentials of one login."""

    servers: str
    security: Security

    @property
    def options(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.servers, "security": self.security}


class SecuredKafka:
    """A broker with a listener for each kind of login. `secured_kafka` starts one.

    The listeners GSSAPI_PLAINTEXT and GSSAPI_SSL exist if there is a KDC.
    """

    def __init__(self, folder: Path, tokens: TokenServer, kdc: Kdc | None) -> None:
        self.tokens, self.kdc = tokens, kdc
        self.certificates = Certificates(folder)
        signer = trustme.CA().issue_cert(USER, key_type=trustme.KeyType.RSA)
        self.key = keystore(folder / "assertions.pem", signer)
        """The private key that signs assertions for the token server."""
        urls = ",".join(map(tokens.jwks_url, ISSUERS.values()))
        jvm = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"]
        if kdc is not None:
            jvm.append(f"-Djava.security.krb5.conf={kdc.folder / 'krb5.conf'}")
        listeners = LISTENERS | (KERBEROS_LISTENERS if kdc else {})
        self.cluster = KafkaCluster(
            KAFKA,
            properties=self._properties(),
            listeners=listeners,
            # The Kerberos principal of the broker contains this host name.
            hosts={name: "localhost" for name in listeners if "GSSAPI" in name or "REAUTH" in name},
            jvm=tuple(jvm),
        )

    @property
    def tls(self) -> Tls:
        return self.certificates.tls()

    def servers(self, listener: str) -> str:
        return self.cluster.listener(listener)

    async def way(self, login: str, transport: str) -> Way:
        """Return the servers and credentials for one of LOGINS, over PLAINTEXT, SSL, or REAUTH."""
        listener, make = LOGINS[login]
        tls = self.tls if transport == "SSL" else None
        if transport == "REAUTH":
            return Way(self.servers("REAUTH_PLAINTEXT"), await make(self, tls))
        name = listener if listener == "MTLS" else f"{listener}_{transport}"
        return Way(self.servers(name), await make(self, tls))

    async def create_users(self) -> None:
        async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            # Brokers accept only one change per user in a request.
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                changed = await admin.alter_user_scram_credentials(
                    UserScramCredentialUpsertion(user, password, mechanism)
                    for user, password in ((USER, PASSWORD), (STRANGER, STRANGER_PASSWORD))
                )
                changed.raise_for_errors()

    def _properties(self) -> dict[str, object]:
        everywhere = ["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"]
        again = everywhere + (["gssapi"] if self.kdc else [])
        properties: dict[str, object] = {
            # One thread is enough, because each listener has this number of threads.
            "num.network.threads": 1,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca,
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "listener.name.mtls.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:admin;User:{USER}",
            "delegation.token.secret.key": "a-test-secret",
            "sasl.kerberos.service.name": "kafka",
            **self._sasl("sasl_plaintext", everywhere),
            **self._sasl("sasl_ssl", everywhere),
            **self._sasl("reauth_plaintext", again),
            **self._sasl("scramonly", ["scram-sha-512"]),
        }
        for name, file in self.certificates.brokers.items():
            properties[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            properties[f"listener.name.{name}.ssl.keystore.location"] = file
        for name in again:
            reauth = f"listener.name.reauth_plaintext.{name}.connections.max.reauth.ms"
            properties[reauth] = REAUTH_MS
        for kind, issuer in ISSUERS.items():
            for listener in (f"{kind}_plaintext", f"{kind}_ssl"):
                properties |= self._sasl(listener, ["oauthbearer"]) | self._signed(listener, issuer)
        if self.kdc is not None:
            for listener in ("gssapi_plaintext", "gssapi_ssl"):
                properties |= self._sasl(listener, ["gssapi"])
        return properties

    def _sasl(self, listener: str, mechanisms: list[str]) -> dict[str, object]:
        prefix = f"listener.name.{listener}."
        return {
            prefix + "sasl.enabled.mechanisms": ",".join(map(str.upper, mechanisms)),
            **{f"{prefix}{name}.sasl.jaas.config": self._jaas(name) for name in mechanisms},
        }

    def _jaas(self, mechanism: str) -> str:
        if mechanism != "gssapi":
            return JAAS[mechanism]
        assert self.kdc is not None
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self.kdc.keytab("kafka/localhost")}" principal="kafka/localhost@{REALM}";'
        )

    def _signed(self, listener: str, issuer: str) -> dict[str, object]:
        prefix = f"listener.name.{listener}.oauthbearer.sasl."
        handler = f"{SEC}oauthbearer.OAuthBearerValidatorCallbackHandler"
        return {
            prefix + "server.callback.handler.class": handler,
            prefix + "oauthbearer.jwks.endpoint.url": self.tokens.jwks_url(issuer),
            prefix + "oauthbearer.expected.audience": "kafka",
            prefix + "oauthbearer.expected.issuer": self.tokens.issuer(issuer),
        }


# -- logins that succeed -------------------------------------------------------------------------


async def _certificate(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return kafka.certificates.tls(certfile=str(kafka.certificates.client))


async def _plain(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return SaslPlain(USER, PASSWORD, tls)


async def _scram_256(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return SaslScram(USER, PASSWORD, "SCRAM-SHA-256", tls=tls)


async def _scram_512(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return SaslScram(USER, PASSWORD, tls=tls)


async def _unsecured(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return SaslOAuthBearer(unsecured_tokens, tls)


async def _client_credentials(kafka: SecuredKafka, tls: Tls | None) -> Security:
    return SaslOAuthBearer(credentials(kafka), tls)


async def _jwt_bearer(kafka: SecuredKafka, tls: Tls | None) -> Security:
    provider = OidcJwtBearer(
        kafka.tokens.token_url(ISSUER),
        scope=AUDIENCE,
        private_key_file=str(kafka.key),
        issuer=USER,
        subject=USER,
        audience=kafka.tokens.issuer(ISSUER),
    )
    return SaslOAuthBearer(provider, tls)


async def _gssapi(kafka: SecuredKafka, tls: Tls | None) -> Security:
    assert kafka.kdc is not None
    return SaslGssapi(principal=USER, keytab=kafka.kdc.keytab(USER), tls=tls)


async def _delegation_token(kafka: SecuredKafka, tls: Tls | None) -> Security:
    way = await kafka.way("PLAIN", "PLAINTEXT")
    async with Admin(**way.options) as admin:
        token = await admin.create_delegation_token()
        # The broker learns of the token a moment after the controller has created it.
        await until_described(admin, token.token_id, True)
    return SaslScram(token.token_id, token.hmac, "SCRAM-SHA-256", token_auth=True, tls=tls)


async def until_described(admin: Admin, token_id: str, exists: bool) -> None:
    """Wait until the broker knows a delegation token, or does not know it any more."""
    async with asyncio.timeout(60):
        while True:
            known = [each.token_id for each in await admin.describe_delegation_token()]
            if (token_id in known) == exists:
                return
            await asyncio.sleep(0.05)


def credentials(
    kafka: SecuredKafka, issuer: str = ISSUER, audience: str = AUDIENCE
) -> OidcClientCredentials:
    """Return a provider of signed tokens."""
    return OidcClientCredentials(kafka.tokens.token_url(issuer), USER, "any secret", audience)


Make: TypeAlias = Callable[[SecuredKafka, Tls | None], Awaitable[Security]]

LOGINS: dict[str, tuple[str, Make]] = {
    "mTLS": ("MTLS", _certificate),
    "PLAIN": ("SASL", _plain),
    "SCRAM-SHA-256": ("SASL", _scram_256),
    "SCRAM-SHA-512": ("SASL", _scram_512),
    "unsecured token": ("SASL", _unsecured),
    "client credentials": ("JWKS", _client_credentials),
    "JWT bearer": ("JWKS", _jwt_bearer),
    "GSSAPI": ("GSSAPI", _gssapi),
    "delegation token": ("SASL", _delegation_token),
}
"""The kinds of logins, with the first part of the listener's name."""

KERBEROS_PRINCIPALS = ("kafka/localhost", USER)


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Start a token server, a KDC if the machine has one, and a broker that trusts both."""
    with ExitStack() as stack:
        tokens = stack.enter_context(TokenServer({PAST: {AUDIENCE: EXPIRED_CLAIMS}}))
        kdc = None
        if not MISSING:
            kdc = stack.enter_context(Kdc())
            for principal in KERBEROS_PRINCIPALS:
                kdc.add(principal)
        kafka = SecuredKafka(folder, tokens, kdc)
        stack.enter_context(kafka.cluster)
        asyncio.run(kafka.create_users())
        yield kafka
