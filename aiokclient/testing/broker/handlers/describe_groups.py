"""DescribeGroups 0 to 6: the state, protocol, and members of classic groups.

The metadata of members and the name of the protocol are included for a stable group only. A group
that does not exist or is of another type is Dead; from version 6 on, it is also GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from aiokclient.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from aiokclient.protocol.messages.describe_groups import DescribedGroup
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, shorten_message
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.security.request_checks import find_authorized

_NOT_FOUND = 6


async def handle(call: Call) -> Answer:
    request: DescribeGroupsRequest = call.request
    return DescribeGroupsResponse(
        groups=[_describe_group(call, each) async for each in call.iterate_items(request.groups)]
    )


def _describe_group(call: Call, group_id: str) -> DescribedGroup:
    groups = get_groups(call.cluster)
    code = groups.check_group(call, group_id, named=False)
    if code:
        return DescribedGroup(error_code=code, group_id=group_id)
    group = groups.find_group(group_id)
    found = None if group is None else group.describe()
    if found is None:
        found = DescribedGroup(group_id=group_id, group_state="Dead")
        if call.version >= _NOT_FOUND:
            found.error_code = Code.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "not a classic group"
            found.error_message = shorten_message(f"Group {group_id} is {what}.")
    if call.request.include_authorized_operations and not found.error_code:
        found.authorized_operations = find_authorized(call, AclResource.GROUP, group_id)
    return found
