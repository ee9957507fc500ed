"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), with Kafka's delegation tokens. Sans-IO.

    state         challenge      response        next state
    ------------  -------------  --------------  ------------
    CLIENT_FIRST  empty          n,,n=..,r=..    SERVER_FIRST
    SERVER_FIRST  r=..,s=..,i=.. c=..,r=..,p=..  SERVER_FINAL
    SERVER_FINAL  v=..           None            DONE

Any other challenge raises ChallengeError, and the state is FAILED. The client never sends its
password. It proves that it knows the password, and the broker proves the same by its signature, so
that a server which only pretends to be the broker is refused.

The keys follow from the password by thousands of iterations (PBKDF2), which take milliseconds.
Therefore that step is called in a thread, and the credentials keep the keys for the next
connection.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from enum import Enum
from typing import Final

from aiokclient.config.secret import Secret
from aiokclient.config.security.scram_keys import ScramKeys
from aiokclient.network.sasl.exchange import ChallengeError, Login, Thread

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000
"""The largest accepted number of iterations. With more, a server could occupy the client's threads.
"""

NONCE_BYTES = 24
SHOWN = 200
"""The maximum number of characters of a broker's text that an error shows."""

_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),i=(?P<iterations>[0-9]{1,10})"
    r"(?:,[A-Za-z]+=[^,\0]*)*"
)
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9/+=]+)(?:,[A-Za-z]+=[^,\0]*)*")
_REFUSED = re.compile(r"e=(?P<error>[^,]*)(?:,.*)?", re.DOTALL)


class _State(Enum):
    CLIENT_FIRST = "client first"
    SERVER_FIRST = "server first"
    SERVER_FINAL = "server final"
    DONE = "done"
    FAILED = "failed"


class Scram:
    """One authentication with SaslScram(...). Tests set the client's part of the nonce."""

    def __init__(self, login: Login, nonce: str | None = None) -> None:
        self._credentials = login.credentials
        self._hash = HASHES[login.credentials.mechanism]
        self._nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self._state = _State.CLIENT_FIRST
        self._first = ""
        self._messages = b""
        self._keys: ScramKeys | None = None

    @property
    def thread(self) -> Thread | None:
        """The kind of thread in which the next step must be called."""
        return Thread.COMPUTING if self._state is _State.SERVER_FIRST else None

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None after success."""
        state, self._state = self._state, _State.FAILED
        if state is _State.CLIENT_FIRST:
            return self._make_first_message()
        if state is _State.SERVER_FIRST:
            return self._answer_first_message(_text(challenge))
        if state is _State.SERVER_FINAL:
            self._check_final_message(_text(challenge))
            return None
        raise ChallengeError("The broker sent a message that SCRAM does not expect.")

    def _make_first_message(self) -> bytes:
        user = _escaped(self._credentials.user)
        extension = ",tokenauth=true" if self._credentials.token_auth else ""
        self._first = f"n={user},r={self._nonce}{extension}"
        self._state = _State.SERVER_FIRST
        return f"n,,{self._first}".encode()

    def _answer_first_message(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise _refusal(text) or ChallengeError("The broker's first SCRAM message is malformed.")
        nonce, salt = match["nonce"], _base64(match["salt"])
        # RFC 5802: otherwise, the messages of another login could be repeated.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ChallengeError("The broker's SCRAM nonce does not continue the client's.")
        if not salt:
            raise ChallengeError("The broker's SCRAM message has no salt.")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ChallengeError(
                f"The broker demands {iterations} SCRAM iterations. The client accepts from "
                f"{MIN_ITERATIONS} to {MAX_ITERATIONS}."
            )
        # The base64 of "n,,": no channel binding, which Kafka does not have.
        final = f"c=biws,r={nonce}"
        self._messages = f"{self._first},{text},{final}".encode()
        derivation = (self._hash, salt, iterations)
        self._keys = self._credentials.keys.get_keys(derivation)
        if self._keys is None:
            self._keys = derive_keys(self._hash, self._credentials.password, salt, iterations)
            self._credentials.keys.keep_keys(derivation, self._keys)
        self._state = _State.SERVER_FINAL
        proof = b64encode(self._keys.compute_proof(self._messages)).decode()
        return f"{final},p={proof}".encode()

    def _check_final_message(self, text: str) -> None:
        match = _SERVER_FINAL.fullmatch(text)
        if match is None:
            raise _refusal(text) or ChallengeError("The broker's last SCRAM message is malformed.")
        assert self._keys is not None
        if not hmac.compare_digest(
            _base64(match["signature"]), self._keys.compute_signature(self._messages)
        ):
            raise ChallengeError(
                "The broker's SCRAM signature is wrong: the server does not know the password."
            )
        self._state = _State.DONE


def derive_keys(hash_name: str, password: Secret, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of a password. This takes milliseconds, or up to a second."""
    return ScramKeys(hash_name, salted_password(hash_name, password, salt, iterations))


def salted_password(hash_name: str, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which the keys follow. It takes as long as the keys."""
    # Kafka hashes the bytes as they are, without the SASLprep that RFC 5802 demands.
    return hashlib.pbkdf2_hmac(hash_name, password.reveal().encode(), salt, iterations)


def _escaped(name: str) -> str:
    # RFC 5802 demands this of names, because commas separate the fields.
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(challenge: bytes) -> str:
    try:
        return bytes(challenge).decode()
    except UnicodeDecodeError:
        raise ChallengeError("The broker's SCRAM message is not in UTF-8.") from None


def _base64(text: str) -> bytes:
    try:
        return a2b_base64(text, strict_mode=True)
    except Base64Error:
        raise ChallengeError("The broker's SCRAM message has invalid base64.") from None


def _refusal(text: str) -> ChallengeError | None:
    """Return the error for a SCRAM message with which the broker refuses the client."""
    match = _REFUSED.fullmatch(text)
    if match is None:
        return None
    return ChallengeError(f"The broker refused the client: {match['error'][:SHOWN]!r}.")
