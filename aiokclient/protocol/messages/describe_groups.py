"""DescribeGroups, key 15: describes classic groups: state, protocol and members."""

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


class DescribeGroupsRequest(
    Request["DescribeGroupsResponse"],
    key=15,
    versions="0-6",
    flexible="5+",
    route=Route.GROUP_COORDINATOR,
):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", null="0+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", null="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x80000000)


class DescribeGroupsResponse(Response, request=DescribeGroupsRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
