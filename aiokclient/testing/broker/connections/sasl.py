"""The broker's side of a connection's authentication: a table of steps and a table of mechanisms.

    VERSIONS ──ApiVersions──▶ HANDSHAKE ──SaslHandshake──▶ CONVERSATION ──the last message──▶ DONE
        └───────────────SaslHandshake────────────────────────▲                                │
                                                             └─SaslHandshake, once more (KIP-368)

A connection to a listener without mechanisms is DONE from the beginning. Before DONE, the broker
answers only ApiVersions, SaslHandshake, and SaslAuthenticate (`ALLOWED`), and closes a
connection that sends anything else. A refusal is answered, and then the connection is closed.

After a handshake in version 0, the messages of the mechanism are frames without headers (`raw`).
The broker answers them in the same way, and closes the connection instead of refusing.

A session that ends (`max_reauth_ms`, or a token that expires) can be renewed: a handshake begins
another authentication, with the same mechanism and the same principal. After a handshake for
another mechanism, the connection is FAILED: its next request closes it. So does the next request
after the end of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import (
    Accounts,
    Challenge,
    Login,
    ServerMechanism,
)
from aiokclient.testing.broker.security.oauthbearer import OAuthBearer
from aiokclient.testing.broker.security.plain import Plain
from aiokclient.testing.broker.security.principal import ANONYMOUS, USER, Principal
from aiokclient.testing.broker.security.scram import Scram

__all__ = [
    "ALLOWED",
    "MECHANISMS",
    "Accounts",
    "Authentication",
    "AuthenticationStep",
    "Challenge",
    "Login",
    "ServerMechanism",
]


MECHANISMS: dict[str, Callable[[Accounts], ServerMechanism]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": partial(Scram, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": partial(Scram, "SCRAM-SHA-512"),
    "OAUTHBEARER": OAuthBearer,
}
"""Mechanisms by Kafka's names. A listener offers those that it is configured with."""

_REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""A handshake within this time after the previous one does not begin another authentication."""


class AuthenticationStep(Enum):
    """The steps of a connection's authentication."""

    VERSIONS = "versions"
    HANDSHAKE = "handshake"
    CONVERSATION = "conversation"
    FAILED = "failed"
    DONE = "done"


ALLOWED: Final = {
    AuthenticationStep.VERSIONS: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    AuthenticationStep.HANDSHAKE: frozenset({ApiKey.SASL_HANDSHAKE}),
    AuthenticationStep.CONVERSATION: frozenset({ApiKey.SASL_AUTHENTICATE}),
    AuthenticationStep.FAILED: frozenset(),
    AuthenticationStep.DONE: frozenset(ApiKey),
}
"""The requests that a connection may send at each step."""


class Authentication:
    """The authentication of one connection, and its principal.

    `now` is the broker's monotonic clock in seconds, and `time_ms` its wall clock.
    """

    __slots__ = (
        "_accounts",
        "_begun_at",
        "_ends_at",
        "_max_ms",
        "_mechanism",
        "_name",
        "_now",
        "_time_ms",
        "lifetime_ms",
        "offered",
        "principal",
        "raw",
        "step",
    )

    def __init__(
        self,
        offered: Sequence[str],
        accounts: Accounts,
        now: Callable[[], float],
        time_ms: Callable[[], int],
        max_reauth_ms: int = 0,
    ) -> None:
        self.step = AuthenticationStep.VERSIONS if offered else AuthenticationStep.DONE
        self.principal = ANONYMOUS
        self.raw = False
        """Whether the next frames are messages of the mechanism without headers."""
        self.lifetime_ms = 0
        """The session lifetime that the last authentication resulted in; 0 for no limit."""
        self.offered = offered
        self._accounts = accounts
        self._now, self._time_ms = now, time_ms
        self._max_ms = max_reauth_ms
        self._name: str | None = None
        """The mechanism of the first authentication, which a later one cannot change."""
        self._mechanism: ServerMechanism | None = None
        self._ends_at: float | None = None
        self._begun_at: float | None = None

    def is_allowed(self, api: ApiKey) -> bool:
        """Return whether the connection may send this request now."""
        if api not in ALLOWED[self.step]:
            return False
        if (
            self.step is not AuthenticationStep.DONE
            or self._ends_at is None
            or api is ApiKey.SASL_HANDSHAKE
        ):
            return True
        return self._now() <= self._ends_at

    def expect_handshake(self) -> None:
        """Expect a handshake next, after an ApiVersions request was answered without an error."""
        if self.step is AuthenticationStep.VERSIONS:
            self.step = AuthenticationStep.HANDSHAKE

    def use_certificate(self, name: str) -> None:
        """Take the principal from the client's certificate."""
        self.principal = Principal(USER, name)

    def choose_mechanism(self, name: str, *, raw: bool = False) -> None:
        """Select a mechanism.

        Raises Refused if the mechanism is not offered or this step does not expect a handshake.
        """
        expected = self.step in (AuthenticationStep.VERSIONS, AuthenticationStep.HANDSHAKE)
        if not expected and not (self.step is AuthenticationStep.DONE and self._can_renew()):
            raise Refused(Code.ILLEGAL_SASL_STATE, "SaslHandshake was not expected now.")
        again = self.step is AuthenticationStep.DONE
        # A refusal ends the connection, so the step changes in any case.
        self.step = AuthenticationStep.HANDSHAKE
        if name not in self.offered:
            raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, f"The broker does not offer {name}.")
        if again and name != self._name:
            self.step = AuthenticationStep.FAILED
            return
        self._mechanism = MECHANISMS[name](self._accounts)
        self._name = name
        self.raw = raw
        self.step = AuthenticationStep.CONVERSATION

    def _can_renew(self) -> bool:
        """Return whether a handshake begins another authentication now."""
        if self._ends_at is None:
            return False
        now, begun = self._now(), self._begun_at
        if begun is not None and now - begun < _REAUTHENTICATION_INTERVAL_S:
            return False
        self._begun_at = now
        return True

    def answer_message(self, message: bytes) -> bytes:
        """Return the response to a message of the mechanism. Raises Refused."""
        if self.step is not AuthenticationStep.CONVERSATION or self._mechanism is None:
            raise Refused(
                Code.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        challenge = self._mechanism.answer_message(message)
        if challenge.done:
            self._complete_login(challenge.login)
        return challenge.message

    def _complete_login(self, login: Login | None) -> None:
        principal = ANONYMOUS if login is None else Principal(USER, login.user, login.token)
        if self._ends_at is not None and principal != self.principal:
            old = self.principal
            raise Refused(
                Code.SASL_AUTHENTICATION_FAILED,
                f"Cannot change principals during re-authentication from {old.type}.{old.name}: "
                f"{principal.type}.{principal.name}",
            )
        self.principal = principal
        limits = [self._max_ms] if self._max_ms else []
        if login is not None and login.expires_at_ms is not None:
            limits.append(max(0, login.expires_at_ms - self._time_ms()))
        if limits:
            self.lifetime_ms = min(limits)
            self._ends_at = self._now() + self.lifetime_ms / 1000
        self.step, self._mechanism, self.raw = AuthenticationStep.DONE, None, False
