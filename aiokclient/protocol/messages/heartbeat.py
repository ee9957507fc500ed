"""Heartbeat, key 12: says that a member of a classic group is alive.

An error code in the response announces a rebalance.
"""

from __future__ import annotations

from aiokclient.protocol.schema import Request, Response, Route, int16, int32, string


class HeartbeatRequest(
    Request["HeartbeatResponse"],
    key=12,
    versions="0-4",
    flexible="4+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="0+", default=None)


class HeartbeatResponse(Response, request=HeartbeatRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
