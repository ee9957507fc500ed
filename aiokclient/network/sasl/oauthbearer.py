"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token of a token provider. Sans-IO."""

from __future__ import annotations

from aiokclient.network.sasl.exchange import ChallengeError, Login


class OAuthBearer:
    """One authentication with a token.

    A broker that refuses the token sends an error text, which the client must acknowledge before
    the broker ends the authentication with an error.
    """

    thread = None

    def __init__(self, login: Login) -> None:
        self._token = login.token
        self._sent = False
        self._refused = False

    def answer_challenge(self, challenge: bytes) -> bytes | None:
        """Return the token, the acknowledgement of an error, or None after success."""
        if not self._sent:
            self._sent = True
            return b"n,,\x01auth=Bearer %b%b\x01\x01" % (
                self._token.token.encode(),
                b"".join(f"\x01{k}={v}".encode() for k, v in self._token.extensions.items()),
            )
        if self._refused:
            raise ChallengeError("The broker did not end the authentication after its error.")
        if not challenge:
            return None
        self._refused = True
        # RFC 7628: the client acknowledges an error by this byte, and only then does the broker end
        # the exchange.
        return b"\x01"
