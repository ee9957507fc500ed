"""ElectLeaders, key 43: elects the preferred leader, or a replica that is not in sync (KIP-460)."""

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


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(
    Request["ElectLeadersResponse"], key=43, versions="0-2", flexible="2+", route=Route.CONTROLLER
):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, request=ElectLeadersRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
