"""SCRAM-SHA-256 and SCRAM-SHA-512: the password itself is never sent (RFC 5802).

    client first -> server first (nonce, salt, iterations) -> client final (proof) -> server final

With the extension `tokenauth=true`, the user name is the id of a delegation token, and the password
is the token's HMAC (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import random
import re
from typing import Final

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import (
    Accounts,
    Challenge,
    Login,
    ScramCredential,
    make_credentials_error,
)

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_IDS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The numbers of the mechanisms in requests (KIP-554)."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""The maximum number of iterations that AlterUserScramCredentials accepts, as in Kafka."""

_FIRST = re.compile(
    r"n,(?:a=(?P<identity>[^,\0]*))?,(?P<bare>(?:m=[^,]*,)?"
    r"n=(?P<name>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+),"
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL = re.compile(
    r"(?P<unproven>c=[A-Za-z0-9/+=]*,r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*?),"
    r"p=(?P<proof>[A-Za-z0-9/+=]+)"
)


def make_credential(
    mechanism: str, password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential that a broker stores for a password. This takes some milliseconds."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)
    return make_salted_credential(mechanism, salted, salt, iterations)


def make_salted_credential(
    mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential that a broker stores for a salted password."""
    name = HASHES[mechanism]
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored, hmac.digest(salted, b"Server Key", name), iterations)


class Scram:
    """The broker's side of one mechanism of SCRAM."""

    def __init__(self, mechanism: str, accounts: Accounts) -> None:
        self._mechanism = mechanism
        self._accounts = accounts
        self._rng: random.Random = accounts.rng
        self._first = self._server_first = self._nonce = ""
        self._known: tuple[ScramCredential, Login] | None = None

    def answer_message(self, message: bytes) -> Challenge:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise make_credentials_error(self._mechanism) from None
        if self._known is None:
            return self._begin_exchange(text)
        return self._end_exchange(text, *self._known)

    def _begin_exchange(self, text: str) -> Challenge:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise make_credentials_error(self._mechanism)
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        extensions = dict(each.split("=", 1) for each in found["extensions"].split(",")[1:])
        self._known = self._find_account(name, extensions.get("tokenauth", "").lower() == "true")
        if found["identity"] and found["identity"] != name:
            raise Refused(
                Code.SASL_AUTHENTICATION_FAILED,
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
            )
        known = self._known[0]
        self._first = found["bare"]
        self._nonce = found["nonce"] + format(self._rng.getrandbits(130), "x")
        salt = base64.b64encode(known.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={known.iterations}"
        return Challenge(self._server_first.encode(), done=False)

    def _find_account(self, name: str, token: bool) -> tuple[ScramCredential, Login]:
        scram = self._accounts.scram
        if token:
            found = scram.find_token_login(self._mechanism, name)
            if found is not None:
                return found
        elif (own := scram.find_credential(self._mechanism, name)) is not None:
            return own, Login(name)
        raise make_credentials_error(self._mechanism)

    def _end_exchange(self, text: str, known: ScramCredential, login: Login) -> Challenge:
        found = _FINAL.fullmatch(text)
        if found is None or found["nonce"] != self._nonce:
            raise make_credentials_error(self._mechanism)
        name = HASHES[self._mechanism]
        signed = ",".join((self._first, self._server_first, found["unproven"])).encode()
        signature = hmac.digest(known.stored_key, signed, name)
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except binascii.Error:
            proof = b""
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        if not hmac.compare_digest(hashlib.new(name, key).digest(), known.stored_key):
            raise make_credentials_error(self._mechanism)
        verifier = base64.b64encode(hmac.digest(known.server_key, signed, name))
        return Challenge(b"v=" + verifier, done=True, login=login)
