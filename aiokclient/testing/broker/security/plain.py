"""PLAIN: the client sends its name and password in one message (RFC 4616)."""

from __future__ import annotations

import hmac

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import (
    Accounts,
    Challenge,
    Login,
)


class Plain:
    """The broker's side of PLAIN."""

    def __init__(self, accounts: Accounts) -> None:
        self._passwords = accounts.passwords

    def answer_message(self, message: bytes) -> Challenge:
        parts = message.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise _make_error(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        for name, part in zip(("username", "password"), parts[1:], strict=True):
            if not part:
                raise _make_error(f"Authentication failed: {name} not specified")
        identity, user, password = parts
        expected = self._passwords.get(user)
        # Compare even if the user is unknown, so that this takes as long as with a wrong password.
        equal = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not equal:
            raise _make_error("Authentication failed: Invalid username or password")
        if identity and identity != user:
            raise _make_error(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Challenge(b"", done=True, login=Login(user))


def _make_error(text: str) -> Refused:
    return Refused(Code.SASL_AUTHENTICATION_FAILED, text)
