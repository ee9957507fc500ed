"""LeaveGroup, key 13: removes members from a classic group.

From version 3 on, a request can remove several members, and static members by
their instance ids (KIP-345).
"""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(null="0+", default=None)
    reason: str | None = string("5+", null="0+", default=None, ignorable=True)


class LeaveGroupRequest(
    Request["LeaveGroupResponse"],
    key=13,
    versions="0-5",
    flexible="4+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(null="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, request=LeaveGroupRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
