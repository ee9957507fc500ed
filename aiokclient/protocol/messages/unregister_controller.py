"""UnregisterController, key 94: removes the registration of a controller that will not return."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, int16, int32, string


class UnregisterControllerRequest(
    Request["UnregisterControllerResponse"], key=94, versions="0", flexible="0+", route=Route.ANY
):
    controller_id: int = int32()


class UnregisterControllerResponse(Response, request=UnregisterControllerRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
