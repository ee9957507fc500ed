"""Tokens without a signature, as Java's OAuthBearerLoginModule makes for development.

The claims of a token are secrets, like the token. No function that raises an error has one in a
local variable.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from aiokclient.config.secret import Secret
from aiokclient.config.security.sasl import OAuthToken
from aiokclient.errors import ConfigError

__all__ = ["PREFIX", "UnsecuredTokens"]

PREFIX: Final = "unsecuredLogin"
LIFETIME_S: Final = 3600


class UnsecuredTokens:
    """A token provider that makes each token from the options of a JAAS entry."""

    __slots__ = ("_extensions", "_lifetime_s", "_principal", "_secret")

    def __init__(self, options: Mapping[str, Secret]) -> None:
        parts = _parts(options)
        if isinstance(parts, str):
            raise ConfigError(f"sasl_jaas_config: {parts}")
        self._secret = parts.claims
        self._principal = parts.principal
        self._lifetime_s = parts.lifetime_s
        self._extensions = parts.extensions

    def __repr__(self) -> str:
        return f"UnsecuredTokens({self._principal!r})"

    async def __call__(self) -> OAuthToken:
        now = time.time()
        expires = now + self._lifetime_s
        token = _token(self._secret, {"iat": now, "exp": expires})
        return OAuthToken(token, int(1000 * expires), self._principal, self._extensions)


class _Parts(NamedTuple):
    """The contents of the tokens of one provider."""

    claims: Secret
    """The claims as a JSON text."""
    principal: str
    lifetime_s: float
    extensions: dict[str, str]


def _parts(options: Mapping[str, Secret]) -> _Parts | str:
    """Return the parts of tokens, or the problem as a sentence. This does not raise."""
    texts = {
        name.removeprefix(PREFIX): value.reveal()
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    principal_claim = texts.pop("PrincipalClaimName", "sub")
    texts.pop("ScopeClaimName", None)
    claims: dict[str, object] = {}
    extensions: dict[str, str] = {}
    try:
        lifetime_s = float(texts.pop("LifetimeSeconds", LIFETIME_S))
        for name, text in texts.items():
            kind, _, key = name.partition("_")
            if kind == "StringClaim":
                claims[key] = text
            elif kind == "NumberClaim":
                claims[key] = float(text)
            elif kind == "ListClaim":
                claims[key] = text[1:].split(text[0]) if text else []
            elif kind == "Extension":
                extensions[key] = text
    except ValueError:
        return f"{PREFIX}...: a number is malformed."
    principal = claims.get(principal_claim)
    if not isinstance(principal, str):
        return f"{PREFIX}StringClaim_{principal_claim} is missing: it is the name of the user."
    return _Parts(Secret(json.dumps(claims)), principal, lifetime_s, extensions)


def _token(claims: Secret, times: Mapping[str, float]) -> Secret:
    """Return a token. This does not raise."""
    parts = (_encoded({"alg": "none"}), _encoded({**times, **json.loads(claims.reveal())}), "")
    return Secret(".".join(parts))


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
