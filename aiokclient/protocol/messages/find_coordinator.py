"""FindCoordinator, key 10: returns the coordinator of a group or of a transactional id.

Key types: 0 group, 1 transaction, 2 share. From version 4 on, a request can have
several keys (KIP-699), and requests and responses use other fields than before.
"""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int8,
    int16,
    int32,
    string,
)


class FindCoordinatorRequest(
    Request["FindCoordinatorResponse"], key=10, versions="0-6", flexible="3+", route=Route.ANY
):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", ignorable=True)


class FindCoordinatorResponse(Response, request=FindCoordinatorRequest):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", null="0+", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
