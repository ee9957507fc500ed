"""ListOffsets 1 to 11: the offset for a timestamp.

* -1: the high watermark, or the last stable offset for `read_committed` (version 2 on).
* -2: the log start offset.
* -3 (version 7 on): the record with the greatest timestamp.
* -4 (version 8 on): the start of the local log, which is the same as -2 here.
* -5 (version 9 on): the last offset in remote storage. There is none here, so the result is -1.
* -6 (version 11 on): the first offset that is not in remote storage yet. The result is -1, too.
* Any other negative timestamp, or one that needs a later version, is UNSUPPORTED_VERSION, even if
  the partition does not exist.
* A timestamp: the first record with that timestamp or a later one, or -1 if the client can read no
  such record.
* An unknown isolation level is UNKNOWN_SERVER_ERROR, as in Kafka.
* A partition that is repeated is INVALID_REQUEST.
* Records that cannot be decoded are CORRUPT_MESSAGE, because appending does not check them.
* Only the leader answers. From version 4 on, the leader epoch in the request must be the current
  one, unless it is -1.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.errors import KafkaError
from aiokclient.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from aiokclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.topics.log import TimestampOffset
from aiokclient.testing.broker.topics.topics import Partition

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _TIERED, _PENDING = range(-1, -7, -1)
_SINCE: Mapping[int, int] = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,  # KIP-734
    _EARLIEST_LOCAL: 8,  # KIP-405
    _TIERED: 9,  # KIP-1005
    _PENDING: 11,  # KIP-1023
}
_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)


async def handle(call: Call) -> Answer:
    request: ListOffsetsRequest = call.request
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    async for topic in call.iterate_items(request.topics):
        answers = topics.setdefault(topic.name, {})
        async for asked in call.iterate_items(topic.partitions):
            index = asked.partition_index
            if index in answers:
                answers[index] = ListOffsetsPartitionResponse(
                    partition_index=index, error_code=Code.INVALID_REQUEST
                )
            else:
                answers[index] = _answer_partition(call, topic.name, asked)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))
            async for name, answers in call.iterate_items(topics.items())
        ]
    )


def _answer_partition(
    call: Call, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    partition = call.cluster.find_partition(topic, asked.partition_index)
    answer.error_code = call.find_refusal(topic, asked.partition_index)
    if not answer.error_code and call.request.isolation_level not in _ISOLATION_LEVELS:
        answer.error_code = Code.UNKNOWN_SERVER_ERROR
    if answer.error_code:
        return answer
    if asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, 1 << 15):
        answer.error_code = Code.UNSUPPORTED_VERSION
        return answer
    if partition is None:
        answer.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    answer.error_code = partition.check_request(call.broker.node_id, asked.current_leader_epoch)
    if answer.error_code:
        return answer
    committed = call.request.isolation_level == _READ_COMMITTED
    try:
        found = _find_offset(partition, asked.timestamp, committed)
    except KafkaError:
        answer.error_code = Code.CORRUPT_MESSAGE
        return answer
    if found is not None:
        answer.timestamp, answer.offset = found
        if call.version >= 4:
            answer.leader_epoch = _find_epoch(partition, asked.timestamp, found.offset)
    return answer


def _find_offset(partition: Partition, timestamp: int, committed: bool) -> TimestampOffset | None:
    log = partition.log
    last = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp == _LATEST:
        return TimestampOffset(-1, last)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start_offset)
    if timestamp in (_TIERED, _PENDING):
        return None
    latest = timestamp == _MAX_TIMESTAMP
    found = log.find_max_timestamp() if latest else log.find_timestamp(timestamp)
    return found if found is not None and found.offset < last else None


def _find_epoch(partition: Partition, timestamp: int, offset: int) -> int:
    if timestamp == _LATEST:
        return partition.leader_epoch
    return partition.log.epochs.find_epoch(offset)
