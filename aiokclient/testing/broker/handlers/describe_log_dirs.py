"""DescribeLogDirs 1 to 5: the log directory of a broker, with the sizes of its replicas.

* Each broker has one directory, on a volume of 1 TiB. The free space is what the logs do not use.
* If the request has no list of topics (null), all replicas of this broker are described. Requested
  partitions that have no replica on this broker are omitted.
* A follower's size is that of its part of the log. Its lag is the distance from the end of this
  part to the high watermark.
* Without the permission to describe the cluster, the response has CLUSTER_AUTHORIZATION_FAILED.
  Before version 3, the response has no error code, and is empty in this case.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokclient.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from aiokclient.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.own_configs import find_log_dir
from aiokclient.testing.broker.topics.topics import Partition

_VOLUME = 1 << 40
_ALL = 1 << 62


async def handle(call: Call) -> Answer:
    request: DescribeLogDirsRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return DescribeLogDirsResponse(error_code=code)
    node_id = call.broker.node_id
    topics: dict[str, DescribeLogDirsTopic] = {}
    used = sum(_compute_size(partition, node_id) for partition in _list_replicas(call))
    async for partition in call.iterate_items(_find_wanted(call, request)):
        name = partition.topic.name
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        end = partition.find_replica_end(node_id)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=_compute_size(partition, node_id),
                offset_lag=max(partition.high_watermark - end, 0),
            )
        )
    directory = DescribeLogDirsResult(
        log_dir=find_log_dir(node_id),
        topics=list(topics.values()),
        total_bytes=_VOLUME,
        usable_bytes=max(_VOLUME - used, 0),
    )
    return DescribeLogDirsResponse(results=[directory])


def _list_replicas(call: Call) -> Iterator[Partition]:
    for topic in call.cluster.topics.values():
        for partition in topic.partitions:
            if call.broker.node_id in partition.replicas:
                yield partition


def _find_wanted(call: Call, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(_list_replicas(call))
    wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return [each for each in _list_replicas(call) if (each.topic.name, each.index) in wanted]


def _compute_size(partition: Partition, node_id: int) -> int:
    log, end = partition.log, partition.find_replica_end(node_id)
    return log.size if end >= log.end_offset else log.count_bytes(log.start_offset, end, _ALL)
