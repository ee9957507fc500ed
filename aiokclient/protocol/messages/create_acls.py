"""CreateAcls, key 30: creates access rules."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int8,
    int16,
    int32,
    string,
)


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(
    Request["CreateAclsResponse"], key=30, versions="1-3", flexible="2+", route=Route.ANY
):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class CreateAclsResponse(Response, request=CreateAclsRequest):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
