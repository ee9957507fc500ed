"""The interface of a SASL mechanism: its inputs, and the results of its steps. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aiokclient.errors import SaslAuthenticationError

__all__ = ["MAX_CHALLENGE", "ChallengeError", "Compute", "Login", "Mechanism", "Step"]

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


class Compute(NamedTuple):
    """A step that needs a thread, because its work would block the event loop.

    The caller runs `work()` in a thread and passes its result to `then`, which returns the step.
    Nothing else is done with the mechanism in the meantime.
    """

    work: Callable[[], Any]
    then: Callable[[Any], Step]
    blocking: bool = False
    """Whether the work waits for something, instead of computing."""


Step: TypeAlias = "bytes | Compute | None"
"""The next message to the broker, or the work that must come before it.

None if the authentication is complete.
"""


class Mechanism(Protocol):
    """The client's side of one authentication."""

    def step(self, challenge: bytes) -> Step:
        """Return the next message to the broker, or None when the authentication is complete.

        The first challenge is empty. Raises SaslAuthenticationError for a challenge that the
        mechanism does not accept. The object cannot be used after that.
        """
        ...
