"""ConsumerGroupDescribe 0 and 1: groups of the consumer protocol, with members and targets.

* A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND. An empty id is
  INVALID_GROUP_ID. Each group has its own error.
* From version 1 on, each member has its protocol: 1 for the consumer, 0 for the classic protocol.
* If the request asks for authorized operations, the response has all operations of a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from aiokclient.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from aiokclient.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, shorten_message
from aiokclient.testing.broker.groups import consumer_member
from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.security.request_checks import find_authorized
from aiokclient.testing.broker.state import ClusterState


async def handle(call: Call) -> Answer:
    request: ConsumerGroupDescribeRequest = call.request
    return ConsumerGroupDescribeResponse(
        groups=[
            _describe_group(call, each)
            async for each in call.iterate_items(dict.fromkeys(request.group_ids))
        ]
    )


def _describe_group(call: Call, group_id: str) -> DescribedGroup:
    code = get_groups(call.cluster).check_group(call, group_id)
    if code:
        return DescribedGroup(error_code=code, group_id=group_id)
    group = get_groups(call.cluster).find_group(group_id)
    if not isinstance(group, ConsumerGroup):
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND,
            error_message=shorten_message(f"Group {group_id} not found."),
            group_id=group_id,
        )
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_describe_member(group, each) for each in group.members.values()],
    )
    if call.request.include_authorized_operations:
        described.authorized_operations = find_authorized(call, AclResource.GROUP, group_id)
    return described


def _describe_member(group: ConsumerGroup, member: consumer_member.ConsumerMember) -> Member:
    target = group.targets.get(member.member_id, consumer_member.NOTHING)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_describe_assignment(group.cluster, member.assigned),
        target_assignment=_describe_assignment(group.cluster, target),
        member_type=1 if member.classic is None else 0,
    )


def _describe_assignment(
    cluster: ClusterState, partitions: Iterable[tuple[UUID, int]]
) -> Assignment:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        if topic_id in cluster.topics_by_id:
            topics.setdefault(topic_id, []).append(index)
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=each,
                topic_name=cluster.topics_by_id[each].name,
                partitions=indexes,
            )
            for each, indexes in topics.items()
        ]
    )
