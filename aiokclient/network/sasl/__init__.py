"""The SASL mechanisms of the client, which respond to the challenges of a broker. Sans-IO.

A mechanism is one module, with a sans-IO class that has the method `step`, and one row of
`MECHANISMS`. `network/authentication.py` exchanges the messages with the broker:

    SaslHandshake(mechanism) ─▶ step(b"") ─▶ SaslAuthenticate ─▶ step(challenge) ─▶ ... ─▶ None

This version provides no mechanisms for applications.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from aiokclient.config.security import Security

__all__ = ["MECHANISMS", "Mechanism", "Sasl"]


class Mechanism(Protocol):
    """The client's side of one authentication."""

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next message to the broker, or None when the authentication is complete.

        The first challenge is empty. Raises SaslAuthenticationError for a challenge that the
        mechanism does not accept.
        """
        ...


class Sasl(NamedTuple):
    """The mechanism that a client uses, with its credentials."""

    mechanism: str
    credentials: Any

    @classmethod
    def of(cls, security: Security) -> Sasl | None:
        """Return the mechanism of these security options, or None if they have none."""
        name = security.sasl_mechanism
        return None if name is None else cls(name, security)


MECHANISMS: dict[str, Callable[[Any], Mechanism]] = {}
"""Mechanisms by their names in Kafka. Each row makes an object for one authentication."""
