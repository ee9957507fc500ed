"""GSSAPI (RFC 4752): the client and the broker authenticate each other by Kerberos. Sans-IO.

    state     challenge           work in a thread              response         next state
    --------  ------------------  ----------------------------  ---------------  ----------------
    CONTEXT   empty, then tokens  a ticket, a security context  token or empty   CONTEXT or LAYER
    LAYER     layers, wrapped     unwrap                        (choose, wrap)   LAYER
    LAYER     -                   wrap                          layer, wrapped   CHOSEN
    CHOSEN    empty               -                             None             DONE

Any other challenge raises ChallengeError, and the state is FAILED. A security layer can protect the
bytes after the authentication. Kafka uses TLS for that, so the client chooses no layer, and refuses
a broker that demands one.

The Kerberos library reads files and asks servers, so every call of it runs in a thread
(`kerberos.py`).
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final

from aiokclient.network.sasl.exchange import ChallengeError, Compute, Login, Step
from aiokclient.network.sasl.kerberos import KerberosContext, Progress

__all__ = ["Gssapi"]

NO_LAYER: Final = 1
"""The bit by which the broker offers, and the client chooses, no layer."""
CHOICE: Final = bytes([NO_LAYER, 0, 0, 0])
"""The choice of no layer. The three bytes for the largest message size must then be 0.

A user name may follow. Without one, the broker takes the user of the ticket.
"""


class _State(Enum):
    CONTEXT = "context"
    LAYER = "layer"
    CHOSEN = "chosen"
    DONE = "done"
    FAILED = "failed"


class Gssapi:
    """One authentication with SaslGssapi(...)."""

    def __init__(self, login: Login) -> None:
        host = login.credentials.domain_name or login.host
        self._context = KerberosContext(login.credentials, host)
        self._begun = False
        self._state = _State.CONTEXT

    def step(self, challenge: bytes) -> Step:
        """Return the work that a challenge needs; None if the authentication is complete."""
        state, self._state = self._state, _State.FAILED
        if state is _State.CONTEXT and bool(challenge) == self._begun:
            self._begun = True
            advance = partial(self._context.step, bytes(challenge))
            return Compute(advance, self._advanced, blocking=True)
        if state is _State.LAYER:
            unwrap = partial(self._context.unwrap, bytes(challenge))
            return Compute(unwrap, self._choose, blocking=True)
        if state is _State.CHOSEN and not challenge:
            self._state = _State.DONE
            return None
        raise ChallengeError("The broker sent a message that GSSAPI does not expect.")

    def _advanced(self, progress: Progress) -> bytes:
        self._state = _State.LAYER if progress.complete else _State.CONTEXT
        return progress.token

    def _choose(self, layers: bytes) -> Step:
        if len(layers) != len(CHOICE):
            raise ChallengeError("The broker's GSSAPI message about security layers is malformed.")
        if not layers[0] & NO_LAYER:
            raise ChallengeError(
                "The broker demands a security layer of GSSAPI, which Kafka's clients do not have. "
                "Use TLS to encrypt connections."
            )
        return Compute(partial(self._context.wrap, CHOICE), self._chosen, blocking=True)

    def _chosen(self, choice: bytes) -> bytes:
        self._state = _State.CHOSEN
        return choice
