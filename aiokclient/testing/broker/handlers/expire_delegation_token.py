"""ExpireDelegationToken 1 to 2: let a token expire, immediately or after a time (KIP-48).

If the requested time is negative, the token is removed immediately, and the response repeats the
negative time as the token's expiry. The refusals are those of RenewDelegationToken.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.security.request_checks import check_token_use


def handle(call: Call) -> Reply:
    request: ExpireDelegationTokenRequest = call.request
    code: int = call.find_refusal() or check_token_use(call)
    if not code:
        tokens = call.cluster.security.tokens
        try:
            expiry_ms = tokens.expire_token(
                bytes(request.hmac), call.principal, request.expiry_time_period_ms
            )
        except Refused as refused:
            code = refused.code
        else:
            return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
