"""The broker's side of a connection's authentication: a table of steps and a table of mechanisms.

    HANDSHAKE ──SaslHandshake──▶ CONVERSATION ──SaslAuthenticate, the last one──▶ DONE

A connection to a listener without mechanisms is DONE from the beginning. Before that step the
broker answers only ApiVersions, SaslHandshake, and SaslAuthenticate (`ALLOWED`), and closes a
connection that sends anything else, as Kafka does. A refusal is answered, and then the connection
is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.codes import Code, Refused

__all__ = [
    "ALLOWED",
    "MECHANISMS",
    "Authentication",
    "Challenge",
    "ServerMechanism",
    "AuthenticationStep",
]


class Challenge(NamedTuple):
    """The broker's message to the client, and whether the client is now authenticated."""

    message: bytes
    done: bool


class ServerMechanism(Protocol):
    """The broker's side of one authentication."""

    def step(self, message: bytes) -> Challenge:
        """Return the response to a message of the client.

        Raises Refused with SASL_AUTHENTICATION_FAILED if the credentials are wrong.
        """
        ...


MECHANISMS: dict[str, Callable[[], ServerMechanism]] = {}
"""Mechanisms by Kafka's names. A listener offers those that it is configured with."""


class AuthenticationStep(Enum):
    """The steps of a connection's authentication."""

    HANDSHAKE = "handshake"
    CONVERSATION = "conversation"
    DONE = "done"


ALLOWED: Final = {
    AuthenticationStep.HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    AuthenticationStep.CONVERSATION: frozenset({ApiKey.SASL_AUTHENTICATE}),
    AuthenticationStep.DONE: frozenset(ApiKey),
}
"""The requests that a connection may send at each step."""


class Authentication:
    """The authentication of one connection."""

    __slots__ = ("_mechanism", "_offered", "step")

    def __init__(self, offered: Sequence[str]) -> None:
        self.step = AuthenticationStep.HANDSHAKE if offered else AuthenticationStep.DONE
        self._offered = offered
        self._mechanism: ServerMechanism | None = None

    def allows(self, api: ApiKey) -> bool:
        """Return whether the connection may send this request now."""
        return api in ALLOWED[self.step]

    def choose(self, name: str) -> None:
        """Select a mechanism.

        Raises Refused if the mechanism is not offered or this step does not expect a handshake.
        """
        if self.step is not AuthenticationStep.HANDSHAKE:
            raise Refused(Code.ILLEGAL_SASL_STATE, "SaslHandshake was not expected now.")
        if name not in self._offered:
            raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, f"The broker does not offer {name}.")
        self._mechanism = MECHANISMS[name]()
        self.step = AuthenticationStep.CONVERSATION

    def take(self, message: bytes) -> bytes:
        """Return the response to a message of the mechanism. Raises Refused."""
        if self.step is not AuthenticationStep.CONVERSATION or self._mechanism is None:
            raise Refused(Code.ILLEGAL_SASL_STATE, "SaslAuthenticate was not expected now.")
        challenge = self._mechanism.step(message)
        if challenge.done:
            self.step, self._mechanism = AuthenticationStep.DONE, None
        return challenge.message
