"""DeleteGroups 0 to 2: delete groups without members, including their offsets.

A group with members is NON_EMPTY_GROUP, and one that does not exist is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from aiokclient.protocol.messages.delete_groups import DeletableGroupResult
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups


async def handle(call: Call) -> Answer:
    request: DeleteGroupsRequest = call.request
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=each, error_code=_delete_group(call, each))
            async for each in call.iterate_items(dict.fromkeys(request.groups_names))
        ]
    )


def _delete_group(call: Call, group_id: str) -> int:
    groups = get_groups(call.cluster)
    code = groups.check_group(call, group_id, named=False)
    if code:
        return code
    group = groups.find_group(group_id)
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return Code.NON_EMPTY_GROUP
    groups.remove_group(group)
    return Code.NONE
