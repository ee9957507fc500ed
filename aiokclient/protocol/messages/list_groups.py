"""ListGroups, key 16: lists the groups that a broker coordinates.

To list all groups of a cluster, send the request to every broker. Version 4 can
filter by state (KIP-518), version 5 by type (KIP-848).
"""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, Struct, array, int16, int32, string


class ListGroupsRequest(
    Request["ListGroupsResponse"], key=16, versions="0-5", flexible="3+", route=Route.BROKER
):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Response, request=ListGroupsRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
