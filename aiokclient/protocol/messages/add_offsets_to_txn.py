"""AddOffsetsToTxn, key 25: announces that a transaction will commit offsets of a group."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, int16, int32, int64, string


class AddOffsetsToTxnRequest(
    Request["AddOffsetsToTxnResponse"],
    key=25,
    versions="0-4",
    flexible="3+",
    route=Route.TRANSACTION_COORDINATOR,
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, request=AddOffsetsToTxnRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
