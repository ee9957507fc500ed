"""ShareAcknowledge 1 and 2: accept, release, reject, or renew acquired records (KIP-932).

* It is a request of a share session (`share/sessions.py`). With epoch -1, the session ends, and the
  records that the member holds in its partitions are available again.
* The acknowledgements of a partition succeed or fail together (`share/records.py`). A broker that
  does not lead it any more is UNKNOWN_TOPIC_OR_PARTITION, and so is a partition that no fetch has
  loaded. A topic that was deleted is UNKNOWN_TOPIC_ID. If the offsets of the group were altered
  meanwhile, the error is NOT_LEADER_OR_FOLLOWER, with this broker as the leader.
* While a test keeps the share coordinator unavailable, all but renewals wait for it. After 61
  seconds, they end with COORDINATOR_NOT_AVAILABLE. The connection waits, too.
* From version 2 on, `is_renew_ack` allows to renew locks, beside other acknowledgements.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.protocol.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from aiokclient.protocol.messages.share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeTopicResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Refused
from aiokclient.testing.broker.share.acknowledging import (
    acknowledge_partitions,
    list_acknowledged,
)
from aiokclient.testing.broker.share.leader import check_enabled
from aiokclient.testing.broker.share.requests import (
    check_member,
    list_endpoints,
    name_fenced_leader,
    read_lock_duration_ms,
)
from aiokclient.testing.broker.share.sessions import FINAL_EPOCH


async def handle(call: Call) -> Answer:
    request: ShareAcknowledgeRequest = call.request
    call.outlives_connection = True
    shares = call.broker.shares
    try:
        check_enabled(call.cluster)
        key = check_member(call)
        session = shares.sessions.accept_acknowledgement(key, request.share_session_epoch)
    except Refused as refused:
        return ShareAcknowledgeResponse(
            error_code=refused.code, error_message=refused.message or None
        )
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, None] = {}
    results = await acknowledge_partitions(call, key, list_acknowledged(request.topics))
    for target, result in results.items():
        answer = PartitionData(
            partition_index=target.partition,
            error_code=result.code,
            error_message=result.message,
        )
        name_fenced_leader(call, target, result, answer.current_leader, leaders)
        topic = topics.setdefault(
            target.topic_id, ShareAcknowledgeTopicResponse(topic_id=target.topic_id)
        )
        topic.partitions.append(answer)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.close_session(session)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=read_lock_duration_ms(call, key.group_id),
        responses=list(topics.values()),
        node_endpoints=list_endpoints(call, NodeEndpoint, leaders),
    )
