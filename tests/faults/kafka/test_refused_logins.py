"""Logins that a real Kafka, a token server, or a token provider refuses, and their errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from kerberos_peers import needs_kerberos
from logging_in import refusal
from secured_kafka import (
    PASSWORD,
    PAST,
    USER,
    SecuredKafka,
    credentials,
    unsecured,
    until_described,
)
from token_server import TokenServer, granted, refused, token_server

from aiokclient import (
    Admin,
    OAuthToken,
    OidcClientCredentials,
    OidcJwtBearer,
    SaslGssapi,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
)
from aiokclient.config.security.sasl import TokenProvider
from aiokclient.errors import (
    KafkaError,
    RetriableError,
    SaslAuthenticationError,
    TokenProviderError,
    TokenRefusedError,
)

TRANSPORTS = ["PLAINTEXT", "SSL"]


def check_refusal(error: KafkaError, servers: str, mechanism: str, user: str | None) -> None:
    """Check that an error says who was refused, where, and by which operation."""
    assert type(error) is SaslAuthenticationError, error
    assert not error.retriable
    assert error.resource == user
    text = str(error)
    assert "in SaslAuthenticate" in text
    for part in (servers, f"with the mechanism {mechanism}", repr(user) if user else "the client"):
        assert part in text


# -- passwords -----------------------------------------------------------------------------------


@pytest.mark.fault(48)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_wrong_credentials_raise_what_the_broker_says(
    secured: SecuredKafka, mechanism: str, user: str, password: str, transport: str
) -> None:
    tls = secured.tls if transport == "SSL" else None
    security = (
        SaslPlain(user, password, tls)
        if mechanism == "PLAIN"
        else SaslScram(user, password, mechanism, tls=tls)
    )
    servers = secured.servers(f"SASL_{transport}")
    error = await refusal(servers, security=security)
    check_refusal(error, servers, mechanism, user)
    assert "Authentication failed" in str(error)


async def test_a_delegation_token_is_refused_with_another_hmac_and_after_its_end(
    secured: SecuredKafka,
) -> None:
    way = await secured.way("delegation token", "PLAINTEXT")
    token: Any = way.security
    wrong = SaslScram(token.user, PASSWORD, "SCRAM-SHA-256", token_auth=True)
    error = await refusal(way.servers, security=wrong)
    check_refusal(error, way.servers, "SCRAM-SHA-256", token.user)
    async with Admin(**(await secured.way("PLAIN", "PLAINTEXT")).options) as admin:
        await admin.expire_delegation_token(token.password)
        await until_described(admin, token.user, False)
    error = await refusal(way.servers, security=token)
    check_refusal(error, way.servers, "SCRAM-SHA-256", token.user)


# -- tokens that the broker refuses --------------------------------------------------------------


def later(provider: TokenProvider) -> TokenProvider:
    """Return a provider that claims that its tokens last for an hour."""

    async def provide() -> OAuthToken:
        token = await provider()
        return OAuthToken(token.token, int(1000 * (time.time() + 3600)), token.principal)

    return provide


async def expired() -> OAuthToken:
    return unsecured(-100)


async def garbage() -> OAuthToken:
    return OAuthToken("garbage", int(1000 * (time.time() + 3600)), USER)


REFUSED_TOKENS: dict[str, tuple[str, Callable[[SecuredKafka], TokenProvider]]] = {
    "an expired unsecured token": ("SASL", lambda kafka: later(expired)),
    "an expired signed token": ("PAST", lambda kafka: later(credentials(kafka, PAST))),
    "another audience": ("JWKS", lambda kafka: credentials(kafka, audience="elsewhere")),
    "another issuer": ("JWKS", lambda kafka: credentials(kafka, "another")),
    "no signature": ("JWKS", lambda kafka: later(lambda: _done(unsecured()))),
    "garbage instead of an unsecured token": ("SASL", lambda kafka: garbage),
    "garbage instead of a signed token": ("JWKS", lambda kafka: garbage),
}


async def _done(token: OAuthToken) -> OAuthToken:
    return token


@pytest.mark.fault(48)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("token", REFUSED_TOKENS)
async def test_a_token_that_the_broker_refuses_is_explained(
    secured: SecuredKafka, token: str, transport: str
) -> None:
    listener, make = REFUSED_TOKENS[token]
    servers = secured.servers(f"{listener}_{transport}")
    tls = secured.tls if transport == "SSL" else None
    error = await refusal(servers, security=SaslOAuthBearer(make(secured), tls))
    check_refusal(error, servers, "OAUTHBEARER", USER)
    assert "invalid_token" in str(error)


# -- token providers -----------------------------------------------------------------------------


async def raises() -> OAuthToken:
    raise OSError("no token server")


async def hangs() -> OAuthToken:
    await asyncio.sleep(1000)
    raise AssertionError


async def no_token() -> Any:
    return "not an OAuthToken"


@pytest.mark.fault(47)
@pytest.mark.parametrize(
    ("provider", "text", "cause"),
    [
        (raises, "The token provider raised OSError", OSError),
        (hangs, "The token provider did not return a token within", type(None)),
        (no_token, "The token provider returned a str, not an OAuthToken", type(None)),
        (expired, "The token provider returned a token that has expired", type(None)),
    ],
)
async def test_a_failing_token_provider_is_the_error_of_the_start(
    secured: SecuredKafka, provider: TokenProvider, text: str, cause: type
) -> None:
    error = await refusal(
        secured.servers("SASL_PLAINTEXT"),
        security=SaslOAuthBearer(provider),
        default_api_timeout_ms=2_000,
    )
    assert type(error) is TokenProviderError
    assert isinstance(error, RetriableError)
    assert text in str(error)
    assert type(error.__cause__) is cause


Respond = Callable[[Any], tuple[int, bytes] | None]

BAD_SERVERS: list[tuple[str, Respond, type[KafkaError], str]] = [
    (
        "wrong secret",
        lambda asked: refused("invalid_client", "Wrong secret.", 401),
        TokenRefusedError,
        "refused the request with the HTTP status 401 and the error invalid_client: Wrong secret.",
    ),
    ("hangs", lambda asked: None, TokenProviderError, "did not respond in time"),
    (
        "500",
        lambda asked: (500, b"<html>broken</html>"),
        TokenProviderError,
        "responded with the HTTP status 500",
    ),
    (
        "garbage",
        lambda asked: (200, b"\0garbage"),
        TokenProviderError,
        "is not usable: It has no access_token.",
    ),
    (
        "garbage as a token",
        lambda asked: granted(["no token"]),
        TokenProviderError,
        "is not usable: It has no access_token.",
    ),
]


def by_secret(server: TokenServer, kafka: SecuredKafka) -> TokenProvider:
    return OidcClientCredentials(server.url, USER, "wrong", "kafka", read_timeout_ms=500)


def by_assertion(server: TokenServer, kafka: SecuredKafka) -> TokenProvider:
    return OidcJwtBearer(
        server.url, private_key_file=str(kafka.key), issuer=USER, read_timeout_ms=500
    )


@pytest.mark.fault(47)
@pytest.mark.parametrize("make", [by_secret, by_assertion])
@pytest.mark.parametrize(
    ("respond", "kind", "text"), [case[1:] for case in BAD_SERVERS], ids=[c[0] for c in BAD_SERVERS]
)
async def test_a_token_server_that_refuses_or_fails_is_named(
    secured: SecuredKafka,
    make: Callable[[TokenServer, SecuredKafka], TokenProvider],
    respond: Respond,
    kind: type[KafkaError],
    text: str,
) -> None:
    async with token_server() as server:
        server.respond = respond
        error = await refusal(
            secured.servers("JWKS_PLAINTEXT"),
            security=SaslOAuthBearer(make(server, secured)),
            default_api_timeout_ms=2_000,
        )
        attempts = len(server.requests)
    assert type(error) is kind
    assert f"oken endpoint {server.url} " in str(error)
    assert text in str(error)
    assert isinstance(error, RetriableError) == (kind is TokenProviderError)
    assert attempts >= 1
    assert attempts < 30, "the endpoint is asked again with backoff"


# -- Kerberos ------------------------------------------------------------------------------------


@needs_kerberos
@pytest.mark.fault(48)
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda keytab: SaslGssapi("other", USER, keytab), "not found in Kerberos database"),
        (lambda keytab: SaslGssapi(principal="nobody", keytab=keytab), "the principal is nobody"),
        (lambda keytab: SaslGssapi(ticket_cache="FILE:/nowhere/tickets"), "no Kerberos ticket"),
    ],
)
async def test_a_login_without_a_ticket_is_explained(
    secured: SecuredKafka, make: Callable[[str], SaslGssapi], text: str
) -> None:
    assert secured.kdc is not None
    error = await refusal(
        secured.servers("GSSAPI_PLAINTEXT"), security=make(secured.kdc.keytab(USER))
    )
    assert isinstance(error, SaslAuthenticationError)
    assert text in str(error)
    assert "Check the principal, the keytab" in str(error)
