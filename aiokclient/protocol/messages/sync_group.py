"""SyncGroup, key 14: sends the leader's assignments, and returns the member's own assignment."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    bytes_,
    int16,
    int32,
    string,
)


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(
    Request["SyncGroupResponse"],
    key=14,
    versions="0-5",
    flexible="4+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="0+", default=None)
    protocol_type: str | None = string("5+", null="0+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="0+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, request=SyncGroupRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", null="0+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="0+", default=None, ignorable=True)
    assignment: bytes = bytes_()
