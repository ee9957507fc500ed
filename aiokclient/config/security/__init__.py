"""The security of connections: encryption by TLS, and authentication by TLS or SASL."""

from __future__ import annotations

from typing import TypeAlias

from aiokclient.config.security.sasl import (
    OAuthToken,
    SaslGssapi,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
)
from aiokclient.config.security.tls import Plaintext, Tls

__all__ = [
    "OAuthToken",
    "Plaintext",
    "SaslGssapi",
    "SaslOAuthBearer",
    "SaslPlain",
    "SaslScram",
    "Security",
    "Tls",
]

Security: TypeAlias = Plaintext | Tls | SaslPlain | SaslScram | SaslOAuthBearer | SaslGssapi
