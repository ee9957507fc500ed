"""RenewDelegationToken, key 39: extends the expiry of a delegation token."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(
    Request["RenewDelegationTokenResponse"], key=39, versions="1-2", flexible="2+", route=Route.ANY
):
    hmac: bytes = bytes_(secret=True)
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, request=RenewDelegationTokenRequest):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
