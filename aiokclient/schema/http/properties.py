"""The options of Confluent's clients for a schema registry, as arguments of `SchemaRegistry`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from aiokclient.config.client import ClientConfig
from aiokclient.config.properties import hidden_properties
from aiokclient.config.secret import Secret
from aiokclient.config.security import OAuthToken, Tls
from aiokclient.config.security.oidc.providers import OidcClientCredentials
from aiokclient.errors import ConfigError

PREFIX: Final = "schema.registry."
LIFE_MS: Final = 10 * 365 * 86_400_000
"""The lifetime of a token that is given as a text, whose end is not known."""

SECRETS: Final = (
    *("basic.auth.user.info", "bearer.auth.client.secret", "bearer.auth.token"),
    "proxy",
)
NAMES: Final = (
    "basic.auth.credentials.source",
    "bearer.auth.client.id",
    "bearer.auth.credentials.source",
    "bearer.auth.identity.pool.id",
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.logical.cluster",
    "bearer.auth.scope",
    "bearer.auth.scope.claim.name",
    "bearer.auth.sub.claim.name",
    "proxy.host",
    "proxy.port",
)
URL: Final = "url"
SSL: Final = "ssl."
AUTH: Final = ("basic.auth.", "bearer.auth.")
FILES: Final[Mapping[str, str]] = {
    "ssl.ca.location": "cafile",
    "ssl.certificate.location": "certfile",
    "ssl.key.location": "keyfile",
    "ssl.key.password": "password",
}
"""The options of TLS of clients in Python and C; others are those of Java."""
SSL_PUBLIC: Final = (
    *(name for name in FILES if "password" not in name),
    *("ssl.truststore.location", "ssl.truststore.type", "ssl.keystore.location"),
    *("ssl.keystore.type", "ssl.endpoint.identification.algorithm", "ssl.protocol"),
    *("ssl.enabled.protocols", "ssl.cipher.suites"),
)


class StaticToken:
    """A token provider with a token that the program got from elsewhere."""

    __slots__ = ("_token",)

    def __init__(self, token: Secret) -> None:
        self._token = token

    def __repr__(self) -> str:
        return "StaticToken()"

    async def __call__(self) -> OAuthToken:
        return OAuthToken(self._token, time.time_ns() // 1_000_000 + LIFE_MS)


def hide_registry_properties(
    properties: Any, options: dict[str, Any]
) -> dict[str, Any] | Exception:
    """Return the properties with all secrets hidden, or the error of reading their file.

    The arguments of `SchemaRegistry` in `options` that may be secret are hidden in place. This does
    not raise. Blocking if it reads a file.
    """
    for name in ("urls", "basic_auth", "headers", "proxy"):
        if name in options:
            options[name] = Secret.of(options[name])
    public = (*NAMES, *SSL_PUBLIC)
    return hidden_properties(
        properties,
        (*SECRETS, *(PREFIX + name for name in SECRETS)),
        (*public, *(PREFIX + name for name in public)),
    )


def registry_options(properties: dict[str, Any] | Exception) -> dict[str, Any]:
    """Return the arguments of `SchemaRegistry` that hidden properties describe.

    Raises ConfigError for values that are not allowed, and the error of reading them.
    """
    if isinstance(properties, Exception):
        raise properties
    given = _own(properties)
    if URL not in given:
        raise ConfigError(f"{PREFIX}url: It is missing. Give the URL of the schema registry.")
    options: dict[str, Any] = {"urls": given.pop(URL)}
    options |= _tls({name: given.pop(name) for name in list(given) if name.startswith(SSL)})
    options |= _basic(given)
    options |= _bearer(given)
    options |= _proxy(given)
    if given:
        raise ConfigError(
            f"{next(iter(given))}: There is no such option of a schema registry, or it has no "
            "effect here. Remove it."
        )
    return options


def _own(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the registry by their names without the prefix."""
    own = {n.removeprefix(PREFIX): v for n, v in found.items() if n.startswith(PREFIX)}
    unprefixed = (URL, SSL, *AUTH) if URL in found and URL not in own else AUTH
    for name, value in found.items():
        if name.startswith(unprefixed):
            own.setdefault(name, value)
    return own


def _basic(given: dict[str, Any]) -> dict[str, Any]:
    user = given.pop("basic.auth.user.info", None)
    source = given.pop("basic.auth.credentials.source", "USER_INFO" if user else "URL")
    if source == "URL":
        return {}
    if source != "USER_INFO":
        raise ConfigError(
            f"basic.auth.credentials.source: {source} is not available. Give USER_INFO with "
            "basic.auth.user.info, or URL."
        )
    if not user:
        raise ConfigError("basic.auth.user.info: It is missing. Give it as user:password.")
    return {"basic_auth": user}


def _proxy(given: dict[str, Any]) -> dict[str, Any]:
    proxy, host = given.pop("proxy", None), given.pop("proxy.host", None)
    port = given.pop("proxy.port", None)
    if proxy or not host:
        return {"proxy": proxy} if proxy else {}
    if port is None:
        raise ConfigError("proxy.port: It is missing. Give it together with proxy.host.")
    return {"proxy": f"http://{host}:{port}"}


def _bearer(given: dict[str, Any]) -> dict[str, Any]:
    bearer = {n: given.pop(n) for n in list(given) if n.startswith("bearer.auth.")}
    if not bearer:
        return {}
    options: dict[str, Any] = {}
    headers = {
        "target-sr-cluster": bearer.pop("bearer.auth.logical.cluster", None),
        "Confluent-Identity-Pool-Id": bearer.pop("bearer.auth.identity.pool.id", None),
    }
    headers = {name: value for name, value in headers.items() if value}
    if headers:
        options["headers"] = headers
    has_token = "bearer.auth.token" in bearer
    source = bearer.pop(
        "bearer.auth.credentials.source", "STATIC_TOKEN" if has_token else "OAUTHBEARER"
    )
    if source == "STATIC_TOKEN":
        if not has_token:
            raise ConfigError("bearer.auth.token: It is missing.")
        options["token_provider"] = StaticToken(bearer.pop("bearer.auth.token"))
    elif source == "OAUTHBEARER":
        options["token_provider"] = _oidc(bearer)
    else:
        raise ConfigError(
            f"bearer.auth.credentials.source: {source} is not available. Give STATIC_TOKEN or "
            "OAUTHBEARER, or pass token_provider= in a program."
        )
    given |= bearer  # What is left has no effect.
    return options


def _oidc(bearer: dict[str, Any]) -> OidcClientCredentials:
    needed = {
        name: bearer.pop(f"bearer.auth.{name}", None)
        for name in ("issuer.endpoint.url", "client.id", "client.secret")
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise ConfigError(f"bearer.auth.{missing[0]}: OAUTHBEARER needs it.")
    return OidcClientCredentials(
        needed["issuer.endpoint.url"],
        needed["client.id"],
        needed["client.secret"],
        bearer.pop("bearer.auth.scope", None),
        sub_claim_name=bearer.pop("bearer.auth.sub.claim.name", "sub"),
        scope_claim_name=bearer.pop("bearer.auth.scope.claim.name", "scope"),
    )


def _tls(given: Mapping[str, Any]) -> dict[str, Any]:
    if not given:
        return {}
    if given.keys() <= FILES.keys():
        return {"security": Tls(**{FILES[name]: value for name, value in given.items()})}
    properties = {"bootstrap.servers": "registry:1", "security.protocol": "SSL", **given}
    return {"security": ClientConfig.from_properties(properties).security}
