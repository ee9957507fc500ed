"""OffsetFetch 1 to 10: the committed offsets of groups.

A request names partitions, or asks for all of them with topics None.

* A request has one group up to version 7, and several from version 8 on (KIP-709). From version 10
  on, topics have ids, and an unknown id is UNKNOWN_TOPIC_ID.
* A partition without a committed offset has offset -1, even if it or the group does not exist.
* With `require_stable` (version 7 on), a partition for which an open transaction has another offset
  is UNSTABLE_OFFSET_COMMIT (KIP-447).
* Members of the consumer protocol send their member epoch (version 9 on), which must be current.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from aiokclient.protocol.messages import OffsetFetchRequest, OffsetFetchResponse
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.groups.offsets import Committed, GroupOffsets
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.types import TopicPartition

_SEVERAL = 8
_BY_ID = 10
_NO_ID = UUID(int=0)
_OF_A_PARTITION = (
    Code.UNSTABLE_OFFSET_COMMIT,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.TOPIC_AUTHORIZATION_FAILED,
)
_TOPICS = list[OffsetFetchRequestTopics]


async def handle(call: Call) -> Answer:
    request: OffsetFetchRequest = call.request
    # From version 8 on, a request may name several groups (KIP-709).
    if call.version >= _SEVERAL:
        return OffsetFetchResponse(
            groups=[
                await _answer_group(call, each) async for each in call.iterate_items(request.groups)
            ]
        )
    topics = request.topics
    asked = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in topics
        ],
    )
    return await _make_single_response(call, asked, await _answer_group(call, asked))


async def _make_single_response(
    call: Call, asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """Return the response up to version 7. In version 1, each partition has the group's error."""
    if found.error_code and call.version < 2:
        for topic in asked.topics or ():
            answer = _make_topic(topic, topic.name)
            for index in topic.partition_indexes:
                answer.partitions.append(_make_partition(index, None, found.error_code))
            found.topics.append(answer)
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    async for each in call.iterate_items(topic.partitions)
                ],
            )
            async for topic in call.iterate_items(found.topics)
        ],
    )


async def _answer_group(call: Call, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    groups = get_groups(call.cluster)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    code = call.find_refusal()
    if not code or code in _OF_A_PARTITION:
        code = groups.check_reachable(call, asked.group_id, named=False)
    group = groups.find_group(asked.group_id)
    if not code and group is not None:
        code = group.check_fetch(asked.member_id, asked.member_epoch)
    if code:
        answer.error_code = code
        return answer
    topics = _list_committed(call, group) if asked.topics is None else asked.topics
    answer.topics = [
        await _answer_topic(call, each, group) async for each in call.iterate_items(topics)
    ]
    return answer


def _list_committed(call: Call, group: Group | None) -> Iterable[OffsetFetchRequestTopics]:
    """Return everything that the group has committed, in the form of a request."""
    found: dict[str, OffsetFetchRequestTopics] = {}
    for tp in () if group is None else group.offsets:
        topic = call.cluster.topics.get(tp.topic)
        if topic is not None and not call.check_authorization(AclResource.TOPIC, topic.name):
            wanted = OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id)
            found.setdefault(topic.name, wanted).partition_indexes.append(tp.partition)
    return found.values()


async def _answer_topic(
    call: Call, wanted: OffsetFetchRequestTopics, group: Group | None
) -> OffsetFetchResponseTopics:
    name: str | None = wanted.name
    if call.version >= _BY_ID:
        topic = call.cluster.topics_by_id.get(wanted.topic_id)
        name = None if topic is None else topic.name
    offsets = GroupOffsets() if group is None else group.offsets
    answer = _make_topic(wanted, name or "")
    async for index in call.iterate_items(wanted.partition_indexes):
        code: int = Code.NONE
        tp = TopicPartition(name or "", index)
        if name is None:
            code = Code.UNKNOWN_TOPIC_ID
        elif call.find_refusal(*tp) in _OF_A_PARTITION:
            code = call.find_refusal(*tp)
        elif call.request.require_stable and offsets.is_unstable(tp):
            code = Code.UNSTABLE_OFFSET_COMMIT
        answer.partitions.append(
            _make_partition(index, None if code else offsets.find_offset(tp), code)
        )
    return answer


def _make_topic(wanted: OffsetFetchRequestTopics, name: str) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(name=name, topic_id=wanted.topic_id)


def _make_partition(
    index: int, found: Committed | None, code: int
) -> OffsetFetchResponsePartitions:
    answer = OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=code
    )
    if found is not None:
        answer.committed_offset = found.offset
        answer.committed_leader_epoch = found.leader_epoch
        answer.metadata = found.metadata
    return answer
