"""The parts of each SASL mechanism of the broker: its steps, and the accounts that it checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from aiokclient.testing.broker.codes import Code, Refused


class Login(NamedTuple):
    """The result of an authentication."""

    user: str
    expires_at_ms: int | None = None
    """The time at which the credentials expire, in milliseconds since the epoch."""
    token: bool = False
    """Whether the client used a delegation token."""


class Challenge(NamedTuple):
    """The broker's message to the client, and whether the client is now authenticated."""

    message: bytes
    done: bool
    login: Login | None = None
    """The result of the authentication. While it is None, the client is anonymous."""


class ServerMechanism(Protocol):
    """The broker's side of one authentication."""

    def answer_message(self, message: bytes) -> Challenge:
        """Return the response to a message of the client.

        Raises Refused with SASL_AUTHENTICATION_FAILED if the credentials are wrong.
        """
        ...


class ScramCredential(NamedTuple):
    """The values that a broker stores for a password (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramAccounts(Protocol):
    """The users of SCRAM, which are the same on all listeners."""

    def find_credential(self, mechanism: str, user: str) -> ScramCredential | None: ...

    def find_token_login(
        self, mechanism: str, token_id: str
    ) -> tuple[ScramCredential, Login] | None:
        """Return the credential and the owner of a delegation token, or None if it is not valid."""
        ...


class Bearer(NamedTuple):
    """The valid token of a client: its principal, and its expiry in milliseconds."""

    user: str
    expires_at_ms: int


class Accounts(NamedTuple):
    """Everything that the mechanisms of one listener check credentials against."""

    passwords: Mapping[str, str]
    """The passwords of PLAIN, by user."""
    scram: ScramAccounts
    bearer: Callable[[str], Bearer]
    """A function that checks a token. It raises ValueError if the token is not valid."""
    rng: random.Random


def make_credentials_error(mechanism: str) -> Refused:
    """Return a refusal with Kafka's message, which does not reveal the cause."""
    return Refused(
        Code.SASL_AUTHENTICATION_FAILED,
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}",
    )
