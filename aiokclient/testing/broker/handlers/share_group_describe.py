"""ShareGroupDescribe 1: share groups, with their members and assignments (KIP-932).

* A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND. Each group has its own
  error. If a member subscribes to a topic that the client may not describe, the group is
  TOPIC_AUTHORIZATION_FAILED.
* If the request asks for authorized operations, the response has all operations of a group.
"""

from __future__ import annotations

from aiokclient.protocol.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from aiokclient.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, shorten_message
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.security.request_checks import find_authorized
from aiokclient.testing.broker.share.group import ASSIGNOR, ShareGroup
from aiokclient.testing.broker.share.members import ShareMember

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


async def handle(call: Call) -> Answer:
    request: ShareGroupDescribeRequest = call.request
    return ShareGroupDescribeResponse(
        groups=[
            _describe_group(call, each)
            async for each in call.iterate_items(dict.fromkeys(request.group_ids))
        ]
    )


def _describe_group(call: Call, group_id: str) -> DescribedGroup:
    code = 0 if call.cluster.share_level else int(Code.UNSUPPORTED_VERSION)
    code = code or get_groups(call.cluster).check_group(call, group_id)
    if code:
        return DescribedGroup(error_code=code, group_id=group_id)
    group = get_groups(call.cluster).find_group(group_id)
    if not isinstance(group, ShareGroup):
        found = f"Group {group_id} is not a share group." if group else None
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND,
            error_message=shorten_message(found or f"Group {group_id} not found."),
            group_id=group_id,
        )
    topics = {name for each in group.members.values() for name in each.topics}
    if not all(call.is_allowed(AclOperation.DESCRIBE, AclResource.TOPIC, each) for each in topics):
        return DescribedGroup(
            error_code=Code.TOPIC_AUTHORIZATION_FAILED, error_message=_HIDDEN, group_id=group_id
        )
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_describe_member(group, each) for each in group.members.values()],
    )
    if call.request.include_authorized_operations:
        described.authorized_operations = find_authorized(call, AclResource.GROUP, group_id)
    return described


def _describe_member(group: ShareGroup, member: ShareMember) -> Member:
    topics: dict[str, TopicPartitions] = {}
    for topic_id, index in sorted(member.assigned):
        topic = group.cluster.topics_by_id.get(topic_id)
        if topic is not None:
            named = TopicPartitions(topic_id=topic_id, topic_name=topic.name)
            topics.setdefault(topic.name, named).partitions.append(index)
    return Member(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=list(topics.values())),
    )
