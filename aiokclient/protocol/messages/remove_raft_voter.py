"""RemoveRaftVoter, key 81: removes a voter from the metadata quorum (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import Request, Response, Route, int16, int32, string, uuid

if TYPE_CHECKING:
    from uuid import UUID


class RemoveRaftVoterRequest(
    Request["RemoveRaftVoterResponse"], key=81, versions="0", flexible="0+", route=Route.ANY
):
    cluster_id: str | None = string(null="0+")
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()


class RemoveRaftVoterResponse(Response, request=RemoveRaftVoterRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", ignorable=True)
