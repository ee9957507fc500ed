"""GetTelemetrySubscriptions, key 71: returns the metrics that the brokers request (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"],
    key=71,
    versions="0",
    flexible="0+",
    route=Route.ANY,
):
    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(Response, request=GetTelemetrySubscriptionsRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
