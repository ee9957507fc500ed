"""RenewDelegationToken 1 to 2: renew a token, up to its maximum lifetime (KIP-48).

The new expiry is at most `delegation.token.expiry.time.ms` from now. A token that does not exist is
DELEGATION_TOKEN_NOT_FOUND, an expired one is DELEGATION_TOKEN_EXPIRED, and one that the client may
not renew is DELEGATION_TOKEN_OWNER_MISMATCH. Other refusals are those of
CreateDelegationToken.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.security.request_checks import check_token_use


def handle(call: Call) -> Reply:
    request: RenewDelegationTokenRequest = call.request
    code: int = call.find_refusal() or check_token_use(call)
    if not code:
        tokens = call.cluster.security.tokens
        try:
            expiry_ms = tokens.renew_token(
                bytes(request.hmac), call.principal, request.renew_period_ms
            )
        except Refused as refused:
            code = refused.code
        else:
            return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
