"""PushTelemetry, key 72: sends metrics in OTLP, compressed or not (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class PushTelemetryRequest(
    Request["PushTelemetryResponse"], key=72, versions="0", flexible="0+", route=Route.ANY
):
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Response, request=PushTelemetryRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
