"""AlterConfigs, key 33: replaces the whole configuration of resources.

The configuration of one broker must be sent to that broker.
"""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(null="0+", secret=True)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(
    Request["AlterConfigsResponse"], key=33, versions="0-2", flexible="2+", route=Route.ANY
):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, request=AlterConfigsRequest):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
