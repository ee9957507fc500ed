"""OffsetForLeaderEpoch 2 to 4: the end offset of a leader epoch (KIP-101, KIP-320).

The result is the largest epoch in the log that is not larger than the requested one, and its end
offset. For the newest epoch, the end offset is the end of the log. If the requested epoch is older
than all epochs in the log, the result is the requested epoch and the start of the oldest one. If it
is -1 or newer than all of them, both values are -1. Only the leader answers. The current leader
epoch in the request must be correct, unless it is -1.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from aiokclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code


async def handle(call: Call) -> Answer:
    request: OffsetForLeaderEpochRequest = call.request
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _find_end(call, topic.topic, each)
                    async for each in call.iterate_items(topic.partitions)
                ],
            )
            async for topic in call.iterate_items(request.topics)
        ]
    )


def _find_end(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    partition = call.cluster.find_partition(topic, asked.partition)
    answer.error_code = call.find_refusal(topic, asked.partition)
    if not answer.error_code and partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    if answer.error_code or partition is None:
        return answer
    answer.error_code = partition.check_request(call.broker.node_id, asked.current_leader_epoch)
    if not answer.error_code:
        log = partition.log
        answer.leader_epoch, answer.end_offset = log.epochs.find_end(
            asked.leader_epoch, log.end_offset
        )
    return answer
