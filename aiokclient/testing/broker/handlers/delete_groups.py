"""DeleteGroups 0 to 2: delete groups without members, including their offsets.

A group with members is NON_EMPTY_GROUP, and one that does not exist is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from aiokclient.protocol.messages.delete_groups import DeletableGroupResult
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import groups_of


async def handle(call: Call) -> Answer:
    request: DeleteGroupsRequest = call.request
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=each, error_code=_delete(call, each))
            async for each in call.each(dict.fromkeys(request.groups_names))
        ]
    )


def _delete(call: Call, group_id: str) -> int:
    groups = groups_of(call.cluster)
    code = groups.check(call, group_id, named=False)
    if code:
        return code
    group = groups.find(group_id)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return Code.NON_EMPTY_GROUP
    groups.remove(group)
    return Code.NONE
