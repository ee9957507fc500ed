"""LeaveGroup 0 to 5: members go, and the others share what they had.

One up to version 2; several from 3 on, each with an answer of its own, static members by their
instance id alone if need be (KIP-345). From version 5 on with a reason (KIP-800), which nobody
reads here.
"""

from __future__ import annotations

from aiokclient.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.groups.coordinator import groups_of
from aiokclient.testing.broker.groups.group import left_unknown

_SEVERAL = 3


def handle(call: Call) -> Reply:
    request: LeaveGroupRequest = call.request
    groups = groups_of(call.cluster)
    code = groups.check(call, request.group_id)
    if code:
        return LeaveGroupResponse(error_code=code)
    members = request.members
    if call.version < _SEVERAL:
        members = [MemberIdentity(member_id=request.member_id)]
    group = groups.find(request.group_id)
    answer = left_unknown(members) if group is None else group.leave(call, members)
    if call.version < _SEVERAL and isinstance(answer, LeaveGroupResponse):
        return LeaveGroupResponse(error_code=answer.members[0].error_code)
    return answer
