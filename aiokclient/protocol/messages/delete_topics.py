"""DeleteTopics, key 20: deletes topics by name or, from version 6, by id."""

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


class DeleteTopicState(Struct):
    name: str | None = string(null="0+", default=None)
    topic_id: UUID = uuid()


class DeleteTopicsRequest(
    Request["DeleteTopicsResponse"], key=20, versions="1-6", flexible="4+", route=Route.CONTROLLER
):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(null="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", null="0+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, request=DeleteTopicsRequest):
    throttle_time_ms: int = int32(ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
