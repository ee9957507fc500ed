"""ShareGroupHeartbeat, key 76: keeps a member in a share group (KIP-932)."""

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


class ShareGroupHeartbeatRequest(
    Request["ShareGroupHeartbeatResponse"],
    key=76,
    versions="1",
    flexible="0+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(null="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, null="0+", default=None)


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Response, request=ShareGroupHeartbeatRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, null="0+", default=None)
