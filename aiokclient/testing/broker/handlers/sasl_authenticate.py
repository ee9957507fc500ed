"""SaslAuthenticate 0 to 2: one message of the mechanism, and the broker's response to it.

If the mechanism refuses it, the result is SASL_AUTHENTICATION_FAILED, and the connection is closed
afterwards. A message before the handshake or after the last message is ILLEGAL_SASL_STATE. From
version 1 on, the last response has the session lifetime. A connection whose session ends can
authenticate again (KIP-368).
"""

from __future__ import annotations

from aiokclient.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.connections.sasl import AuthenticationStep


def handle(call: Call) -> Reply:
    request: SaslAuthenticateRequest = call.request
    owner = call.owner
    if code := call.find_refusal():
        owner.close_after_response()
        return SaslAuthenticateResponse(error_code=code)
    authentication = owner.authentication
    begun = authentication.step is AuthenticationStep.CONVERSATION
    try:
        answer = authentication.answer_message(request.auth_bytes)
    except Refused as refused:
        if begun:
            owner.close_after_response()
        return SaslAuthenticateResponse(error_code=refused.code, error_message=str(refused))
    lifetime_ms = 0
    if authentication.step is AuthenticationStep.DONE:
        owner.on_authenticated()
        lifetime_ms = authentication.lifetime_ms
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
