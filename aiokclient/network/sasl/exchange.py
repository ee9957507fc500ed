"""The interface of a SASL mechanism: its inputs, and the results of its steps. Sans-IO."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, Protocol

from aiokclient.errors import SaslAuthenticationError
from aiokclient.types.named_tuple import NamedTuple

MAX_CHALLENGE: Final = 64 * 1024
"""The largest accepted challenge in bytes."""


class ChallengeError(SaslAuthenticationError):
    """An error raised when the client does not accept a message of the broker."""

    what = "The client does not accept the broker's message of the SASL authentication."
    hint = "The connection was closed. Check that the address belongs to a broker of your cluster."


class Login(NamedTuple):
    """The inputs of one authentication."""

    credentials: Any
    """The security object of the client, such as SaslPlain(...)."""
    host: str = ""
    """The host name of the broker, as configured or advertised."""
    token: Any = None
    """The token of OAUTHBEARER, or None for other mechanisms."""


class Thread(Enum):
    """The kind of thread that a step needs, because it would block the event loop."""

    COMPUTING = "computing"
    BLOCKING = "blocking"


class Mechanism(Protocol):
    """The client's side of one authentication."""

    @property
    def thread(self) -> Thread | None:
        """The kind of thread in which the next step must be called, or None for the event loop."""
        ...

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        """Return the next message to the broker, or None when the authentication is complete.

        The first challenge is empty. Raises SaslAuthenticationError for a challenge that the
        mechanism does not accept. The object cannot be used after that.
        """
        ...
