"""SyncGroup 0 to 5: the leader brings the assignments of a generation, all fetch their own.

* Parked until the leader's has come; later ones are answered at once with what is stored, the
  leader's own included. With `EmbeddedCluster(resync=True)` a leader that brings other
  assignments gives them to all anew, see `groups/rebalancing.py`.
* From version 5 on protocol type and name are to be told, and to be the group's:
  INCONSISTENT_GROUP_PROTOCOL (KIP-559).
* While others are still to join: REBALANCE_IN_PROGRESS. Another generation: ILLEGAL_GENERATION.
"""

from __future__ import annotations

from aiokclient.protocol.messages import SyncGroupRequest, SyncGroupResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import groups_of

_NAMES_PROTOCOL = 5


def handle(call: Call) -> Reply:
    request: SyncGroupRequest = call.request
    groups = groups_of(call.cluster)
    code = groups.check(call, request.group_id)
    unnamed = request.protocol_type is None or request.protocol_name is None
    if not code and call.version >= _NAMES_PROTOCOL and unnamed:
        code = Code.INCONSISTENT_GROUP_PROTOCOL
    group = groups.find(request.group_id)
    if code or group is None:
        return SyncGroupResponse(error_code=code or Code.UNKNOWN_MEMBER_ID)
    return group.sync(call)
