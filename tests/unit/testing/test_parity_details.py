"""Tests that the embedded cluster and a real Kafka return the same messages and flags.

Clients distinguish a null message from an empty one, and print the messages.
"""

import time
import uuid

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    describe_topic_partitions,
)
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.protocol.messages import incremental_alter_configs as incremental
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.metadata import MetadataRequestTopic

TOPIC, BROKER = 2, 4
SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def told(answer):
    """Return the error's name, and whether its message is null, empty, or a text."""
    name = named(answer.error_code)
    return name, answer.error_message and "text"


def fresh():
    return f"details-{uuid.uuid4().hex[:8]}"


@scenario
def topics_created(broker):
    def create(*topics, version, **options):
        request = messages.CreateTopicsRequest(topics=list(topics), **options)
        return [
            (*told(each), each.topic_id.int != 0)
            for each in broker.request(request, version).topics
        ]

    def topic(name, replication=1):
        return create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=replication
        )

    seen = []
    for version in range(2, 8):
        name = fresh()
        seen.append(create(topic(name), version=version, validate_only=True))
        seen.append(create(topic(name), version=version))
        seen.append(create(topic(name), version=version))
        seen.append(create(topic(fresh(), replication=9), version=version))
        twice = topic(fresh())
        seen.append(create(twice, twice, version=version))
    return seen


@scenario
def topics_deleted(broker):
    seen = []
    for version in (4, 5):
        request = messages.DeleteTopicsRequest(topic_names=[broker.topic()[0]], timeout_ms=60_000)
        for _ in range(2):
            seen += [told(each) for each in broker.request(request, version).responses]
    for state in (
        DeleteTopicState(name=None, topic_id=uuid.uuid4()),
        DeleteTopicState(name="nothing"),
    ):
        request = messages.DeleteTopicsRequest(topics=[state], timeout_ms=60_000)
        seen += [told(each) for each in broker.request(request).responses]
    return seen


@scenario
def partitions_added(broker):
    name, _ = broker.topic()

    def add(*topics):
        wanted = [
            create_partitions.CreatePartitionsTopic(name=each, count=count, assignments=None)
            for each, count in topics
        ]
        request = messages.CreatePartitionsRequest(topics=wanted, timeout_ms=60_000)
        return [told(each) for each in broker.request(request).results]

    return [add((name, 2)), add((name, 2)), add(("nothing", 2)), add((name, 3), (name, 4))]


@scenario
def coordinators_found(broker):
    def find(version, kind, key):
        request = messages.FindCoordinatorRequest(key_type=kind)
        if version < 4:
            request.key = key
            return broker.request(request, version)
        request.coordinator_keys = [key]
        return broker.request(request, version).coordinators[0]

    deadline = time.monotonic() + 20
    while any(find(6, kind, "a").error_code for kind in (0, 1)):
        assert time.monotonic() < deadline
    return [
        (version, kind, key, *told(found), found.node_id)
        for version in range(1, 7)
        for kind in (0, 1, 2, 3)
        for key in ("a", "")
        for found in [find(version, kind, key)]
    ]


@scenario
def clusters_described(broker):
    seen = []
    for version in range(3):
        for kind in (1, 2, 3) if version else (1,):
            request = messages.DescribeClusterRequest(
                endpoint_type=kind, include_cluster_authorized_operations=True
            )
            response = broker.request(request, version)
            seen.append((*told(response), response.endpoint_type))
            seen.append(response.cluster_authorized_operations)
    return seen


@scenario
def operations_on_topics(broker):
    name, _ = broker.topic()
    seen = []
    for version in range(8, 14):
        for wanted in (True, False):
            request = messages.MetadataRequest(
                topics=[MetadataRequestTopic(name=each) for each in (name, "nothing", "a b")],
                include_topic_authorized_operations=wanted,
                include_cluster_authorized_operations=wanted and version < 11,
                allow_auto_topic_creation=False,
            )
            response = broker.request(request, version)
            seen.append({each.topic_authorized_operations for each in response.topics})
            seen.append(response.cluster_authorized_operations)
    return seen


@scenario
def operations_in_descriptions_of_topics(broker):
    wanted = [describe_topic_partitions.TopicRequest(name=each) for each in ("nothing", "a b")]
    wanted.append(describe_topic_partitions.TopicRequest(name=broker.topic()[0]))
    response = broker.request(messages.DescribeTopicPartitionsRequest(topics=wanted))
    return {each.topic_authorized_operations for each in response.topics}


@scenario
def offsets_of_no_partition(broker):
    name, _ = broker.topic()
    return [
        broker.list_offset(name, timestamp, partition=7, version=version)
        for version in (1, 7, 11)
        for timestamp in (-7, -4, -3, -1, 0)
    ]


@scenario
def configs_described(broker):
    name, _ = broker.topic(retention_ms=4000)

    def describe(kind, resource, keys):
        wanted = describing.DescribeConfigsResource(
            resource_type=kind, resource_name=resource, configuration_keys=keys
        )
        request = messages.DescribeConfigsRequest(resources=[wanted])
        (result,) = broker.request(request).results
        code = named(result.error_code)
        return code, result.configs

    def flags(kind, resource, *keys):
        code, found = describe(kind, resource, list(keys))
        return code, sorted((each.name, each.read_only, each.is_sensitive) for each in found)

    seen = [(code, bool(found)) for code, found in (describe(TOPIC, name, []),)]
    seen += [flags(TOPIC, each, "retention.ms") for each in (name, "nothing", "a b", "")]
    seen.append(flags(BROKER, "1", "num.partitions", "message.max.bytes", "group.max.size"))
    seen.append(flags(BROKER, "", "message.max.bytes", "num.partitions"))
    return seen


@scenario
def configs_refused(broker):
    name, _ = broker.topic(retention_ms=4000)

    def change(kind, resource, key, value, operation=0):
        config = incremental.AlterableConfig(name=key, value=value, config_operation=operation)
        wanted = incremental.AlterConfigsResource(
            resource_type=kind, resource_name=resource, configs=[config]
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[wanted])
        return told(broker.request(request).responses[0])

    def replace(key, value):
        wanted = alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[alter_configs.AlterableConfig(name=key, value=value)],
        )
        return told(broker.request(messages.AlterConfigsRequest(resources=[wanted])).responses[0])

    return [
        change(TOPIC, name, "retention.ms", None),
        change(TOPIC, name, "retention.ms", None, operation=1),
        change(TOPIC, name, "retention.ms", "x"),
        change(TOPIC, name, "retention.ms", "1", operation=2),
        change(BROKER, "1", "num.partitions", "3"),
        change(BROKER, "", "num.partitions", "3"),
        change(TOPIC, "nothing", "retention.ms", "3"),
        change(TOPIC, "a b", "retention.ms", "3"),
        change(TOPIC, "", "retention.ms", "3"),
        replace("retention.ms", None),
        replace("retention.ms", "x"),
        replace("retention.ms", "7"),
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_messages_and_flags_are_those_of_kafka(name, parity):
    parity(SCENARIOS[name])
