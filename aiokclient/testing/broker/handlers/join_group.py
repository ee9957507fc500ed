"""JoinGroup 0 to 9: enter a group's next generation; parked until it begins.

* An empty group id is INVALID_GROUP_ID; a session timeout out of the broker's bounds
  (`group.min.session.timeout.ms`, `group.max.session.timeout.ms`) INVALID_SESSION_TIMEOUT.
* Whoever comes without a member id makes the group if there is none; an id that is not known is
  UNKNOWN_MEMBER_ID. From version 4 on a new member is given its id with MEMBER_ID_REQUIRED and
  comes again with it (KIP-394). A group has `group.max.size` members at most.
* A protocol type or protocols that do not go with the other members' are
  INCONSISTENT_GROUP_PROTOCOL.
* Static members (version 5 on, KIP-345) take their former place without a rebalance; a leader
  that does so is told from version 9 on to leave the assignment as it is (KIP-814).
* The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for others: 0
  unless the cluster is told otherwise.
"""

from __future__ import annotations

from aiokclient.protocol.messages import JoinGroupRequest, JoinGroupResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import groups_of
from aiokclient.testing.broker.groups.group import GroupType
from aiokclient.testing.broker.groups.members import in_version


def handle(call: Call) -> Reply:
    request: JoinGroupRequest = call.request
    groups, configs = groups_of(call.cluster), call.cluster.configs
    code = groups.check(call, request.group_id)
    shortest = configs.number("group.min.session.timeout.ms")
    longest = configs.number("group.max.session.timeout.ms")
    if not code and not shortest <= request.session_timeout_ms <= longest:
        code = Code.INVALID_SESSION_TIMEOUT
    group = groups.find(request.group_id)
    if group is not None and group.is_empty and group.kind is not GroupType.CLASSIC:
        # The members that come now decide what kind of group it is.
        group = None
    if not code and group is None and request.member_id:
        code = Code.UNKNOWN_MEMBER_ID
    if code:
        answer: Reply = JoinGroupResponse(error_code=code, member_id=request.member_id)
    else:
        answer = (group or groups.classic(request.group_id)).join(call)
    return in_version(answer, call.version) if isinstance(answer, JoinGroupResponse) else answer
