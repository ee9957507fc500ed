"""The meaning of a token endpoint's response (RFC 6749, section 5). Sans-IO.

No function that can raise an error has a part of the response in a local variable, because it
contains the token, and a careless server may repeat the client's credentials.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokclient.config.secret import Secret
from aiokclient.config.security.oidc.endpoint import Reply
from aiokclient.config.security.sasl import OAuthToken
from aiokclient.errors import ConfigError, TokenProviderError, TokenRefusedError
from aiokclient.types.named_tuple import NamedTuple

TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
"""The statuses from 400 to 499 that do not mean that the request itself is wrong."""
TRANSIENT_ERRORS: Final = frozenset({"server_error", "temporarily_unavailable", "slow_down"})
"""OAuth errors that do not mean that the request itself is wrong."""
SHOWN: Final = 300
"""The maximum number of characters of a server's text that an error shows."""

_CODE = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")
_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]+")

Scrub = Callable[[str], str]
"""A function that removes the client's secrets from a text."""


class Claims(NamedTuple):
    """The names of claims in tokens, and the extensions that accompany a token."""

    subject: str = "sub"
    scope: str = "scope"
    extensions: Mapping[str, str] | None = None


class _Refusal(NamedTuple):
    """An error response."""

    status: int
    code: str | None
    text: str
    transient: bool


def token_from_reply(
    reply: Reply, endpoint: str, asked_at: float, claims: Claims, scrub: Scrub
) -> OAuthToken:
    """Return the token in a response to a request that was sent at `asked_at` (seconds).

    Raises TokenRefusedError if the endpoint refuses the request, and TokenProviderError if it
    cannot process it now, or if the response has no usable token.
    """
    if not 200 <= reply.status < 300 or _is_refusal(reply.body):
        raise _error(_refusal(reply, scrub), endpoint)
    found = _token(_member(reply.body, "access_token"), _lifetime(reply, asked_at), claims)
    if isinstance(found, OAuthToken):
        return found
    raise TokenProviderError(
        f"The response of the token endpoint {endpoint} is not usable: {found}"
    )


def token_from_text(text: Secret, source: str, claims: Claims) -> OAuthToken:
    """Return a token whose expiry is in the token itself.

    Raises TokenProviderError, which names the `source`, if the token is not usable.
    """
    found = _token(text.strip_space(), None, claims)
    if isinstance(found, OAuthToken):
        return found
    raise TokenProviderError(f"The token in {source} is not usable: {found}")


def _error(refusal: _Refusal, endpoint: str) -> TokenProviderError | TokenRefusedError:
    code = f" and the error {refusal.code}" if refusal.code else ""
    said = f": {refusal.text}" if refusal.text else ""
    if refusal.transient:
        return TokenProviderError(
            f"The token endpoint {endpoint} responded with the HTTP status {refusal.status}{code}"
            f"{said.rstrip('.')}."
        )
    return TokenRefusedError(
        f"The token endpoint {endpoint} refused the request with the HTTP status {refusal.status}"
        f"{code}{said.rstrip('.')}.",
        endpoint=endpoint,
        oauth_error=refusal.code,
    )


def _refusal(reply: Reply, scrub: Scrub) -> _Refusal:
    """Return the code and the text in an error response. This does not raise."""
    body = _parsed(reply.body)
    code, text = body.get("error"), body.get("error_description")
    if not isinstance(code, str) or not _CODE.fullmatch(code) or scrub(code) != code:
        code = None
    text = _NOT_PRINTABLE.sub(" ", scrub(text)).strip()[:SHOWN] if isinstance(text, str) else ""
    # A redirection is not followed, and says nothing about the request.
    final = not 300 <= reply.status < 400 and reply.status < 500
    final = final and reply.status not in TRANSIENT_STATUS
    return _Refusal(reply.status, code, text, not final or code in TRANSIENT_ERRORS)


def _is_refusal(body: Secret) -> bool:
    """Return whether a response has an error and no token, which some servers send as a success."""
    found = _parsed(body)
    return bool(found.get("error")) and not found.get("access_token")


def _parsed(text: Secret) -> Mapping[str, Any]:
    """Return the object in a JSON text, or an empty one if there is none. This does not raise.

    The text has one character for each byte.
    """
    try:
        found = json.loads(text.reveal().encode("latin-1"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _member(body: Secret, name: str) -> Secret | None:
    value = _parsed(body).get(name)
    return Secret(value) if isinstance(value, str) and value else None


def _lifetime(reply: Reply, asked_at: float) -> float | None:
    """Return the time at which the token expires, or None if the reply has no valid `expires_in`.

    This does not raise.
    """
    value = _parsed(reply.body).get("expires_in")
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:SHOWN])
    seconds = _number(value)
    return None if seconds is None else asked_at + seconds


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) and abs(value) < 2**53 else None
    except OverflowError:
        return None


def _token(token: Secret | None, expires_at: float | None, names: Claims) -> OAuthToken | str:
    """Return the token, or the problem as a sentence. This does not raise."""
    if token is None:
        return "It has no access_token."
    claims = _claims(token)
    times = [one for one in (_number(claims.get("exp")), expires_at) if one is not None]
    if not times:
        return "It has no expiry, neither as exp in the token nor as expires_in."
    if not _is_scope(claims.get(names.scope)):
        return f"The claim {names.scope} is neither a text nor a list of texts."
    subject = claims.get(names.subject)
    try:
        return OAuthToken(
            token,
            int(1000 * min(times)),
            subject if isinstance(subject, str) else None,
            names.extensions,
        )
    except ConfigError:
        return "The token has characters that are not allowed."


def _claims(token: Secret) -> Mapping[str, Any]:
    """Return the claims of a JWT; empty if the token is not a JWT. This does not raise."""
    parts = token.reveal().split(".")
    if len(parts) != 3:
        return {}
    try:
        data = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return {}
    return _parsed(Secret(data.decode("latin-1")))


def _is_scope(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return value is None or isinstance(value, str)
