"""OffsetDelete 0: delete committed offsets of a group (KIP-496).

Topics to which members are subscribed are GROUP_SUBSCRIBED_TO_TOPIC. A group with members whose
protocol the broker does not know is NON_EMPTY_GROUP, and one that does not exist is
GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from aiokclient.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from aiokclient.protocol.messages.offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.internal.records import write_deleted_offsets
from aiokclient.types import TopicPartition


async def handle(call: Call) -> Answer:
    request: OffsetDeleteRequest = call.request
    groups = get_groups(call.cluster)
    code = groups.check_group(call, request.group_id)
    group = groups.find_group(request.group_id)
    if not code:
        code = Code.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
    if code or group is None:
        return OffsetDeleteResponse(error_code=code)
    gone: list[TopicPartition] = []
    topics = [
        await _answer_topic(call, each, group, gone)
        async for each in call.iterate_items(request.topics)
    ]
    write_deleted_offsets(call.cluster, request.group_id, gone)
    return OffsetDeleteResponse(topics=topics)


async def _answer_topic(
    call: Call, wanted: OffsetDeleteRequestTopic, group: Group, gone: list[TopicPartition]
) -> OffsetDeleteResponseTopic:
    """Delete the offsets of a topic, and add their partitions to `gone`."""
    answer = OffsetDeleteResponseTopic(name=wanted.name)
    read = group.is_subscribed_to(wanted.name)
    async for each in call.iterate_items(wanted.partitions):
        code = Code(call.find_refusal(wanted.name, each.partition_index))
        if code:
            pass
        elif call.cluster.find_partition(wanted.name, each.partition_index) is None:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        elif read:
            code = Code.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            tp = TopicPartition(wanted.name, each.partition_index)
            group.offsets.delete_offset(tp)
            gone.append(tp)
        answer.partitions.append(
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
        )
    return answer
