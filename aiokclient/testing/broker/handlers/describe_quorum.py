"""DescribeQuorum 0 to 2: the brokers as the metadata quorum (KIP-595).

Every broker is a controller, too. So the brokers are the voters, and the leader is the broker that
the metadata names as the controller. The log has one offset for each change of topics and features.
Only partition 0 of `__cluster_metadata` is described; any other is UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from aiokclient.protocol.messages.describe_quorum import (
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.node import Endpoint
from aiokclient.testing.broker.security.listeners import CONTROLLER

_TOPIC, _PARTITION = "__cluster_metadata", 0
_LISTENERS = 2
_EPOCH = 1


async def handle(call: Call) -> Answer:
    request: DescribeQuorumRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return DescribeQuorumResponse(error_code=code)
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _describe_partition(call, topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        async for topic in call.iterate_items(request.topics)
    ]
    nodes = [
        Node(
            node_id=node.node_id,
            listeners=[_describe_listener(node.endpoints[CONTROLLER])],
        )
        for node in call.cluster.registered.values()
        if topics
    ]
    return DescribeQuorumResponse(
        error_message="", topics=topics, nodes=nodes if call.version >= _LISTENERS else []
    )


def _describe_listener(endpoint: Endpoint) -> Listener:
    return Listener(name=CONTROLLER, host=endpoint.host, port=endpoint.port)


def _describe_partition(call: Call, topic: str, index: int) -> ResponsePartitionData:
    result = ResponsePartitionData(partition_index=index, error_message="")
    if (topic, index) != (_TOPIC, _PARTITION):
        result.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return result
    cluster, now = call.cluster, call.cluster.clock.time_ms()
    end = cluster.topology + cluster.features_epoch
    result.leader_id, result.leader_epoch = cluster.controller, _EPOCH
    result.high_watermark = end
    result.current_voters = [
        ReplicaState(
            replica_id=node.node_id,
            log_end_offset=end,
            last_fetch_timestamp=now if node.alive else -1,
            last_caught_up_timestamp=now if node.alive else -1,
        )
        for node in cluster.registered.values()
    ]
    return result
