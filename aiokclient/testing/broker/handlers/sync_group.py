"""SyncGroup 0 to 5: the leader sends the assignments of a generation, and each member gets its own.

* A request waits until the leader has sent its request. Later requests, also those of the leader,
  are answered immediately with the stored assignments. With `EmbeddedCluster(resync=True)`, a
  leader that sends different assignments begins a resync: see `groups/rebalancing.py`.
* From version 5 on, the protocol type and name must be those of the group; otherwise the result is
  INCONSISTENT_GROUP_PROTOCOL (KIP-559).
* While other members have not joined yet, the result is REBALANCE_IN_PROGRESS. If the request names
  another generation, it is ILLEGAL_GENERATION.
"""

from __future__ import annotations

from aiokclient.protocol.messages import SyncGroupRequest, SyncGroupResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups

_NAMES_PROTOCOL = 5


def handle(call: Call) -> Reply:
    request: SyncGroupRequest = call.request
    groups = get_groups(call.cluster)
    code = groups.check_group(call, request.group_id)
    unnamed = request.protocol_type is None or request.protocol_name is None
    if not code and call.version >= _NAMES_PROTOCOL and unnamed:
        code = Code.INCONSISTENT_GROUP_PROTOCOL
    group = groups.find_group(request.group_id)
    if code or group is None:
        return SyncGroupResponse(error_code=code or Code.UNKNOWN_MEMBER_ID)
    return group.handle_sync(call)
