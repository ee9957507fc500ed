"""ConsumerGroupHeartbeat, key 68: is the membership protocol of new consumer groups (KIP-848).

It joins with epoch 0, leaves with -1 (a static member for a while with -2), and
carries subscription and owned partitions when they change; the answer brings
the assignment. Version 1 adds regular expressions; the client chooses its id.
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
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"],
    key=68,
    versions="0-1",
    flexible="0+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(null="0+", default=None)
    rack_id: str | None = string(null="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, null="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", null="0+", default=None)
    server_assignor: str | None = string(null="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null="0+", default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, request=ConsumerGroupHeartbeatRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, null="0+", default=None)
