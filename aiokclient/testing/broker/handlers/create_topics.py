"""CreateTopics 2 to 7: create topics, or check whether they could be created.

* Any broker accepts the request, as in KRaft. If the request assigns replicas to brokers, its
  numbers of partitions and replicas must be -1. Otherwise, replicas are spread over all brokers,
  and -1 stands for `num.partitions` and `default.replication.factor`.
* Each topic has its own result. A topic that is named twice is INVALID_REQUEST. More than 10,000
  partitions in one request are POLICY_VIOLATION for all its topics.
* With a `timeout_ms` of 0 or less, nothing is created. The result of each topic is then
  REQUEST_TIMED_OUT, or INVALID_REQUEST if all topics are named more than once.
* From version 5 on, the response describes the new topics with their configs; from version 7 on,
  also with their ids.
"""

from __future__ import annotations

from aiokclient.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from aiokclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import TOPIC_OPTIONS, BrokerConfigSource, Configs
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.state import MOST_PARTITIONS, ClusterState, Refused

_STRICT_QUOTAS = 6
_QUOTA_EXCEEDED = "The throttling quota has been exceeded."


async def handle(call: Call) -> Answer:
    request: CreateTopicsRequest = call.request
    times = await call.count_parts(topic.name for topic in request.topics)
    if request.timeout_ms <= 0 and 1 in times.values():
        return CreateTopicsResponse(
            topics=[
                _make_result(each.name, call.find_refusal(each.name) or Code.REQUEST_TIMED_OUT)
                async for each in call.iterate_items(request.topics)
            ]
        )
    if await _is_excessive(call):
        text = "Excessively large number of partitions per request."
        return CreateTopicsResponse(
            topics=[
                _make_result(each.name, call.find_refusal(each.name) or Code.POLICY_VIOLATION, text)
                async for each in call.iterate_items(request.topics)
            ]
        )
    named: set[str] = set()
    results = []
    async for topic in call.iterate_items(request.topics):
        if topic.name in named:
            continue
        named.add(topic.name)
        code, message = call.find_refusal(topic.name), None
        if not code and not _can_create(call, topic.name):
            code, message = Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        if not code and times[topic.name] > 1:
            code, message = Code.INVALID_REQUEST, "Duplicate topic name."
        if code:
            results.append(_make_result(topic.name, code, message))
        else:
            results.append(_create_topic(call, topic, request.validate_only))
    return CreateTopicsResponse(topics=results)


def _can_create(call: Call, name: str) -> bool:
    """Return whether the client may create this topic, by a permission on it or on the cluster."""
    return not call.check_cluster_authorization(AclOperation.CREATE) or call.is_allowed(
        AclOperation.CREATE, AclResource.TOPIC, name
    )


async def _is_excessive(call: Call) -> bool:
    """Return whether the request as a whole has more partitions than Kafka allows."""
    default = call.cluster.configs.read_number("num.partitions")
    total = 0
    async for topic in call.iterate_items(call.request.topics):
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == -1 else max(0, topic.num_partitions)
    return total > MOST_PARTITIONS


def _make_result(name: str, code: int = 0, message: str | None = None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _create_topic(call: Call, wanted: CreatableTopic, only_look: bool) -> CreatableTopicResult:
    cluster, result = call.cluster, _make_result(wanted.name)
    try:
        values = _read_configs(wanted)
        assignment = _choose_replicas(cluster, wanted)
        cluster.check_new_topic(wanted.name, assignment, values)
        if code := call.charge_mutations(len(assignment), strict_since=_STRICT_QUOTAS):
            raise Refused(Code(code), _QUOTA_EXCEEDED)
        if only_look:
            cluster.check_new_topic(wanted.name, assignment, values)
            configs = Configs(TOPIC_OPTIONS, BrokerConfigSource.TOPIC, cluster.configs, values)
            result.topic_id = cluster.make_topic_id()
        else:
            topic = cluster.create_topic(wanted.name, assignment, values)
            configs = topic.configs
            result.topic_id = topic.topic_id
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    result.num_partitions = len(assignment)
    result.replication_factor = len(assignment[0])
    result.configs = [
        CreatableTopicConfigs(
            name=name,
            value=configs[name],
            config_source=configs.find_source(name),
        )
        for name in TOPIC_OPTIONS
    ]
    return result


def _read_configs(wanted: CreatableTopic) -> dict[str, str]:
    values = {each.name: each.value for each in wanted.configs}
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) < len(values):
        raise Refused(Code.INVALID_CONFIG, "Each config of a topic needs a value.")
    return given


def _choose_replicas(cluster: ClusterState, wanted: CreatableTopic) -> list[list[int]]:
    if not wanted.assignments:
        return cluster.assign_replicas(wanted.num_partitions, wanted.replication_factor)
    if (wanted.num_partitions, wanted.replication_factor) != (-1, -1):
        raise Refused(
            Code.INVALID_REQUEST,
            "With an assignment, num_partitions and replication_factor must be -1.",
        )
    given = {each.partition_index: list(each.broker_ids) for each in wanted.assignments}
    indexes = range(len(wanted.assignments))
    if sorted(given) != list(indexes) or len({len(each) for each in given.values()}) != 1:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "Partitions must be numbered from 0 and have the same number of replicas.",
        )
    return [given[index] for index in indexes]
