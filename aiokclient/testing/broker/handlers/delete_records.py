"""DeleteRecords 0 to 2: advance log start offsets.

The new start is the requested offset, or the high watermark for -1. An offset above the high
watermark is OFFSET_OUT_OF_RANGE. Only the leader accepts the request. A topic that is only
compacted is POLICY_VIOLATION. The response has the new log start offset.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from aiokclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code

_HIGH_WATERMARK = -1


async def handle(call: Call) -> Answer:
    request: DeleteRecordsRequest = call.request
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete_records(call, topic.name, each)
                    async for each in call.iterate_items(topic.partitions)
                ],
            )
            async for topic in call.iterate_items(request.topics)
        ]
    )


def _delete_records(
    call: Call, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    partition = call.cluster.find_partition(topic, wanted.partition_index)
    result.error_code = call.find_refusal(topic, wanted.partition_index)
    if not result.error_code and partition is None:
        result.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    if result.error_code or partition is None:
        return result
    result.error_code = partition.check_request(call.broker.node_id, -1)
    if result.error_code:
        return result
    if partition.topic.configs["cleanup.policy"] == "compact":
        result.error_code = Code.POLICY_VIOLATION
        return result
    high = partition.high_watermark
    offset = high if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= high:
        result.error_code = Code.OFFSET_OUT_OF_RANGE
        return result
    partition.delete_records(offset)
    result.low_watermark = partition.log.start_offset
    return result
