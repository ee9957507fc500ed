"""Heartbeat 0 to 4: a member is alive. The response says whether a rebalance is in progress.

A coordinator that is still loading the group answers without an error, as in Kafka.
"""

from __future__ import annotations

from aiokclient.protocol.messages import HeartbeatRequest, HeartbeatResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.coordinator import get_groups


def handle(call: Call) -> Reply:
    request: HeartbeatRequest = call.request
    groups = get_groups(call.cluster)
    if code := call.find_refusal():
        return HeartbeatResponse(error_code=code)
    code = groups.check_group(call, request.group_id)
    if code == Code.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    group = groups.find_group(request.group_id)
    if code or group is None:
        return HeartbeatResponse(error_code=code or Code.UNKNOWN_MEMBER_ID)
    return group.handle_heartbeat(call)
