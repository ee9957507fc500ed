"""ListPartitionReassignments 0: the partitions whose replicas are being moved (KIP-455).

If the request has no list of topics (null), all such partitions are listed. Requested partitions
that do not exist or are not moved are omitted.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from aiokclient.protocol.messages.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from aiokclient.testing.broker.call import Answer, Call


async def handle(call: Call) -> Answer:
    request: ListPartitionReassignmentsRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return ListPartitionReassignmentsResponse(error_code=code)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    moving = [
        each
        for each in call.cluster.list_partitions()
        if each.is_reassigned and (wanted is None or (each.topic.name, each.index) in wanted)
    ]
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    async for partition in call.iterate_items(moving):
        topics.setdefault(partition.topic.name, []).append(
            OngoingPartitionReassignment(
                partition_index=partition.index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()
        ]
    )
