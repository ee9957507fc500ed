"""DescribeClientQuotas, key 48: returns quotas by user, client id and address (KIP-546)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null="0+")


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], key=48, versions="0-1", flexible="1+", route=Route.ANY
):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, request=DescribeClientQuotasRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    entries: list[EntryData] | None = array(EntryData, null="0+")
