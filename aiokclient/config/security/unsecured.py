"""Tokens without a signature, as Java's OAuthBearerLoginModule makes for development."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Final

from aiokclient.config.secret import Secret
from aiokclient.config.security.sasl import OAuthToken
from aiokclient.errors import ConfigError

__all__ = ["PREFIX", "UnsecuredTokens"]

PREFIX: Final = "unsecuredLogin"
LIFETIME_S: Final = 3600


class UnsecuredTokens:
    """A token provider that makes each token from the options of a JAAS entry."""

    def __init__(self, options: Mapping[str, Secret]) -> None:
        self._claims: dict[str, object] = {}
        self._extensions: dict[str, str] = {}
        texts = {
            name.removeprefix(PREFIX): value.reveal()
            for name, value in options.items()
            if name.startswith(PREFIX)
        }
        self._principal_claim = texts.pop("PrincipalClaimName", "sub")
        texts.pop("ScopeClaimName", None)
        self._lifetime_s = _number(texts.pop("LifetimeSeconds", str(LIFETIME_S)))
        for name, text in texts.items():
            kind, _, key = name.partition("_")
            if kind == "StringClaim":
                self._claims[key] = text
            elif kind == "NumberClaim":
                self._claims[key] = _number(text)
            elif kind == "ListClaim":
                self._claims[key] = text[1:].split(text[0]) if text else []
            elif kind == "Extension":
                self._extensions[key] = text
        if not isinstance(self._claims.get(self._principal_claim), str):
            raise ConfigError(
                f"sasl_jaas_config: {PREFIX}StringClaim_{self._principal_claim} is missing: it is "
                "the name of the user."
            )

    def __repr__(self) -> str:
        return f"UnsecuredTokens({self._claims[self._principal_claim]!r})"

    async def __call__(self) -> OAuthToken:
        now = time.time()
        claims = {"iat": now, "exp": now + self._lifetime_s, **self._claims}
        parts = (_encoded({"alg": "none"}), _encoded(claims), "")
        principal = self._claims[self._principal_claim]
        return OAuthToken(
            ".".join(parts), int(1000 * (now + self._lifetime_s)), str(principal), self._extensions
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"sasl_jaas_config: {PREFIX}...: a number is malformed.") from None


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
