"""SaslHandshake 0 to 1: the client selects its mechanism.

A mechanism that the listener does not offer is UNSUPPORTED_SASL_MECHANISM, with a list of those
that it offers. A listener without SASL answers ILLEGAL_SASL_STATE. The connection is closed after a
refusal, unless the listener has no SASL. Version 0, which is followed by messages without a header,
is not accepted.
"""

from __future__ import annotations

from aiokclient.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused

VERSIONS = (1, 1)
ANNOUNCED_FROM = 0


def handle(call: Call) -> Reply:
    request: SaslHandshakeRequest = call.request
    offered = list(call.cluster.mechanisms)
    code = call.refused()
    try:
        if not code:
            call.owner.authentication.choose(request.mechanism)
    except Refused as refused:
        code = refused.code
    if code and offered:
        call.owner.close_after_response()
    named = offered if code in (Code.NONE, Code.UNSUPPORTED_SASL_MECHANISM) else []
    return SaslHandshakeResponse(error_code=code, mechanisms=named)
