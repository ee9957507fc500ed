"""ListTransactions, key 66: lists the transactions that a broker coordinates (KIP-664).

To list all transactions of a cluster, send the request to every broker. Filters
are the state, the producer id, the duration (version 1, KIP-994), and a pattern of
the transactional id (version 2).
"""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
)


class ListTransactionsRequest(
    Request["ListTransactionsResponse"], key=66, versions="0-2", flexible="0+", route=Route.BROKER
):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", null="0+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, request=ListTransactionsRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
