"""DeleteShareGroupOffsets 0: delete a share group's states of topics (KIP-932).

* A group that does not exist or is of another kind is GROUP_ID_NOT_FOUND, and one with members is
  NON_EMPTY_GROUP. A topic of which the group has no state is UNKNOWN_TOPIC_OR_PARTITION.
* The group begins anew in the topic, where its config `share.auto.offset.reset` says.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from aiokclient.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.share.group import require_empty
from aiokclient.testing.broker.share.leader import check_enabled

_NOT_HERE = "This server does not host this topic-partition."
_NOTHING = "There is no offset information to delete."


async def handle(call: Call) -> Answer:
    request: DeleteShareGroupOffsetsRequest = call.request
    groups = get_groups(call.cluster)
    try:
        check_enabled(call.cluster)
        if code := groups.check_group(call, request.group_id):
            raise Refused(Code(code), "")
        require_empty(groups.find_group(request.group_id), request.group_id)
    except Refused as refused:
        return DeleteShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message or None
        )
    return DeleteShareGroupOffsetsResponse(
        responses=[
            _delete_topic(call, each.topic_name)
            async for each in call.iterate_items(request.topics)
        ]
    )


def _delete_topic(call: Call, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    answer = DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, error_code=call.find_refusal(name)
    )
    topic = call.cluster.topics.get(name)
    if answer.error_code:
        return answer
    if topic is None:
        answer.error_code, answer.error_message = Code.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HERE
        return answer
    answer.topic_id = topic.topic_id
    if not call.cluster.share_states.delete_states(call.request.group_id, topic.topic_id):
        answer.error_code, answer.error_message = Code.UNKNOWN_TOPIC_OR_PARTITION, _NOTHING
    return answer
