"""A client that logs in by hand, over a blocking socket."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient.protocol import messages

Send = Callable[[bytes], Any]


class Raw:
    """A connection that sends SaslHandshake and SaslAuthenticate.

    `connection` has `request(message, version)`, which returns the response.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        request = messages.SaslHandshakeRequest(mechanism=mechanism)
        return self.connection.request(request, version)

    def send(self, message: bytes, version: int = 2) -> Any:
        request = messages.SaslAuthenticateRequest(auth_bytes=message)
        return self.connection.request(request, version)

    def log_in(self, mechanism: str, user: str, password: str, **options: Any) -> Any:
        """Log in, and return the last response."""
        answer = self.handshake(mechanism)
        assert answer.error_code == 0, answer
        if mechanism == "PLAIN":
            return self.send(f"\0{user}\0{password}".encode())
        if mechanism == "OAUTHBEARER":
            return self.send(bearer(password))
        return scram(self.send, mechanism, user, password, **options)


def bearer(token: str, identity: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    name = f"a={identity}" if identity else ""
    return f"n,{name},\x01auth=Bearer {token}\x01\x01".encode()


def scram(
    send: Send, mechanism: str, user: str, password: str, nonce: str = "abc", extensions: str = ""
) -> Any:
    """Run the client's side of SCRAM, and return the last response."""
    name = "sha" + mechanism.removeprefix("SCRAM-SHA-")
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
    answer = send(f"n,,{first}".encode())
    if answer.error_code:
        return answer
    challenge = answer.auth_bytes.decode()
    parts = dict(each.split("=", 1) for each in challenge.split(","))
    salt = base64.b64decode(parts["s"])
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, int(parts["i"]))
    key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={parts['r']}"
    signed = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    answer = send(f"{final},p={proof.decode()}".encode())
    if not answer.error_code:
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        assert answer.auth_bytes == b"v=" + base64.b64encode(verifier)
    return answer


@pytest.fixture
def raw_login() -> type[Raw]:
    """`raw_login(connection)`, a connection that logs in by hand."""
    return Raw
