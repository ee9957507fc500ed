"""The options of connections: from aiokafka's arguments to those of `aiokclient.Client`."""

from __future__ import annotations

import base64
import json
import math
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Self

from aiokclient import (
    OAuthToken,
    Plaintext,
    SaslGssapi,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    Tls,
)
from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider

PORT = 9092
NEVER_MS = 2**31 - 1
"""The time for which a connection may be idle if `connections_max_idle_ms` is None."""
TOKEN_S = 300
"""The seconds after which a token is asked for again that does not say when it expires."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

Security = Plaintext | Tls | SaslPlain | SaslScram | SaslGssapi | SaslOAuthBearer


class ConnectionOptions(NamedTuple):
    """The arguments that all of aiokafka's clients have in common."""

    bootstrap_servers: str | list[str]
    client_id: str | None
    metadata_max_age_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    connections_max_idle_ms: int | None
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the options among the arguments of a client."""
        return cls(**{name: arguments[name] for name in cls._fields})

    def convert(self) -> dict[str, Any]:
        """Return the options of `aiokclient.Client`. Raises ValueError for a wrong one."""
        idle_ms = self.connections_max_idle_ms
        timeout_ms, backoff_ms = whole(self.request_timeout_ms), whole(self.retry_backoff_ms)
        return {
            "bootstrap_servers": list_servers(self.bootstrap_servers),
            "client_id": self.client_id or "aiokafka",
            "metadata_max_age_ms": whole(self.metadata_max_age_ms),
            "request_timeout_ms": timeout_ms,
            "default_api_timeout_ms": timeout_ms,
            "retry_backoff_ms": backoff_ms,
            "retry_backoff_max_ms": max(backoff_ms, 1000),
            "connections_max_idle_ms": NEVER_MS if idle_ms is None else whole(idle_ms),
            "security": self._choose_security(),
        }

    def _choose_security(self) -> Security:
        if self.security_protocol not in PROTOCOLS:
            raise ValueError(
                f"security_protocol={self.security_protocol!r} is unknown: `security_protocol` "
                "should be SSL or PLAINTEXT, for a login with the prefix SASL_."
            )
        encrypted = "SSL" in self.security_protocol
        if encrypted and self.ssl_context is None:
            raise ValueError(
                f"`ssl_context` is mandatory if security_protocol=={self.security_protocol!r}. "
                "create_ssl_context() makes one."
            )
        tls = Tls(context=self.ssl_context) if encrypted else None
        if not self.security_protocol.startswith("SASL"):
            return tls or Plaintext()
        if self.sasl_mechanism not in MECHANISMS:
            raise ValueError(f"sasl_mechanism={self.sasl_mechanism!r} must be one of {MECHANISMS}.")
        if self.sasl_mechanism == "GSSAPI":
            return SaslGssapi(
                self.sasl_kerberos_service_name,
                domain_name=self.sasl_kerberos_domain_name,
                tls=tls,
            )
        if self.sasl_mechanism == "OAUTHBEARER":
            provider = self.sasl_oauth_token_provider
            if not isinstance(provider, AbstractTokenProvider):
                raise ValueError("OAUTHBEARER needs sasl_oauth_token_provider.")
            return SaslOAuthBearer(token_function(provider), tls=tls)
        if self.sasl_plain_username is None or self.sasl_plain_password is None:
            raise ValueError(
                "The arguments sasl_plain_username and sasl_plain_password required for "
                f"{self.sasl_mechanism} sasl are missing."
            )
        if self.sasl_mechanism == "PLAIN":
            return SaslPlain(self.sasl_plain_username, self.sasl_plain_password, tls=tls)
        return SaslScram(
            self.sasl_plain_username, self.sasl_plain_password, self.sasl_mechanism, tls=tls
        )


def whole(milliseconds: Any) -> Any:
    """Return a time that a program gives as a float, as aiokafka allows, in whole milliseconds."""
    return math.ceil(milliseconds) if isinstance(milliseconds, float) else milliseconds


def list_servers(given: str | Iterable[str]) -> list[str]:
    """Return the addresses, each with a port: 9092 if none is given."""
    texts = given.split(",") if isinstance(given, str) else list(given)
    servers = []
    for text in texts:
        address = text.strip()
        is_bare_ipv6 = address.count(":") > 1 and not address.startswith("[")
        if is_bare_ipv6:
            address = f"[{address}]"
        has_port = ":" in address.rpartition("]")[2]
        servers.append(address if has_port else f"{address}:{PORT}")
    return servers


def token_function(
    provider: AbstractTokenProvider,
) -> Callable[[], Coroutine[Any, Any, OAuthToken]]:
    """Return the function that a native client calls for a token."""

    async def provide_token() -> OAuthToken:
        token = await provider.token()
        extensions = provider.extensions() if hasattr(provider, "extensions") else None
        return OAuthToken(token, find_expiry_ms(token), extensions=extensions)

    return provide_token


def find_expiry_ms(token: str) -> int:
    """Return when a token expires: its claim `exp` if it is a JWT that has one, or soon."""
    parts = token.split(".")
    if len(parts) == 3:
        try:
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
            return int(claims["exp"] * 1000)
        except (ValueError, KeyError, TypeError):
            pass  # It is no JWT, or has no such claim: both are allowed.
    return int((time.time() + TOKEN_S) * 1000)
