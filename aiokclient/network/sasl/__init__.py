"""The SASL mechanisms of the client, which respond to the challenges of a broker. Sans-IO.

A mechanism is one module, with a sans-IO class that has the method `answer_challenge`, and one row
of `MECHANISMS`. `network/authentication.py` exchanges the messages with the broker:

    SaslHandshake(mechanism) ─▶ answer_challenge(b"") ─▶ SaslAuthenticate
        ─▶ answer_challenge(challenge) ─▶ ... ─▶ None

A call that would block the event loop is called in a thread (`Mechanism.thread`).
"""

from __future__ import annotations

from collections.abc import Callable

from aiokclient.network.sasl.exchange import (
    MAX_CHALLENGE,
    ChallengeError,
    Login,
    Mechanism,
    Thread,
)
from aiokclient.network.sasl.gssapi import Gssapi
from aiokclient.network.sasl.oauthbearer import OAuthBearer
from aiokclient.network.sasl.plain import Plain
from aiokclient.network.sasl.scram import Scram

__all__ = [
    "MAX_CHALLENGE",
    "MECHANISMS",
    "ChallengeError",
    "Login",
    "Mechanism",
    "Thread",
]

MECHANISMS: dict[str, Callable[[Login], Mechanism]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": Scram,
    "SCRAM-SHA-512": Scram,
    "OAUTHBEARER": OAuthBearer,
    "GSSAPI": Gssapi,
}
"""Mechanisms by their names in Kafka. Each row makes an object for one authentication."""
