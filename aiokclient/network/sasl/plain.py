"""PLAIN (RFC 4616): the client sends the user name and the password in one message. Sans-IO."""

from __future__ import annotations

from aiokclient.network.sasl.exchange import Login


class Plain:
    """One authentication with SaslPlain(...)."""

    thread = None

    def __init__(self, login: Login) -> None:
        self._credentials = login.credentials
        self._sent = False

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        """Return the credentials, then None. The broker's response has no content."""
        if self._sent:
            return None
        self._sent = True
        user: bytes = self._credentials.user.encode()
        return b"\0%b\0%b" % (user, self._credentials.password.encode())
