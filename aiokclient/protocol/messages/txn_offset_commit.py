"""TxnOffsetCommit, key 28: commits offsets of a group as part of a transaction.

From version 5 on, the coordinator adds the group to the transaction by itself
(KIP-890). From version 6 on, topics are identified by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(null="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: UUID = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(
    Request["TxnOffsetCommitResponse"],
    key=28,
    versions="0-6",
    flexible="3+",
    route=Route.GROUP_COORDINATOR,
):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", null="0+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    name: str = string("0-5", ignorable=True)
    topic_id: UUID = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response, request=TxnOffsetCommitRequest):
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
