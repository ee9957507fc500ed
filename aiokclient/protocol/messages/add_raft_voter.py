"""AddRaftVoter, key 80: adds a voter to the metadata quorum (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(
    Request["AddRaftVoterResponse"], key=80, versions="0-1", flexible="0+", route=Route.ANY
):
    cluster_id: str | None = string(null="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Response, request=AddRaftVoterRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", ignorable=True)
