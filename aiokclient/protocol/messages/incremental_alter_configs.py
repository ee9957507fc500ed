"""IncrementalAlterConfigs, key 44: changes single options (KIP-339).

It sets or deletes an option, or adds values to a list or removes them. The
configuration of one broker must be sent to that broker.
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
    config_operation: int = int8()
    value: str | None = string(null="0+", secret=True)


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"],
    key=44,
    versions="0-1",
    flexible="1+",
    route=Route.ANY,
):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, request=IncrementalAlterConfigsRequest):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
