"""SaslHandshake 0 to 1: the client selects its mechanism.

A mechanism that the listener does not offer is UNSUPPORTED_SASL_MECHANISM, with a list of those
that it offers, and the connection is closed. If the handshake was to renew a session, the
connection is closed without a response. On a connection that needs no authentication, or whose
session cannot be renewed now, the result is ILLEGAL_SASL_STATE, and the connection stays open.
After a handshake in version 0, the messages of the mechanism have no headers.
"""

from __future__ import annotations

from aiokclient.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.connections.sasl import AuthenticationStep

_HEADERS_SINCE = 1


def handle(call: Call) -> Reply:
    request: SaslHandshakeRequest = call.request
    authentication = call.owner.authentication
    offered = list(authentication.offered)
    code = call.find_refusal()
    begun = authentication.step is not AuthenticationStep.DONE
    try:
        if not code:
            raw = call.version < _HEADERS_SINCE
            authentication.choose_mechanism(request.mechanism, raw=raw)
    except Refused as refused:
        code = refused.code
    if code == Code.UNSUPPORTED_SASL_MECHANISM and not begun:
        call.owner.abort()
    elif code and (begun or authentication.step is not AuthenticationStep.DONE):
        call.owner.close_after_response()
    named = offered if code in (Code.NONE, Code.UNSUPPORTED_SASL_MECHANISM) else []
    return SaslHandshakeResponse(error_code=code, mechanisms=named)
