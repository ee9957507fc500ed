"""ConsumerGroupHeartbeat, key 68: keeps a member in a group of the consumer protocol (KIP-848).

A member joins with epoch 0 and leaves with epoch -1. A static member that will
return leaves with -2. The request has the subscription and the owned partitions
if they have changed. The response has the assignment if it has changed. Version
1 adds regular expressions, and the client chooses its member id.
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
