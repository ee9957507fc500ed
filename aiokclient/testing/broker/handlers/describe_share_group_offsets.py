"""DescribeShareGroupOffsets 0 and 1: start offsets and lags of share groups (KIP-932, KIP-1226).

* Without topics, a group has all partitions whose state was created. A topic or partition without a
  state has the start offset and the lag -1, and no error. So have those whose state no leader has
  written yet. Kafka answers a partition that does not exist after half a minute.
* The lag, from version 1 on, is the number of records after the start offset that are not finished.
* Topics that the client may not describe are left out, or have an error if the request names them.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiokclient.protocol.messages import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from aiokclient.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.share.sessions import SharePartitionKey
from aiokclient.testing.broker.share.states import UNKNOWN_OFFSET


async def handle(call: Call) -> Answer:
    request: DescribeShareGroupOffsetsRequest = call.request
    return DescribeShareGroupOffsetsResponse(
        groups=[
            await _describe_group(call, each) async for each in call.iterate_items(request.groups)
        ]
    )


async def _describe_group(
    call: Call, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
    code = 0 if call.cluster.share_level else int(Code.UNSUPPORTED_VERSION)
    answer.error_code = code or get_groups(call.cluster).check_group(call, wanted.group_id)
    if answer.error_code:
        return answer
    if wanted.topics is None:
        topics = _list_topics(call, wanted.group_id)
    else:
        topics = {each.topic_name: each.partitions for each in wanted.topics}
    answer.topics = [
        await _describe_topic(call, wanted.group_id, name, topics[name])
        async for name in call.iterate_items(topics)
    ]
    return answer


def _list_topics(call: Call, group_id: str) -> dict[str, list[int]]:
    """Return the partitions that have a state, in topics that the client may describe."""
    topics: dict[str, list[int]] = {}
    for key in sorted(call.cluster.share_states.list_states(group_id)):
        name = call.cluster.topics_by_id[key.topic_id].name
        if call.is_allowed(AclOperation.DESCRIBE, AclResource.TOPIC, name):
            topics.setdefault(name, []).append(key.partition)
    return topics


async def _describe_topic(
    call: Call, group_id: str, name: str, partitions: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
    topic = call.cluster.topics.get(name)
    if topic is not None:
        answer.topic_id = topic.topic_id
    code = call.find_refusal(name)
    async for index in call.iterate_items(partitions):
        part = DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=UNKNOWN_OFFSET, error_code=code
        )
        answer.partitions.append(part)
        partition = None if topic is None else topic.find_partition(index)
        if topic is None or partition is None or code:
            continue
        key = SharePartitionKey(topic.topic_id, index)
        state = call.cluster.share_states.find_state(group_id, key)
        if state is not None and state.start_offset != UNKNOWN_OFFSET:
            part.start_offset = state.start_offset
            part.leader_epoch = max(state.leader_epoch, 0)
            part.lag = partition.high_watermark - state.start_offset - state.finished
    return answer
