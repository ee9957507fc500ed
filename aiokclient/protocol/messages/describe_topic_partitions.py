"""DescribeTopicPartitions, key 75: returns the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], key=75, versions="0", flexible="0+", route=Route.ANY
):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, null="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, null="0+", default=None)
    last_known_elr: list[int] | None = array(int32, null="0+", default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = string(null="0+")
    topic_id: UUID = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-0x80000000)


class DescribeTopicPartitionsResponse(Response, request=DescribeTopicPartitionsRequest):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, null="0+", default=None)
