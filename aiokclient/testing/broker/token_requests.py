"""The checks that all requests of delegation tokens have in common."""

from __future__ import annotations

from aiokclient.testing.broker.call import Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.principal import ANONYMOUS


def refusal(call: Call) -> int:
    """Return the error code of a client that cannot use tokens, or 0."""
    principal = call.principal
    if principal.token or principal == ANONYMOUS:
        return Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if not call.cluster.security.tokens.enabled:
        return Code.DELEGATION_TOKEN_AUTH_DISABLED
    return Code.NONE
