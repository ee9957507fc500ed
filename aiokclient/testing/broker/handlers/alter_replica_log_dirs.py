"""AlterReplicaLogDirs 1 and 2: move replicas to another log directory of this broker (KIP-113).

Each broker has one directory, so that every replica is where it may be already. Another path is
LOG_DIR_NOT_FOUND. A partition without a replica on this broker is REPLICA_NOT_AVAILABLE.
"""

from __future__ import annotations

from aiokclient.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from aiokclient.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.own_configs import find_log_dir


async def handle(call: Call) -> Answer:
    request: AlterReplicaLogDirsRequest = call.request
    refused = call.find_refusal() or call.check_cluster_authorization()
    results: dict[str, dict[int, AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        async for topic in call.iterate_items(directory.topics):
            moved = results.setdefault(topic.name, {})
            for index in topic.partitions:
                code = refused or _find_problem(call, directory.path, topic.name, index)
                moved[index] = AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=code
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=list(moved.values()))
            for name, moved in results.items()
        ]
    )


def _find_problem(call: Call, path: str, topic: str, index: int) -> int:
    node_id = call.broker.node_id
    if code := call.find_refusal(topic, index):
        return code
    if path != find_log_dir(node_id):
        return Code.LOG_DIR_NOT_FOUND
    partition = call.cluster.find_partition(topic, index)
    if partition is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE if node_id in partition.replicas else Code.REPLICA_NOT_AVAILABLE
