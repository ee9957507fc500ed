"""ExpireDelegationToken, key 40: sets the expiry of a delegation token.

If the period is negative, the token expires immediately.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request["ExpireDelegationTokenResponse"], key=40, versions="1-2", flexible="2+", route=Route.ANY
):
    hmac: bytes = bytes_(secret=True)
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, request=ExpireDelegationTokenRequest):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
