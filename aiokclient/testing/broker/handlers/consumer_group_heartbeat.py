"""ConsumerGroupHeartbeat 0 and 1: the only request of members of the consumer protocol (KIP-848).

* In version 1, clients choose their member ids and may subscribe with regular expressions. In
  version 0, an empty member id is answered with a new one.
* `groups/consumer_heartbeat.py` describes what members send and receive, and
  `groups/consumer_group.py` describes epochs and targets. The first member creates the group. A
  member that joins a group of classic consumers converts it: see `groups/migration.py`.
* The default heartbeat interval is 500 ms. In Kafka, it is 5 s
  (`group.consumer.heartbeat.interval.ms`). Assignments are computed immediately. In Kafka, one
  second passes between two computations (`group.consumer.assignment.interval.ms`). Both options can
  be set for the cluster and, as `consumer.*`, for a group.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
from aiokclient.testing.broker.groups.consumer_heartbeat import check_request
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.state import Refused


def handle(call: Call) -> Reply:
    request: ConsumerGroupHeartbeatRequest = call.request
    groups = get_groups(call.cluster)
    code = groups.check_group(call, request.group_id, named=False)
    if code:
        return ConsumerGroupHeartbeatResponse(error_code=code)
    for name in request.subscribed_topic_names or ():
        if code := call.find_refusal(name):
            return ConsumerGroupHeartbeatResponse(error_code=code)
    try:
        assignors = call.cluster.configs["group.consumer.assignors"].split(",")
        check_request(request, call.version, assignors)
        return _find_group(call, request).handle_consumer_heartbeat(call)
    except Refused as refused:
        return ConsumerGroupHeartbeatResponse(
            error_code=refused.code, error_message=refused.message
        )


def _find_group(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    groups = get_groups(call.cluster)
    if request.member_epoch == 0:
        return groups.get_consumer_group(request.group_id)
    group = groups.find_group(request.group_id)
    if not isinstance(group, ConsumerGroup):
        text = f"Consumer group {request.group_id} not found."
        raise Refused(Code.GROUP_ID_NOT_FOUND, text)
    return group
