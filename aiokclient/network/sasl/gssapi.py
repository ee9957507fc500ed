"""GSSAPI (RFC 4752): the client and the broker authenticate each other by Kerberos.

    state     challenge           work                          response         next state
    --------  ------------------  ----------------------------  ---------------  ----------------
    CONTEXT   empty, then tokens  a ticket, a security context  token or empty   CONTEXT or LAYER
    LAYER     layers, wrapped     unwrap, choose, wrap          layer, wrapped   CHOSEN
    CHOSEN    empty               -                             None             DONE

Any other challenge raises ChallengeError, and the state is FAILED. A security layer can protect the
bytes after the authentication. Kafka uses TLS for that, so the client chooses no layer, and refuses
a broker that demands one.

The Kerberos library, which the package gssapi calls, reads files and asks servers. Therefore every
step is called in a thread.

Tickets need no background task, because only logins use them. With a keytab, each login asks the
library for credentials. They are in a cache in memory, and the library gets a new ticket from the
key distribution center (KDC) once half of the old ticket's lifetime is over. With a ticket cache,
each login reads the cache again, and something else must renew it, such as kinit, k5start, or sssd.
"""

from __future__ import annotations

import os
import threading
from enum import Enum
from typing import Any, Final

from aiokclient.config.security import SaslGssapi
from aiokclient.errors import ConfigError, KafkaError, SaslAuthenticationError, TicketError
from aiokclient.network.sasl.exchange import ChallengeError, Login, Thread
from aiokclient.types.named_tuple import NamedTuple

_BASE: Final = 2_529_638_912
"""The library's error code for the code 0 of RFC 4120. The other codes follow it."""
TRANSIENT: Final = frozenset(
    _BASE + number
    for number in (
        21,  # The client is not yet valid.
        29,  # A service is not available.
        32,  # The ticket has expired.
        33,  # The ticket is not yet valid.
        34,  # The request is a replay.
        156,  # No KDC can be reached.
        220,  # The KDC of the realm cannot be resolved.
    )
)
"""Errors of Kerberos after which another attempt may succeed."""
EXPIRED: Final = frozenset({11 << 16, 12 << 16})
"""The errors of GSSAPI for a ticket that has expired, before or during the authentication.

A later attempt may succeed, because another program may renew the ticket cache.
"""

_locks: dict[str, threading.Lock] = {}
"""One lock for each cache, so that connections do not request the same ticket concurrently."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.clear)


class NoTicketError(SaslAuthenticationError):
    """An error raised when the client cannot get a ticket, and trying again would not help."""

    what = "The client has no Kerberos ticket for the broker."
    hint = (
        "Check the principal, the keytab or ticket cache, the service name, and that the broker is "
        "addressed by the host name of its principal."
    )


class Progress(NamedTuple):
    """The result of one step of a context."""

    token: bytes
    """The token for the broker, which may be empty."""
    complete: bool
    """Whether both sides are authenticated."""


class KerberosContext:
    """One security context between the client and a broker."""

    def __init__(self, credentials: SaslGssapi, host: str) -> None:
        self._credentials = credentials
        self._host = host
        self._context: Any = None

    def make_response(self, token: bytes) -> Progress:
        """Return the response to a token of the broker, which is empty at first.

        Raises TicketError if there is no ticket now, also if it expires between two steps, and
        SaslAuthenticationError if no later attempt would get a ticket, or if the broker's token is
        not valid.
        """
        gssapi = _package()
        try:
            if self._context is None:
                self._context = _open(gssapi, self._credentials, self._host)
            response = self._context.step(token or None) or b""
            complete = bool(self._context.complete)
            flags = self._context.actual_flags if complete else ()
        except gssapi.exceptions.GSSError as error:
            failure = _refused(error) if token else self._make_ticket_error(error)
            raise failure from error.with_traceback(None)
        if complete and gssapi.RequirementFlag.mutual_authentication not in flags:
            raise ChallengeError("The broker did not authenticate itself to the client.")
        return Progress(response, complete)

    def _make_ticket_error(self, error: Any) -> KafkaError:
        passing = _has_expired(error) or error.min_code & 0xFFFFFFFF in TRANSIENT
        given = self._credentials
        parts = {
            "The service": f"{given.service_name}@{self._host}",
            "the principal": given.principal,
            "the keytab": given.keytab,
            "the ticket cache": given.ticket_cache,
        }
        named = ", ".join(f"{name} is {part}" for name, part in parts.items() if part is not None)
        text = f"{_text(error)} {named}."
        return TicketError(text) if passing else NoTicketError(text)

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message of the broker.

        Raises ChallengeError if it is wrong, and TicketError if the ticket has expired.
        """
        gssapi = _package()
        try:
            content: bytes = self._context.unwrap(message).message
        except gssapi.exceptions.GSSError as error:
            raise _refused(error) from error.with_traceback(None)
        return content

    def wrap(self, content: bytes) -> bytes:
        """Return a message for the broker, which is signed but not encrypted."""
        gssapi = _package()
        try:
            # RFC 4752: the choice of a layer is signed, not encrypted.
            message: bytes = self._context.wrap(content, False).message
        except gssapi.exceptions.GSSError as error:
            raise _refused(error) from error.with_traceback(None)
        return message


