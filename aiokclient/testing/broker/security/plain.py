"""PLAIN: the client sends its name and password in one message (RFC 4616)."""

from __future__ import annotations

import hmac

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import (
    Accounts,
    Challenge,
    Login,
    invalid_credentials,
)


class Plain:
    """The broker's side of PLAIN."""

    def __init__(self, accounts: Accounts) -> None:
        self._passwords = accounts.passwords

    def step(self, message: bytes) -> Challenge:
        parts = message.decode("utf-8", "replace").split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise invalid_credentials("PLAIN")
        identity, user, password = parts
        expected = self._passwords.get(user)
        # Compare in any case, so that an unknown user takes as long as a wrong password.
        equal = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not equal:
            raise Refused(
                Code.SASL_AUTHENTICATION_FAILED,
                "Authentication failed: Invalid username or password",
            )
        if identity and identity != user:
            raise Refused(
                Code.SASL_AUTHENTICATION_FAILED,
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
            )
        return Challenge(b"", done=True, login=Login(user))
