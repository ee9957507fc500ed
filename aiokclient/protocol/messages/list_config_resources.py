"""ListConfigResources, key 74: lists resources that have a configuration.

Version 0 lists only those for client metrics (KIP-714). Version 1 lists all types
(KIP-1142).
"""

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


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"], key=74, versions="0-1", flexible="0+", route=Route.ANY
):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, request=ListConfigResourcesRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
