"""Metadata 0 to 13: brokers, topics, and leaders.

* A null list of topics (in version 0 an empty one) means all topics.
* Stopped brokers are not listed. A partition without a running replica has leader -1 and
  LEADER_NOT_AVAILABLE. Replicas on stopped brokers are offline.
* From version 10 on, topics have ids, and from version 12 on, requests may use them. An unknown id
  is UNKNOWN_TOPIC_ID. If a request has any id, its topics that have only a name are ignored.
* A topic that is named more than once has one result.
* A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION. It is created if both the cluster
  (`auto.create.topics.enable`, off by default) and the request allow it, but as in Kafka the first
  response is UNKNOWN_TOPIC_OR_PARTITION even then. A name that is not legal is
  INVALID_TOPIC_EXCEPTION.
* A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not,
  and hidden in a list of all topics.
* From version 8 on, authorized operations are included on request.
* A broker whose metadata a test has frozen answers with the frozen state.
* Errors that a test injects apply to each topic, or from version 13 on to the whole response if
  they name no topic.
"""

from __future__ import annotations

from collections.abc import Container
from uuid import UUID

from aiokclient.protocol.messages import MetadataRequest, MetadataResponse
from aiokclient.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.security.request_checks import (
    find_authorized,
    find_authorized_on_cluster,
)
from aiokclient.testing.broker.state import Refused
from aiokclient.testing.broker.topics.topics import NO_LEADER
from aiokclient.testing.broker.topics.views import PartitionView, TopicView
from aiokclient.types import is_topic_name

_NO_ID = UUID(int=0)


async def handle(call: Call) -> Answer:
    cluster, listener = call.cluster.make_view(call.broker.node_id), call.owner.listener
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=broker.rack,
            )
            for broker in cluster.alive.values()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller,
        topics=await _describe_topics(call, call.request),
    )
    if not response.topics:
        response.error_code = call.find_refusal()
    if call.request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code != Code.TOPIC_AUTHORIZATION_FAILED:
                bits = find_authorized(call, AclResource.TOPIC, topic.name or "")
                topic.topic_authorized_operations = bits
    if call.request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = find_authorized_on_cluster(call)
    return response


async def _describe_topics(call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    wanted = request.topics
    # In version 0, which has no null, an empty list means all topics.
    if wanted is None or (call.version == 0 and not wanted):
        known = [
            topic
            for topic in call.cluster.make_view(call.broker.node_id).topics.values()
            if not call.check_authorization(AclResource.TOPIC, topic.name)
        ]
        return [await _describe_topic(call, topic) async for topic in call.iterate_items(known)]
    if any(each.topic_id != _NO_ID for each in wanted):
        ids = dict.fromkeys(each.topic_id for each in wanted if each.topic_id != _NO_ID)
        return [await _describe_by_id(call, each) async for each in call.iterate_items(ids)]
    names = dict.fromkeys(each.name or "" for each in wanted)
    return [await _describe_by_name(call, each) async for each in call.iterate_items(names)]


async def _describe_by_id(call: Call, topic_id: UUID) -> MetadataResponseTopic:
    topic = call.cluster.make_view(call.broker.node_id).topics_by_id.get(topic_id)
    if topic is not None:
        if call.check_authorization(AclResource.TOPIC, topic.name):
            # Unlike a name, an id is not a secret.
            code = Code.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
        return await _describe_topic(call, topic)
    name = None if call.version >= 12 else ""
    return MetadataResponseTopic(
        error_code=call.find_refusal() or Code.UNKNOWN_TOPIC_ID, name=name, topic_id=topic_id
    )


async def _describe_by_name(call: Call, name: str) -> MetadataResponseTopic:
    topic = call.cluster.make_view(call.broker.node_id).topics.get(name)
    if topic is not None and not call.check_authorization(AclResource.TOPIC, name):
        return await _describe_topic(call, topic)
    return MetadataResponseTopic(
        error_code=call.find_refusal(name) or _create_if_allowed(call, name), name=name
    )


def _create_if_allowed(call: Call, name: str) -> Code:
    """Return the error of a topic that does not exist, and create the topic if that is allowed."""
    if not is_topic_name(name):
        return Code.INVALID_TOPIC_EXCEPTION
    # Before version 4, a request cannot say whether topics may be created.
    allowed = call.version < 4 or call.request.allow_auto_topic_creation
    if name in call.cluster.topics:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if not allowed or call.cluster.configs["auto.create.topics.enable"] != "true":
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if call.check_cluster_authorization(AclOperation.CREATE) and not call.is_allowed(
        AclOperation.CREATE, AclResource.TOPIC, name
    ):
        return Code.TOPIC_AUTHORIZATION_FAILED
    try:
        call.cluster.create_topic(name, call.cluster.assign_replicas(-1, -1))
    except Refused as refused:
        return refused.code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


async def _describe_topic(call: Call, topic: TopicView) -> MetadataResponseTopic:
    code, alive = call.find_refusal(topic.name), call.cluster.make_view(call.broker.node_id).alive
    return MetadataResponseTopic(
        error_code=code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[]
        if code
        else [
            _describe_partition(each, alive)
            async for each in call.iterate_items(list(topic.partitions))
        ],
    )


def _describe_partition(
    partition: PartitionView, alive: Container[int]
) -> MetadataResponsePartition:
    missing = partition.leader == NO_LEADER
    return MetadataResponsePartition(
        error_code=Code.LEADER_NOT_AVAILABLE if missing else Code.NONE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[each for each in partition.replicas if each not in alive],
    )
