"""SaslAuthenticate, key 36: sends one message of a SASL authentication."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, bytes_, int16, int64, string


class SaslAuthenticateRequest(
    Request["SaslAuthenticateResponse"], key=36, versions="0-2", flexible="2+", route=Route.BROKER
):
    auth_bytes: bytes = bytes_(secret=True)


class SaslAuthenticateResponse(Response, request=SaslAuthenticateRequest):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    auth_bytes: bytes = bytes_(secret=True)
    session_lifetime_ms: int = int64("1+", ignorable=True)
