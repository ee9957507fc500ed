"""DescribeTopicPartitions 0: topics in pages, in the order of their names.

If one of the names is empty, all topics have UNKNOWN_SERVER_ERROR.

A response has up to `response_partition_limit` partitions (2000 at most), and its cursor names the
start of the next page. A request without topics means all topics. There are no eligible leader
replicas.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from aiokclient.protocol.messages import describe_topic_partitions as parts
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.security.request_checks import find_authorized
from aiokclient.testing.broker.topics.topics import NO_LEADER, Partition
from aiokclient.types import is_topic_name

_MOST = 2000


async def handle(call: Call) -> Answer:
    request: DescribeTopicPartitionsRequest = call.request
    if any(not topic.name for topic in request.topics):
        return DescribeTopicPartitionsResponse(
            topics=[
                parts.DescribeTopicPartitionsResponseTopic(
                    name=topic.name, error_code=Code.UNKNOWN_SERVER_ERROR
                )
                async for topic in call.iterate_items(request.topics)
            ]
        )
    room = max(1, min(request.response_partition_limit, _MOST))
    first, index = "", 0
    if request.cursor is not None:
        first, index = request.cursor.topic_name, max(0, request.cursor.partition_index)
    names = [topic.name for topic in request.topics] or [
        name
        for name in call.cluster.topics
        if not call.check_authorization(AclResource.TOPIC, name)
    ]
    response = DescribeTopicPartitionsResponse()
    async for name in call.iterate_items(sorted(dict.fromkeys(names))):
        if name < first:
            continue
        if room <= 0:
            response.next_cursor = parts.Cursor(topic_name=name, partition_index=0)
            break
        begin = index if name == first else 0
        topic = _describe_topic(call, name, begin, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        end = begin + len(topic.partitions)
        known = call.cluster.topics.get(name)
        if known is not None and not topic.error_code and end < len(known.partitions):
            response.next_cursor = parts.Cursor(topic_name=name, partition_index=end)
            break
    return response


def _describe_topic(
    call: Call, name: str, begin: int, room: int
) -> parts.DescribeTopicPartitionsResponseTopic:
    answer = parts.DescribeTopicPartitionsResponseTopic(
        name=name, error_code=call.find_refusal(name)
    )
    topic = call.cluster.topics.get(name)
    if answer.error_code:
        return answer
    answer.topic_authorized_operations = find_authorized(call, AclResource.TOPIC, name)
    if topic is None:
        known = is_topic_name(name)
        answer.error_code = (
            Code.UNKNOWN_TOPIC_OR_PARTITION if known else Code.INVALID_TOPIC_EXCEPTION
        )
        return answer
    answer.topic_id = topic.topic_id
    answer.is_internal = topic.internal
    answer.partitions = [
        _describe_partition(call, each) for each in topic.partitions[begin : begin + room]
    ]
    return answer


def _describe_partition(
    call: Call, partition: Partition
) -> parts.DescribeTopicPartitionsResponsePartition:
    alive = call.cluster.alive
    missing = partition.leader == NO_LEADER
    return parts.DescribeTopicPartitionsResponsePartition(
        error_code=Code.LEADER_NOT_AVAILABLE if missing else Code.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[each for each in partition.replicas if each not in alive],
    )
