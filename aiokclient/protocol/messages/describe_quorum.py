"""DescribeQuorum, key 55: returns leader, voters and observers of the metadata quorum (KIP-595)."""

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
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(
    Request["DescribeQuorumResponse"], key=55, versions="0-2", flexible="0+", route=Route.ANY
):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", null="0+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, request=DescribeQuorumRequest):
    error_code: int = int16()
    error_message: str | None = string("2+", null="0+", ignorable=True)
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, "2+")