def _package() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the library itself cannot be loaded.
        raise ConfigError(
            f"GSSAPI needs the package gssapi, which cannot be imported: {error}."
        ) from error
    return gssapi


def _open(gssapi: Any, credentials: SaslGssapi, host: str) -> Any:
    flag = gssapi.RequirementFlag
    service = f"{credentials.service_name}@{host}"
    return gssapi.SecurityContext(
        name=gssapi.Name(service, gssapi.NameType.hostbased_service),
        creds=_tickets(gssapi, credentials),
        # Without mutual authentication, any server could pose as the broker.
        flags=[flag.mutual_authentication, flag.integrity, flag.out_of_sequence_detection],
        mech=gssapi.MechType.kerberos,
        usage="initiate",
    )


def _tickets(gssapi: Any, credentials: SaslGssapi) -> Any:
    """Return credentials with a ticket that is valid."""
    name = None
    if credentials.principal is not None:
        name = gssapi.Name(credentials.principal, gssapi.NameType.kerberos_principal)
    with _locks.setdefault(credentials.memory_cache, threading.Lock()):
        found = gssapi.Credentials(
            name=name,
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=_store(credentials),
        )
        # Reading the lifetime makes the library get a ticket.
        if found.lifetime == 0:
            raise TicketError("The ticket in the ticket cache has expired.")
        return found


def _store(credentials: SaslGssapi) -> dict[str, str] | None:
    if credentials.keytab is not None:
        return {"client_keytab": credentials.keytab, "ccache": credentials.memory_cache}
    if credentials.ticket_cache is not None:
        return {"ccache": credentials.ticket_cache}
    return None


def _has_expired(error: Any) -> bool:
    return error.maj_code & 0xFFFF0000 in EXPIRED


def _refused(error: Any) -> KafkaError:
    if _has_expired(error):
        return TicketError(f"The ticket has expired during the authentication: {_text(error)}")
    return ChallengeError(f"The broker's message is not valid in Kerberos: {_text(error)}")


def _text(error: Any) -> str:
    """Return the library's text in one line, which ends with a period."""
    return " ".join(str(error).split()).rstrip(".") + "."


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

    thread = Thread.BLOCKING

    def __init__(self, login: Login) -> None:
        host = login.credentials.domain_name or login.host
        self._context = KerberosContext(login.credentials, host)
        self._begun = False
        self._state = _State.CONTEXT

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None if the authentication is complete."""
        state, self._state = self._state, _State.FAILED
        if state is _State.CONTEXT and bool(challenge) == self._begun:
            self._begun = True
            progress = self._context.make_response(bytes(challenge))
            self._state = _State.LAYER if progress.complete else _State.CONTEXT
            return progress.token
        if state is _State.LAYER:
            _check_layers(self._context.unwrap(bytes(challenge)))
            choice = self._context.wrap(CHOICE)
            self._state = _State.CHOSEN
            return choice
        if state is _State.CHOSEN and not challenge:
            self._state = _State.DONE
            return None
        raise ChallengeError("The broker sent a message that GSSAPI does not expect.")


def _check_layers(layers: bytes) -> None:
    """Raise ChallengeError unless the broker offers to use no security layer."""
    if len(layers) != len(CHOICE):
        raise ChallengeError("The broker's GSSAPI message about security layers is malformed.")
    if not layers[0] & NO_LAYER:
        raise ChallengeError(
            "The broker demands a security layer of GSSAPI, which Kafka's clients do not have. "
            "Use TLS to encrypt connections."
        )
