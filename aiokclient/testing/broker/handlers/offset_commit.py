"""OffsetCommit 2 to 10: store the positions of a group.

* A member sends its generation (or its epoch, version 9 on). If the member is unknown, or its
  generation is outdated, the result is UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or
  FENCED_INSTANCE_ID. Between the phases of a rebalance, it is REBALANCE_IN_PROGRESS. A client that
  is not a member may commit while the group is empty, or does not exist. The commit then creates
  the group. With a generation, a group that does not exist is GROUP_ID_NOT_FOUND (up to version 8,
  ILLEGAL_GENERATION).
* A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION. From version 10 on, topics have
  ids, and an unknown id is UNKNOWN_TOPIC_ID. If metadata is longer than
  `offset.metadata.max.bytes`, the result of the partition is OFFSET_METADATA_TOO_LARGE.
  The other partitions of the request are stored.
* A commit counts as a heartbeat.
"""

from __future__ import annotations

from aiokclient.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.groups.offsets import Committed
from aiokclient.testing.broker.internal.records import write_offsets
from aiokclient.types import TopicPartition

_BY_ID = 10
_GROUP_NOT_FOUND = 9


async def handle(call: Call) -> Answer:
    request: OffsetCommitRequest = call.request
    code, group = _find_group(call, request)
    if group is not None:
        group.on_commit(request.member_id)
    stored: dict[TopicPartition, Committed] = {}
    topics = [
        await _commit_topic(call, each, code, group, stored)
        async for each in call.iterate_items(request.topics)
    ]
    if stored:
        write_offsets(call.cluster, request.group_id, stored)
    return OffsetCommitResponse(topics=topics)


def _find_group(call: Call, request: OffsetCommitRequest) -> tuple[int, Group | None]:
    """Return NONE and the group that accepts the commit, or an error code and None."""
    groups = get_groups(call.cluster)
    epoch = request.generation_id_or_member_epoch
    code = groups.check_reachable(call, request.group_id, named=False)
    if code:
        return code, None
    group = groups.find_group(request.group_id)
    if group is None and epoch >= 0:
        new = call.version >= _GROUP_NOT_FOUND
        return Code.GROUP_ID_NOT_FOUND if new else Code.ILLEGAL_GENERATION, None
    if group is None:
        return Code.NONE, groups.make_classic_group(request.group_id)
    code = group.check_commit(request.member_id, epoch, request.group_instance_id, call.version)
    return code, None if code else group


async def _commit_topic(
    call: Call,
    wanted: OffsetCommitRequestTopic,
    code: int,
    group: Group | None,
    stored: dict[TopicPartition, Committed],
) -> OffsetCommitResponseTopic:
    """Commit the offsets of a topic, and add them to `stored`."""
    cluster, by_id = call.cluster, call.version >= _BY_ID
    topic = cluster.topics_by_id.get(wanted.topic_id) if by_id else cluster.topics.get(wanted.name)
    answer = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
    async for each in call.iterate_items(wanted.partitions):
        named = topic.name if topic is not None else None if by_id else wanted.name
        error = call.find_refusal(named, each.partition_index)
        if code == Code.GROUP_AUTHORIZATION_FAILED:
            error = code
        if error:
            pass
        elif topic is None:
            error = Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
        elif topic.find_partition(each.partition_index) is None:
            error = Code.UNKNOWN_TOPIC_OR_PARTITION
        else:
            tp = TopicPartition(topic.name, each.partition_index)
            error = code or _commit_partition(call, tp, each, group, stored)
        answer.partitions.append(
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
        )
    return answer


def _commit_partition(
    call: Call,
    tp: TopicPartition,
    wanted: OffsetCommitRequestPartition,
    group: Group | None,
    stored: dict[TopicPartition, Committed],
) -> int:
    request: OffsetCommitRequest = call.request
    metadata = wanted.committed_metadata or ""
    if len(metadata) > call.cluster.configs.read_number("offset.metadata.max.bytes"):
        return Code.OFFSET_METADATA_TOO_LARGE
    if group is None:
        return Code.UNKNOWN_SERVER_ERROR
    code = group.check_committed_partition(
        request.member_id, request.generation_id_or_member_epoch, tp
    )
    if code:
        return code
    stored[tp] = Committed(
        wanted.committed_offset,
        wanted.committed_leader_epoch,
        metadata,
        call.cluster.clock.time_ms(),
    )
    group.offsets.commit_offset(tp, stored[tp])
    return Code.NONE
