"""OAUTHBEARER: the client sends a JSON Web Token in one message (RFC 7628).

A token that is not valid is answered with a status in JSON. The client then sends one byte, and the
authentication fails with that status as its message.
"""

from __future__ import annotations

import re
from typing import Final

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.mechanism import (
    Accounts,
    Challenge,
    Login,
    make_credentials_error,
)

_NAME: Final = "OAUTHBEARER"
_REFUSED: Final = '{"status":"invalid_token"}'
_FIRST = re.compile(
    r"n,(?:a=(?P<identity>(?:[^=,\0]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.~+/a-zA-Z0-9]+=*) *")


class OAuthBearer:
    """The broker's side of OAUTHBEARER."""

    def __init__(self, accounts: Accounts) -> None:
        self._bearer = accounts.bearer
        self._refused = False

    def answer_message(self, message: bytes) -> Challenge:
        if self._refused and message == b"\x01":
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, _REFUSED)
        identity, token = _parse_message(message)
        try:
            bearer = self._bearer(token)
        except ValueError:
            self._refused = True
            return Challenge(_REFUSED.encode(), done=False)
        if identity and identity != bearer.user:
            raise Refused(
                Code.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed: Client requested an authorization id ({identity}) that "
                f"is different from the token's principal name ({bearer.user})",
            )
        return Challenge(b"", done=True, login=Login(bearer.user, bearer.expires_at_ms))


def _parse_message(message: bytes) -> tuple[str, str]:
    """Return the authorization identity and the token."""
    try:
        found = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise make_credentials_error(_NAME)
    pairs = dict(each.split("=", 1) for each in found["pairs"].split("\x01")[:-1])
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise make_credentials_error(_NAME)
    identity = (found["identity"] or "").replace("=2C", ",").replace("=3D", "=")
    return identity, auth["token"]
