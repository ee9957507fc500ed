"""DeleteGroups, key 42: deletes groups that have no members."""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, Struct, array, int16, int32, string


class DeleteGroupsRequest(
    Request["DeleteGroupsResponse"],
    key=42,
    versions="0-3",
    flexible="2+",
    route=Route.GROUP_COORDINATOR,
):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", null="0+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, request=DeleteGroupsRequest):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
