"""DescribeProducers 0: the producers with state in partitions, from any replica (KIP-664).

* A producer without a marker so far has coordinator epoch -1, and one without an open transaction
  has start offset -1.
* A name that no topic may have is INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from aiokclient.protocol.messages.describe_producers import (
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.topics.producers import ProducerStates
from aiokclient.types import is_topic_name


async def handle(call: Call) -> Answer:
    request: DescribeProducersRequest = call.request
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe_partition(call, topic.name, index)
                    async for index in call.iterate_items(topic.partition_indexes)
                ],
            )
            async for topic in call.iterate_items(request.topics)
        ]
    )


def _describe_partition(call: Call, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index, error_code=call.find_refusal(topic, index))
    if answer.error_code:
        return answer
    partition = call.cluster.find_partition(topic, index)
    if not is_topic_name(topic):
        answer.error_code = Code.INVALID_TOPIC_EXCEPTION
    elif partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    else:
        answer.error_code = partition.check_request(call.broker.node_id, -1, leader_only=False)
        if not answer.error_code:
            answer.active_producers = _describe_producers(partition.log.producers)
    return answer


def _describe_producers(producers: ProducerStates) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=producers.find_open_since(producer_id),
        )
        for producer_id, state in producers
    ]
