"""JoinGroup 0 to 9: join a group's next generation. The response waits until the generation begins.

* An empty group id is INVALID_GROUP_ID. A session timeout outside the broker's limits
  (`group.min.session.timeout.ms`, `group.max.session.timeout.ms`) is INVALID_SESSION_TIMEOUT.
* A request without a member id creates the group if there is none. An unknown id is
  UNKNOWN_MEMBER_ID. From version 4 on, a new member receives its id with MEMBER_ID_REQUIRED and
  sends the request again with it (KIP-394). A group has `group.max.size` members at most.
* A protocol type or protocols that do not match those of the other members are
  INCONSISTENT_GROUP_PROTOCOL.
* A static member that starts again (version 5 on, KIP-345) replaces its previous instance without a
  rebalance. If it was the leader, the response tells it to keep the assignment (version 9 on,
  KIP-814).
* The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members.
  The default for tests is 0.
"""

from __future__ import annotations

from aiokclient.protocol.messages import JoinGroupRequest, JoinGroupResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import GroupType
from aiokclient.testing.broker.groups.members import adapt_to_version


def handle(call: Call) -> Reply:
    request: JoinGroupRequest = call.request
    groups, configs = get_groups(call.cluster), call.cluster.configs
    code = groups.check_group(call, request.group_id)
    shortest = configs.read_number("group.min.session.timeout.ms")
    longest = configs.read_number("group.max.session.timeout.ms")
    if not code and not shortest <= request.session_timeout_ms <= longest:
        code = Code.INVALID_SESSION_TIMEOUT
    group = groups.find_group(request.group_id)
    if group is not None and group.is_empty and group.kind is GroupType.CONSUMER:
        # The next members to join determine the kind of the group.
        group = None
    if not code and group is None and request.member_id:
        code = Code.UNKNOWN_MEMBER_ID
    if code:
        answer: Reply = JoinGroupResponse(error_code=code, member_id=request.member_id)
    else:
        if group is None:
            group = groups.make_classic_group(request.group_id)
            group.write_state()
        answer = group.handle_join(call)
    return (
        adapt_to_version(answer, call.version) if isinstance(answer, JoinGroupResponse) else answer
    )
