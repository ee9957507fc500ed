"""AlterPartitionReassignments 0 and 1: move replicas to other brokers, or cancel that (KIP-455).

* The new replicas have the log at once, so a reassignment completes at once, unless one of them
  does not run. Then it completes when that broker starts.
* While it is in progress, the replicas are the new ones, and after them those that will go. A
  second request replaces the target. Null as the replicas cancels: the added ones go, and the
  others stay in their order.
* Replicas that are empty, repeated, or on unknown brokers are INVALID_REPLICA_ASSIGNMENT. If there
  is nothing to cancel, the result is NO_REASSIGNMENT_IN_PROGRESS.
* If the request does not allow another number of replicas (version 1 on), that is
  INVALID_REPLICATION_FACTOR. It is compared with the number before the reassignment in progress.
* If a partition stands in the request twice, the last one counts.
* An error of the whole request stands at each partition, too: Java's client reads it there.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokclient.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from aiokclient.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.state import Refused
from aiokclient.testing.broker.topics.topics import Partition


async def handle(call: Call) -> Answer:
    request: AlterPartitionReassignmentsRequest = call.request
    allowed = request.allow_replication_factor_change
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return AlterPartitionReassignmentsResponse(
            error_code=code,
            allow_replication_factor_change=allowed,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                async for topic in call.iterate_items(request.topics)
            ],
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_reassign_partition(call, topic.name, p) for p in topic.partitions],
            )
            async for topic in call.iterate_items(request.topics)
        ],
    )


def _reassign_partition(
    call: Call, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=wanted.partition_index)
    try:
        _alter_partition(call, topic, wanted)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message or None
    return result


def _alter_partition(call: Call, topic: str, wanted: ReassignablePartition) -> None:
    cluster, index = call.cluster, wanted.partition_index
    if code := call.find_refusal(topic, index):
        raise Refused(Code(code), "")
    if topic not in cluster.topics:
        text = f"Unable to find a topic named {topic}."
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    partition = cluster.find_partition(topic, index)
    if partition is None:
        text = f"Unable to find partition {topic}:{index}."
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    if wanted.replicas is None:
        if not partition.is_reassigned:
            raise Refused(Code.NO_REASSIGNMENT_IN_PROGRESS, "")
        partition.cancel_reassignment()
    else:
        _check_replicas(call, wanted.replicas)
        if call.version and not call.request.allow_replication_factor_change:
            _check_count(partition, wanted.replicas)
        partition.reassign_replicas(wanted.replicas)
    cluster.settle_partition(partition)
    cluster.topology += 1
    cluster.notify_tests()


def _check_replicas(call: Call, replicas: Sequence[int]) -> None:
    text = "The manual partition assignment includes "
    if not replicas:
        raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, f"{text}an empty replica list.")
    for broker in sorted(replicas):
        if list(replicas).count(broker) > 1:
            why = f"{text}the broker {broker} more than once."
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, why)
        if broker not in call.cluster.registered:
            why = f"{text}broker {broker}, but no such broker is registered."
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, why)


def _check_count(partition: Partition, replicas: Sequence[int]) -> None:
    before = len([each for each in partition.replicas if each not in partition.adding])
    if before != len(replicas):
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(replicas)}",
        )
