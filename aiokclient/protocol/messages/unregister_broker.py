"""UnregisterBroker, key 64: removes the registration of a broker that will not return (KIP-500)."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, int16, int32, string


class UnregisterBrokerRequest(
    Request["UnregisterBrokerResponse"], key=64, versions="0", flexible="0+", route=Route.ANY
):
    broker_id: int = int32()


class UnregisterBrokerResponse(Response, request=UnregisterBrokerRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
