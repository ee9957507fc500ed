"""DeleteShareGroupOffsets, key 92: deletes topics' offsets in an empty share group (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    int16,
    int32,
    string,
    uuid,
)

if TYPE_CHECKING:
    from uuid import UUID


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(
    Request["DeleteShareGroupOffsetsResponse"],
    key=92,
    versions="0",
    flexible="0+",
    route=Route.GROUP_COORDINATOR,
):
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: UUID = uuid()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


class DeleteShareGroupOffsetsResponse(Response, request=DeleteShareGroupOffsetsRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
