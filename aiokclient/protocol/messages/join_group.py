"""JoinGroup, key 11: joins a rebalance of a classic group and waits for the other members.

The broker responds when it knows all members of the next generation. The response
to the leader has all members with their metadata.
"""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    string,
)


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(
    Request["JoinGroupResponse"],
    key=11,
    versions="0-9",
    flexible="6+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", null="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", null="0+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", null="0+", default=None, ignorable=True)
    metadata: bytes = bytes_()


class JoinGroupResponse(Response, request=JoinGroupRequest):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", null="0+", default=None, ignorable=True)
    protocol_name: str | None = string(null="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
