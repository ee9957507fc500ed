"""EndTxn, key 26: commits or aborts a transaction. Version 5 also increases the epoch (KIP-890)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class EndTxnRequest(
    Request["EndTxnResponse"],
    key=26,
    versions="0-5",
    flexible="3+",
    route=Route.TRANSACTION_COORDINATOR,
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, request=EndTxnRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
