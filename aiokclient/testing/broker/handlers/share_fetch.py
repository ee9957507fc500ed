"""ShareFetch 1 and 2: acquire records for a member of a share group, and settle others (KIP-932).

* `share/sessions.py` has the epochs of sessions, and `share/records.py` what is acquired. Nothing
  checks that the member belongs to the group: the leader serves any member id.
* Acknowledgements are applied first. They have a result for each partition, beside its records.
* The response waits until `min_bytes` are there, or `max_wait_ms` has passed. It is woken by new
  records, the end of a lock, and a start offset that moves; not by released records, a session that
  ends, a topic that is deleted, or a leader that moves. If all partitions have errors, it does not
  wait. A partition whose state the coordinator of the group has not created is
  UNKNOWN_SERVER_ERROR after the wait.
* While a test keeps the share coordinator unavailable, acknowledgements wait for it, and so does
  the request. A partition that no fetch has loaded before has no records until then.
* `max_records` counts over all partitions of the request. In version 2, a client chooses whether
  the batch in which it is reached is acquired as a whole (mode 0) or not (mode 1). The records in
  the response are whole batches in any case.
* With `is_renew_ack`, a request only acknowledges. Then `max_wait_ms`, `min_bytes`, `max_bytes`,
  and `max_records` must be 0.
* The last request of a session, with epoch -1, acquires nothing. After its response, the records
  that the member holds in the partitions of the session are available again.
* A response to a client above its quota has no records, although they were acquired.
* If the connection is lost while a request waits, the broker notices it when the wait is over. The
  request still acquires records that come meanwhile. Then they are released, like all others that
  the member holds, with their delivery counts raised.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.protocol.messages import ShareFetchRequest, ShareFetchResponse
from aiokclient.protocol.messages.share_fetch import (
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.acknowledging import (
    AckResult,
    acknowledge_partitions,
    list_acknowledged,
)
from aiokclient.testing.broker.share.fetch import ShareFetch
from aiokclient.testing.broker.share.leader import check_enabled
from aiokclient.testing.broker.share.requests import (
    check_member,
    list_endpoints,
    name_fenced_leader,
    read_lock_duration_ms,
)
from aiokclient.testing.broker.share.sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    SessionKey,
    SharePartitionKey,
    ShareSession,
)

_MODES = (0, 1)


async def handle(call: Call) -> Answer:
    request: ShareFetchRequest = call.request
    call.outlives_connection = True
    try:
        check_enabled(call.cluster)
        key = check_member(call)
        _check_request(call)
        session = _accept_session(call, key)
    except Refused as refused:
        return ShareFetchResponse(error_code=refused.code, error_message=refused.message or None)
    if session is None:
        await _wait(call)
        return ShareFetchResponse(error_code=Code.SHARE_SESSION_LIMIT_REACHED)
    acknowledged = list_acknowledged(request.topics)
    results = await acknowledge_partitions(call, key, acknowledged)
    expected = session.epoch
    fetch = ShareFetch(call, session)
    if request.share_session_epoch != FINAL_EPOCH and not _is_renewal(call):
        await fetch.acquire_records()
    shares = call.broker.shares
    if request.share_session_epoch == FINAL_EPOCH:
        shares.close_session(session)
    elif shares.sessions.find_session(key) is not session or session.epoch != expected:
        # Another request of the session was accepted meanwhile. What was acquired stays locked.
        return ShareFetchResponse(error_code=Code.INVALID_SHARE_SESSION_EPOCH)
    return _make_response(call, key, fetch, results)


async def _wait(call: Call) -> None:
    """Wait for `max_wait_ms`, as Kafka does before it refuses one session too many."""
    loop = call.cluster.loop
    over = loop.create_future()
    timer = loop.call_later(call.request.max_wait_ms / 1000, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()


def _is_renewal(call: Call) -> bool:
    return call.version >= 2 and call.request.is_renew_ack


def _check_request(call: Call) -> None:
    """Raise Refused if the request is not possible, whatever the session."""
    request: ShareFetchRequest = call.request
    amounts = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    has_acknowledgements = any(
        each.acknowledgement_batches for topic in request.topics for each in topic.partitions
    )
    if has_acknowledgements and request.share_session_epoch == FIRST_EPOCH:
        raise Refused(Code.INVALID_REQUEST, "")
    if _is_renewal(call) and any(amounts):
        raise Refused(Code.INVALID_REQUEST, "")
    if call.version >= 2 and request.share_acquire_mode not in _MODES:
        raise Refused(Code.UNKNOWN_SERVER_ERROR, "")


def _accept_session(call: Call, key: SessionKey) -> ShareSession | None:
    """Return the session, with the partitions of the request. Raises Refused.

    Return None if the broker has as many sessions as it may have.
    """
    request: ShareFetchRequest = call.request
    sessions = call.broker.shares.sessions
    if request.share_session_epoch == FIRST_EPOCH:
        limit = call.cluster.configs.read_number("group.share.max.share.sessions")
        session = sessions.open_session(key, call.owner, limit)
    else:
        session = sessions.accept_fetch(key, request.share_session_epoch)
    if session is not None:
        session.update_partitions(
            [
                SharePartitionKey(topic.topic_id, each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            ],
            [
                SharePartitionKey(topic.topic_id, each)
                for topic in request.forgotten_topics_data
                for each in topic.partitions
            ],
        )
    return session


def _make_response(
    call: Call, key: SessionKey, fetch: ShareFetch, results: dict[SharePartitionKey, AckResult]
) -> ShareFetchResponse:
    is_first = call.request.share_session_epoch == FIRST_EPOCH
    answers = {
        target: each
        for target, each in fetch.answers.items()
        if is_first or each.error_code or each.acquired_records
    }
    leaders = dict(fetch.leaders)
    for target, result in results.items():
        answer = answers.setdefault(
            target, PartitionData(partition_index=target.partition, records=b"")
        )
        answer.acknowledge_error_code = result.code
        answer.acknowledge_error_message = result.message
        name_fenced_leader(call, target, result, answer.current_leader, leaders)
    topics: dict[UUID, ShareFetchableTopicResponse] = {}
    for target, answer in answers.items():
        topic = topics.setdefault(
            target.topic_id, ShareFetchableTopicResponse(topic_id=target.topic_id)
        )
        topic.partitions.append(answer)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=read_lock_duration_ms(call, key.group_id),
        responses=list(topics.values()),
        node_endpoints=list_endpoints(call, NodeEndpoint, leaders),
    )
