"""`BrokerListener`: one more listener of each broker, with its encryption and its logins."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokclient.testing.broker.connections.sasl import MECHANISMS
from aiokclient.testing.broker.security.jwt import TokenRules
from aiokclient.testing.broker.security.scram import LEAST_ITERATIONS
from aiokclient.types import public_in

DEFAULT: Final = "PLAINTEXT"
"""The name of the listener that every broker has, without encryption and logins."""

CONTROLLER: Final = "CONTROLLER"
"""The name of the listener at which every broker is a controller (KIP-919)."""

CERTIFICATES: Final = ("valid", "expired", "untrusted", "other-host")
"""The kinds of certificates that brokers can have."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@public_in("aiokclient.testing")
@dataclass(frozen=True, kw_only=True)
class BrokerListener:
    """A listener of each broker, in addition to the default one, which is named PLAINTEXT.

        EmbeddedCluster(listeners={
            "SASL_SSL": BrokerListener(
                tls=True, mechanisms=("SCRAM-SHA-512",), users={"alice": "secret"}
            ),
        })

    tls: Whether connections are encrypted. Certificates are made when the cluster is created; this
        needs the package trustme (`pip install aiokclient[testing]`). The simulated network does
        not support TLS.
    certificate: The certificate of the brokers: "valid", or one that clients refuse: "expired",
        "untrusted" (of another authority), or "other-host" (for another host name).
    mutual_tls: Whether a client needs a certificate of the cluster's authority. Without SASL, its
        common name is the client's principal: `User:<name>`.
    mechanisms: The SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and OAUTHBEARER. Without
        any, clients do not log in and have the principal `User:ANONYMOUS`.
    users: The passwords of users, for PLAIN and SCRAM. SCRAM users are the same on all listeners,
        as in Kafka, where they are stored in the cluster.
    iterations: The iterations of SCRAM for these users.
    max_reauth_ms: The time in milliseconds after which a client must log in again (KIP-368), or 0
        for no limit. The first request after that time closes the connection.
    jwks: The keys of signed tokens (RS256 or ES256) for OAUTHBEARER: a JSON Web Key Set as a
        mapping or as text. Without them, the listener takes unsecured tokens, as Kafka does by
        default. `TokenIssuer` makes keys and tokens.
    token_issuer, token_audience: The issuer and the audience that signed tokens must have.
    host: The host name that clients receive. The default is that of the cluster.
    port: The port of the first broker; the other brokers use the ports after it. With 0, the
        operating system chooses free ports.

    Raises ValueError for values that do not fit together.
    """

    tls: bool = False
    certificate: str = "valid"
    mutual_tls: bool = False
    mechanisms: Sequence[str] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    iterations: int = LEAST_ITERATIONS
    max_reauth_ms: int = 0
    jwks: Mapping[str, Any] | str | None = field(default=None, repr=False)
    token_issuer: str | None = None
    token_audience: str | None = None
    host: str | None = None
    port: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.mechanisms, str):
            raise ValueError(
                f"mechanisms={self.mechanisms!r} is a string. Use a sequence of names."
            )
        for name in self.mechanisms:
            if name not in MECHANISMS:
                offered = ", ".join(MECHANISMS)
                raise ValueError(
                    f"mechanisms: {name!r} is not a mechanism of the embedded cluster. Use some "
                    f"of {offered}."
                )
        if self.certificate not in CERTIFICATES:
            raise ValueError(
                f"certificate={self.certificate!r} is not allowed. Use one of "
                f"{', '.join(map(repr, CERTIFICATES))}."
            )
        if not self.tls and (self.mutual_tls or self.certificate != "valid"):
            name = "mutual_tls" if self.mutual_tls else "certificate"
            raise ValueError(f"{name} needs tls=True.")
        if not self.mechanisms and (self.users or self.max_reauth_ms):
            raise ValueError("users and max_reauth_ms need mechanisms, by which clients log in.")
        if self.max_reauth_ms < 0:
            raise ValueError(f"max_reauth_ms={self.max_reauth_ms} is negative. Use 0 for no limit.")
        if self.iterations < LEAST_ITERATIONS:
            raise ValueError(
                f"iterations={self.iterations} is not allowed by Kafka. Use {LEAST_ITERATIONS} "
                "or more."
            )
        if not all(self.users) or not all(self.users.values()):
            raise ValueError("users: Names and passwords cannot be empty.")
        self._check_tokens()

    def _check_tokens(self) -> None:
        if self.jwks is not None and "OAUTHBEARER" not in self.mechanisms:
            raise ValueError("jwks needs the mechanism OAUTHBEARER.")
        if self.jwks is None and (self.token_issuer or self.token_audience):
            raise ValueError(
                "token_issuer and token_audience need jwks, because Kafka does not check them in "
                "unsecured tokens."
            )
        if self.jwks is not None:
            _check_keys(self.jwks)

    @property
    def token_rules(self) -> TokenRules:
        """The requirements of the listener for tokens."""
        if self.jwks is None:
            return TokenRules()
        return TokenRules(_check_keys(self.jwks), self.token_issuer, self.token_audience)


def _check_keys(jwks: Mapping[str, Any] | str) -> tuple[Mapping[str, Any], ...]:
    try:
        found = json.loads(jwks) if isinstance(jwks, str) else jwks
        keys = tuple(found["keys"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            'jwks is not a JSON Web Key Set, which is an object with the list "keys".'
        ) from error
    if not keys or not all(isinstance(each, Mapping) for each in keys):
        raise ValueError('jwks: The list "keys" must have at least one key.')
    return keys


def check_listeners(listeners: Mapping[str, BrokerListener]) -> None:
    """Raise ValueError or TypeError if the listeners of a cluster are not valid."""
    for name, listener in listeners.items():
        if not isinstance(listener, BrokerListener):
            raise TypeError(f"listeners: {name!r} is not a BrokerListener.")
        if name in (DEFAULT, CONTROLLER) or not _NAME.fullmatch(name):
            raise ValueError(
                f"listeners: {name!r} cannot be the name of a listener. Use capital letters, "
                f"digits, and underscores, and neither {DEFAULT} nor {CONTROLLER}, which every "
                "broker has."
            )
