"""SaslHandshake, key 17: chooses the SASL mechanism of a connection. No version is flexible."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, array, int16, string


class SaslHandshakeRequest(
    Request["SaslHandshakeResponse"], key=17, versions="0-1", flexible="none", route=Route.BROKER
):
    mechanism: str = string()


class SaslHandshakeResponse(Response, request=SaslHandshakeRequest):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
