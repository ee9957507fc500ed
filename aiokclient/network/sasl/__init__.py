"""SASL mechanisms of the client: how each answers the challenges of a broker. Sans-IO.

A mechanism is one module, which has a pure class with `step`, and one row of `MECHANISMS`. The
conversation is held by `network/authentication.py`:

    SaslHandshake(mechanism) ─▶ step(b"") ─▶ SaslAuthenticate ─▶ step(challenge) ─▶ ... ─▶ None

There are no mechanisms for applications yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from aiokclient.config.security import Security

__all__ = ["MECHANISMS", "Mechanism", "Sasl"]


class Mechanism(Protocol):
    """The client's side of one authentication."""

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next message to the broker, or None when the broker has proven enough.

        The first challenge is empty. Raises SaslAuthenticationError for a challenge that the
        mechanism does not accept.
        """
        ...


class Sasl(NamedTuple):
    """The mechanism that a client uses, and what the mechanism needs."""

    mechanism: str
    credentials: Any

    @classmethod
    def of(cls, security: Security) -> Sasl | None:
        """Return the mechanism that these options name, or None if they name none."""
        name = security.sasl_mechanism
        return None if name is None else cls(name, security)


MECHANISMS: dict[str, Callable[[Any], Mechanism]] = {}
"""Mechanisms by Kafka's names: from credentials to a new object for one authentication."""
