"""DeleteTopics 1 to 6: topics by name, or from version 6 on by id.

A name that is not there is UNKNOWN_TOPIC_OR_PARTITION, an id UNKNOWN_TOPIC_ID. Whoever waits
for a deleted topic's partitions is answered at once.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from aiokclient.protocol.messages.delete_topics import DeletableTopicResult
from aiokclient.testing.call import Answer, Call
from aiokclient.testing.codes import Code

_NO_ID = UUID(int=0)


async def handle(call: Call) -> Answer:
    request: DeleteTopicsRequest = call.request
    if call.version < 6:
        return DeleteTopicsResponse(
            responses=[_delete(call, name, _NO_ID) async for name in call.each(request.topic_names)]
        )
    return DeleteTopicsResponse(
        responses=[
            _delete(call, each.name, each.topic_id) async for each in call.each(request.topics)
        ]
    )


def _delete(call: Call, name: str | None, topic_id: UUID) -> DeletableTopicResult:
    cluster = call.cluster
    if name is not None and topic_id != _NO_ID:
        return _refused(name, topic_id, Code.INVALID_REQUEST, "Both the name and the id are given.")
    topic = cluster.topics_by_id.get(topic_id) if name is None else cluster.topics.get(name)
    code = call.refused(name if topic is None else topic.name)
    if code:
        return _refused(name, topic_id, code)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_ID if name is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(name, topic_id, code, "This server does not host such a topic.")
    cluster.delete_topic(topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _refused(
    name: str | None, topic_id: UUID, code: int, message: str | None = None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
