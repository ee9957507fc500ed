"""CreatePartitions, key 37: increases the number of partitions of topics."""

from __future__ import annotations

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
)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, null="0+"
    )


class CreatePartitionsRequest(
    Request["CreatePartitionsResponse"],
    key=37,
    versions="0-3",
    flexible="2+",
    route=Route.CONTROLLER,
):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


class CreatePartitionsResponse(Response, request=CreatePartitionsRequest):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
