"""LeaveGroup 0 to 5: members leave, and the others divide their partitions.

A request has one member up to version 2, and several from version 3 on, each with its own result. A
static member may be named by its instance id alone (KIP-345). From version 5 on, a reason is
included (KIP-800), which is ignored here.
"""

from __future__ import annotations

from aiokclient.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import refuse_unknown_members

_SEVERAL = 3


def handle(call: Call) -> Reply:
    request: LeaveGroupRequest = call.request
    groups = get_groups(call.cluster)
    code = groups.check_group(call, request.group_id)
    if code:
        return LeaveGroupResponse(error_code=code)
    members = request.members
    if call.version < _SEVERAL:
        members = [MemberIdentity(member_id=request.member_id)]
    group = groups.find_group(request.group_id)
    answer = refuse_unknown_members(members) if group is None else group.handle_leave(call, members)
    if call.version < _SEVERAL and isinstance(answer, LeaveGroupResponse):
        return LeaveGroupResponse(error_code=answer.members[0].error_code)
    return answer
