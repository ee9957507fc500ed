"""ShareGroupHeartbeat 1: the request by which a client belongs to a share group (KIP-932).

* Clients choose their member ids. The first member creates the group. A group of another type is
  GROUP_ID_NOT_FOUND. `share/group.py` describes epochs and assignments.
* The default heartbeat interval is 500 ms. In Kafka, it is 5 s
  (`group.share.heartbeat.interval.ms`). Assignments are computed after each heartbeat. In Kafka,
  one second passes between two computations (`group.share.assignment.interval.ms`). Both options
  can be set for the cluster and, as `share.*`, for a group.
"""

from __future__ import annotations

from aiokclient.protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.share.group import ShareGroup, check_request
from aiokclient.testing.broker.share.leader import check_enabled


def handle(call: Call) -> Reply:
    request: ShareGroupHeartbeatRequest = call.request
    groups = get_groups(call.cluster)
    try:
        check_enabled(call.cluster)
        code = groups.check_group(call, request.group_id, named=False)
        for name in request.subscribed_topic_names or ():
            code = code or call.find_refusal(name)
        if code:
            raise Refused(Code(code), "")
        check_request(request)
        return _find_group(call, request).answer_heartbeat(call)
    except Refused as refused:
        return ShareGroupHeartbeatResponse(
            error_code=refused.code, error_message=refused.message or None
        )


def _find_group(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    groups = get_groups(call.cluster)
    if request.member_epoch == 0:
        return groups.get_share_group(request.group_id)
    group = groups.find_group(request.group_id)
    if group is None:
        text = f"Share group {request.group_id} not found."
        raise Refused(Code.GROUP_ID_NOT_FOUND, text)
    if not isinstance(group, ShareGroup):
        text = f"Group {request.group_id} is not a share group."
        raise Refused(Code.GROUP_ID_NOT_FOUND, text)
    return group
