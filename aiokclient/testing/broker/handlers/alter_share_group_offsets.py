"""AlterShareGroupOffsets 0: set the start offsets of a share group without members (KIP-932).

* A group that does not exist is created. A group of another kind is GROUP_ID_NOT_FOUND, and one
  with members is NON_EMPTY_GROUP.
* A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION. The offset is not checked: it may
  be outside of the log.
* Members whose sessions are still open lose their locks. Their acknowledgements are refused.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from aiokclient.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.share.group import require_empty
from aiokclient.testing.broker.share.leader import check_enabled
from aiokclient.testing.broker.share.sessions import SharePartitionKey

_NOT_HERE = "This server does not host this topic-partition."


async def handle(call: Call) -> Answer:
    request: AlterShareGroupOffsetsRequest = call.request
    groups = get_groups(call.cluster)
    try:
        check_enabled(call.cluster)
        if code := groups.check_group(call, request.group_id):
            raise Refused(Code(code), "")
        group = groups.get_share_group(request.group_id)
        require_empty(group, request.group_id)
    except Refused as refused:
        return AlterShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message or None
        )
    starts: dict[SharePartitionKey, int] = {}
    responses = [
        await _check_topic(call, each, starts) async for each in call.iterate_items(request.topics)
    ]
    group.set_offsets(starts)
    return AlterShareGroupOffsetsResponse(responses=responses)


async def _check_topic(
    call: Call,
    wanted: AlterShareGroupOffsetsRequestTopic,
    starts: dict[SharePartitionKey, int],
) -> AlterShareGroupOffsetsResponseTopic:
    """Return the results for a topic, and add the offsets that are to be set to `starts`."""
    answer = AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
    topic = call.cluster.topics.get(wanted.topic_name)
    if topic is not None:
        answer.topic_id = topic.topic_id
    async for each in call.iterate_items(wanted.partitions):
        part = AlterShareGroupOffsetsResponsePartition(
            partition_index=each.partition_index,
            error_code=call.find_refusal(wanted.topic_name, each.partition_index),
        )
        answer.partitions.append(part)
        if part.error_code:
            continue
        if topic is None or topic.find_partition(each.partition_index) is None:
            part.error_code, part.error_message = Code.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HERE
            continue
        starts[SharePartitionKey(topic.topic_id, each.partition_index)] = each.start_offset
    return answer
