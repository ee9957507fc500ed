"""DeleteTopics 1 to 6: delete topics by name, or from version 6 on by id.

A name that does not exist is UNKNOWN_TOPIC_OR_PARTITION. An id that does not exist is
UNKNOWN_TOPIC_ID. A topic that the request contains twice, even once by name and once by id, is
INVALID_REQUEST, and so is an entry that has both a name and an id. Other requests that wait for
partitions of a deleted topic are answered immediately. With a `timeout_ms` of 0 or less, nothing is
deleted. The result of each topic is then REQUEST_TIMED_OUT, or INVALID_REQUEST if all entries are
repeated or have both a name and an id.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from aiokclient.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from aiokclient.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code

_NO_ID = UUID(int=0)
_BOTH = ""
"""The key of an entry that has both a name and an id, which is refused. No topic has this name."""
_Key = str | UUID


_STRICT_QUOTAS = 5


async def handle(call: Call) -> Answer:
    request: DeleteTopicsRequest = call.request
    wanted = request.topics
    if call.version < 6:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    times = await call.count_parts(map(_make_key, wanted))
    late = request.timeout_ms <= 0 and any(n == 1 and key != _BOTH for key, n in times.items())
    seen: set[_Key] = set()
    responses = []
    async for each in call.iterate_items(wanted):
        key = _make_key(each)
        if late:
            responses.append(
                _refuse_topic(each, call.find_refusal(each.name) or Code.REQUEST_TIMED_OUT)
            )
        elif key == _BOTH:
            text = "Both the name and the id are given."
            responses.append(_refuse_topic(each, Code.INVALID_REQUEST, text))
        elif key not in seen:
            seen.add(key)
            answer = _delete_topic(call, each, times)
            if answer is not None:
                responses.append(answer)
    return DeleteTopicsResponse(responses=responses)


def _make_key(wanted: DeleteTopicState) -> _Key:
    if wanted.name is None:
        return wanted.topic_id
    return wanted.name if wanted.topic_id == _NO_ID else _BOTH


def _delete_topic(
    call: Call, wanted: DeleteTopicState, times: Counter[_Key]
) -> DeletableTopicResult | None:
    """Delete a topic, and return the result.

    If the topic is named by its id, and the request also has its name, delete nothing and return
    None. The entry with the name then gets the result.
    """
    cluster, name = call.cluster, wanted.name
    topic = cluster.topics_by_id.get(wanted.topic_id) if name is None else cluster.topics.get(name)
    code = call.find_refusal(name if topic is None else topic.name)
    if code:
        return _refuse_topic(wanted, code)
    if times[_make_key(wanted)] > 1:
        kind = "id" if name is None else "name"
        return _refuse_topic(wanted, Code.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if topic is None:
        code = Code.UNKNOWN_TOPIC_ID if name is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        return _refuse_topic(wanted, code, "This server does not host such a topic.")
    if name is None and topic.name in times:
        return None
    if topic.topic_id in times and name is not None:
        text = "The provided topic name maps to an ID that was already supplied."
        both = DeleteTopicState(name=name, topic_id=topic.topic_id)
        return _refuse_topic(both, Code.INVALID_REQUEST, text)
    if code := call.charge_mutations(len(topic.partitions), strict_since=_STRICT_QUOTAS):
        return _refuse_topic(wanted, code, "The throttling quota has been exceeded.")
    cluster.delete_topic(topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _refuse_topic(
    wanted: DeleteTopicState, code: int, message: str | None = None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=code, error_message=message
    )
