"""Visits of the tour of secrets: token endpoints, and the secrets that an admin client handles."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from secret_tour import ISSUER, PASSWORD, SECRETS, WRONG, Tour, locked
from token_server import Asked, TokenServer, granted, refused, token_server

from aiokclient import (
    Admin,
    OidcClientCredentials,
    OidcJwtBearer,
    Producer,
    SaslOAuthBearer,
)
from aiokclient.admin import UserScramCredentialUpsertion
from aiokclient.errors import ClusterAuthorizationError
from aiokclient.protocol import ApiKey

__all__ = ["ENDPOINTS"]

CLIENT_SECRET, FOREIGN = SECRETS["client secret"], SECRETS["foreign token"]
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ASSERTING: dict[str, Any] = {
    "algorithm": "ES256",
    "issuer": "app",
    "subject": "app",
    "audience": "https://issuer.test",
}


def granting(tour: Tour) -> Callable[[Asked], tuple[int, bytes]]:
    """Return a function that grants tokens.

    The tour then searches for these tokens, and for the assertions in the requests.
    """

    def respond(asked: Asked) -> tuple[int, bytes]:
        for name in ("assertion", "client_assertion"):
            if name in asked.form:
                tour.search_for_assertion(asked.form[name])
        return granted(tour.search_for_token(ISSUER.token("alice")))

    return respond


async def visit_client_credentials(tour: Tour) -> None:
    """Request tokens with a client secret, and get both tokens and unusable responses."""
    async with token_server() as server:
        server.respond = granting(tour)
        for encoded in (False, True):
            provider = OidcClientCredentials(
                server.url, "app", CLIENT_SECRET, "kafka", header_urlencode=encoded
            )
            tour.collector.look(provider)
            await tour.use("SASL", SaslOAuthBearer(provider))
            await _refuse(tour, server, provider)
    await tour.fail("SASL", SaslOAuthBearer(provider), 300)


async def _refuse(tour: Tour, server: TokenServer, provider: Any) -> None:
    kind = server.respond
    authorization = server.requests[-1].headers["authorization"]
    for answer in (
        refused("invalid_client", f"{CLIENT_SECRET} is wrong: {authorization}", 401),
        refused(CLIENT_SECRET, None, 400),
        refused("server_error", CLIENT_SECRET, 503),
        (500, CLIENT_SECRET.encode()),
        (200, CLIENT_SECRET.encode()),
        (200, b'{"access_token": 5, "expires_in": 60}'),
        granted(f"{FOREIGN} {FOREIGN}", expires_in=60),
        granted(FOREIGN),
        None,
    ):
        server.respond = lambda asked, answer=answer: answer
        await tour.fail("SASL", SaslOAuthBearer(provider), 300, request_timeout_ms=250)
    server.respond = kind


async def visit_assertions(tour: Tour) -> None:
    """Request tokens with assertions, and fail to create assertions."""
    key = tour.cluster.client_certificate("alice").key
    path, other = tour.folder / "key.pem", tour.folder / "other.pem"
    path.write_text(tour.search_for_key(locked(tour.search_for_key(key))))
    other.write_text(FOREIGN)
    passphrase = SECRETS["key password"]
    async with token_server() as server:
        server.respond = granting(tour)
        for make in (
            lambda **named: OidcJwtBearer(server.url, **named),
            lambda **named: OidcClientCredentials(server.url, "app", **named),
        ):
            options = {**ASSERTING, "private_key_file": str(path)}
            provider = make(**options, private_key_passphrase=passphrase)
            tour.collector.look(provider)
            await tour.use("SASL", SaslOAuthBearer(provider))
            for wrong in (
                {"private_key_passphrase": WRONG},
                {},
                {"private_key_passphrase": passphrase, "algorithm": "RS256"},
                {"private_key_passphrase": passphrase, "private_key_file": str(other)},
                {"private_key_passphrase": passphrase, "template_file": str(other)},
                {"private_key_passphrase": passphrase, "private_key_file": "/no/such/file"},
            ):
                await tour.fail("SASL", SaslOAuthBearer(make(**options | wrong)), 300)
        made = OidcJwtBearer(server.url, assertion_file=str(other))
        tour.collector.look(made)
        await tour.use("SASL", SaslOAuthBearer(made))
        other.unlink()
        await tour.fail("SASL", SaslOAuthBearer(made), 300)
        for mistake in (
            lambda: OidcClientCredentials(server.url, "app", CLIENT_SECRET.encode()),
            lambda: OidcClientCredentials(server.url, None, CLIENT_SECRET),
            lambda: OidcClientCredentials("http://example.com", "app", CLIENT_SECRET),
            lambda: OidcClientCredentials(server.url, "app", client_secert=CLIENT_SECRET),
            lambda: OidcJwtBearer(server.url, client_secret=CLIENT_SECRET),
            lambda: OidcJwtBearer(server.url, private_key_passphrase=passphrase),
            lambda: OidcJwtBearer(server.url, **options, private_key_passphrase=[passphrase]),
        ):
            with tour.refused():
                mistake()


async def visit_endpoint_properties(tour: Tour) -> None:
    """Read Kafka's options for token endpoints, with secrets in options and in JAAS texts."""
    base = {
        "bootstrap.servers": tour.cluster.bootstrap_servers_for("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    option = {
        "sasl.oauthbearer.client.credentials.client.id": "app",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
    }
    text = CLIENT_SECRET.replace("\\", "\\\\").replace('"', '\\"')
    jaas = {"sasl.jaas.config": f'{MODULE} required clientId="app" clientSecret="{text}";'}
    async with token_server() as server:
        server.respond = granting(tour)
        url = {"sasl.oauthbearer.token.endpoint.url": server.url}
        for login in (option, jaas):
            producer = Producer.from_properties(base | url | login)
            tour.collector.look(producer._config.security)
            async with producer:
                await producer.send("t", b"value")
                tour.collector.client(producer)
            for mistake in (
                {"sasl.oauthbearer.token.endpoint.url": "ftp://example.com"},
                {"sasl.oauthbearer.jwt.retriever.class": "example.Retriever"},
                {"sasl.oauthbearer.assertion.algorithm": "none"},
                {"sasl.oauthbearer.client.credentials.secret": CLIENT_SECRET},
                {"sasl.mechanism": "PLAIN"},
            ):
                with tour.refused():
                    Producer.from_properties(base | url | login | mistake)


async def visit_admin_calls(tour: Tour) -> None:
    """Set passwords, and create, renew, and expire delegation tokens."""
    servers = tour.cluster.bootstrap_servers_for("SASL")
    security = tour.scram("alice", PASSWORD)
    new = SECRETS["new password"]
    upsertion = UserScramCredentialUpsertion("carol", new, "SCRAM-SHA-256")
    look = tour.collector.look
    async with Admin(bootstrap_servers=servers, security=security) as admin:
        look(upsertion, await admin.alter_user_scram_credentials([upsertion]))
        look(await admin.describe_user_scram_credentials())
        token = await admin.create_delegation_token()
        tour.search_for("delegation token", token.hmac.reveal())
        tour.search_for("delegation token", b64decode(token.hmac.reveal()))
        look(token, await admin.describe_delegation_token())
        await admin.renew_delegation_token(token)
        await admin.renew_delegation_token(token.hmac.reveal())
        for call in (admin.renew_delegation_token, admin.expire_delegation_token):
            for wrong in (WRONG, WRONG.encode(), SECRETS["base64"]):
                with tour.refused():
                    await call(wrong)
        await admin.expire_delegation_token(token.hmac.reveal())
        with tour.refused():
            await admin.renew_delegation_token(token)
        refusing = tour.cluster.fail(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ClusterAuthorizationError)
        with refusing, tour.refused():
            (await admin.alter_user_scram_credentials([upsertion])).raise_for_errors()
        tour.collector.client(admin)
    await tour.use("SASL", tour.scram("carol", new, "SCRAM-SHA-256"))
    for mistake in (
        lambda: UserScramCredentialUpsertion("carol", new.encode()),
        lambda: UserScramCredentialUpsertion("", new),
        lambda: UserScramCredentialUpsertion("carol", new, "SCRAM-MD5"),
        lambda: UserScramCredentialUpsertion("carol", new, iterations=1),
        lambda: UserScramCredentialUpsertion("carol", new, salt="text"),
    ):
        with tour.refused():
            mistake()


ENDPOINTS = (
    visit_client_credentials,
    visit_assertions,
    visit_endpoint_properties,
    visit_admin_calls,
)
