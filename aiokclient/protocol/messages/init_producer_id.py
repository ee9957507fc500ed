"""InitProducerId, key 22: returns a producer id and epoch, and fences earlier producers.

Without a transactional id, any broker can respond. From version 3 on, a producer
can request a higher epoch for its id (KIP-360). Version 6 (KIP-939, two-phase
commit) is unstable in Kafka: it can be encoded, but the client does not use it.
"""

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


class InitProducerIdRequest(
    Request["InitProducerIdResponse"],
    key=22,
    versions="0-6",
    flexible="2+",
    route=Route.TRANSACTION_COORDINATOR,
    unstable=True,
):
    transactional_id: str | None = string(null="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, request=InitProducerIdRequest):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
