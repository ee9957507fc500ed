"""Tests that ACLs have the same results as on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from aiokclient.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from aiokclient.protocol.messages.create_acls import AclCreation
from aiokclient.protocol.messages.create_topics import CreatableTopic
from aiokclient.protocol.messages.delete_acls import DeleteAclsFilter
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.describe_configs import DescribeConfigsResource
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from aiokclient.protocol.messages.metadata import MetadataRequestTopic
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData

pytestmark = pytest.mark.timeout(600)

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def described(name: str, connection: Any, **options: Any) -> list[object]:
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": name,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    answer = connection.request(messages.DescribeAclsRequest(**(values | options)))
    rules = sorted(
        (
            resource.resource_type,
            resource.resource_name.replace(name[:-2], "N"),
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
        if resource.resource_name.startswith(name[:-2])
    )
    return [named(answer.error_code), *rules]


@scenario
def acl_requests(broker: Any) -> list[object]:
    name = broker.name()
    found: list[object] = [
        broker.acl(name),
        broker.acl(name),
        broker.acl(name, permission_type=2, operation=4),
        broker.acl(name[:-2], resource_pattern_type=4),
        broker.acl(""),
        broker.acl("other", resource_type=4),
        broker.acl(name, resource_type=0),
        broker.acl(name, resource_type=1),
        broker.acl(name, resource_pattern_type=1),
        broker.acl(name, resource_pattern_type=2),
        broker.acl(name, operation=1),
        broker.acl(name, operation=0),
        broker.acl(name, permission_type=1),
        broker.acl(name, principal="alice"),
    ]

    found += [
        described(name, broker.admin),
        described(name, broker.admin, pattern_type_filter=2),
        described(name, broker.admin, pattern_type_filter=3),
        described(name, broker.admin, pattern_type_filter=4),
        described(name, broker.admin, operation=4),
        described(name, broker.admin, permission_type=3),
        described(name, broker.admin, principal_filter="User:bob"),
        described(name, broker.admin, host_filter="*"),
        described(name, broker.admin, resource_name_filter=None),
        described(name, broker.admin, resource_type_filter=3),
        described(name, broker.as_user("alice")),
    ]
    wanted = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=2,
        operation=1,
        permission_type=1,
    )
    for connection in (broker.as_user("alice"), broker.admin, broker.admin):
        answer = connection.request(messages.DeleteAclsRequest(filters=[wanted]))
        (result,) = answer.filter_results
        found.append((named(result.error_code), len(result.matching_acls)))
    creation = AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    alice = broker.as_user("alice")
    (result,) = alice.request(messages.CreateAclsRequest(creations=[creation])).results
    return [*found, named(result.error_code)]


def of_topics(broker: Any, request: Any, topic: str, topic_id: uuid.UUID) -> dict[str, object]:
    """Send the requests that read, write, and describe a topic, and return the results."""
    produced = messages.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=0, records=broker.batch(b"x"))],
            )
        ],
    )
    listed = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    by_name = MetadataRequestTopic(name=topic)
    by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
    missing = MetadataRequestTopic(name=topic + "-missing")

    def metadata(*topics: MetadataRequestTopic) -> list[object]:
        answer = request(messages.MetadataRequest(topics=list(topics))).topics
        return [
            (named(each.error_code), each.name == topic, each.topic_id == topic_id)
            for each in answer
        ]

    everything = request(messages.MetadataRequest(topics=None)).topics
    sought = messages.MetadataRequest(topics=[by_name], include_topic_authorized_operations=True)
    (described,) = request(sought, 10).topics
    fetched = request(broker.wire.fetch_request(topic_id)).responses[0].partitions[0]
    offset = request(messages.ListOffsetsRequest(replica_id=-1, topics=[listed])).topics[0]
    return {
        "produce": named(request(produced).responses[0].partition_responses[0].error_code),
        "fetch": named(fetched.error_code),
        "list offsets": named(offset.partitions[0].error_code),
        "metadata": [metadata(by_name), metadata(by_id), metadata(missing)],
        "all topics": topic in [each.name for each in everything],
        "operations": (named(described.error_code), described.topic_authorized_operations),
    }


def of_groups(request: Any, group: str) -> dict[str, object]:
    """Send the requests of a group, whose id is also the name of a topic."""
    commit = OffsetCommitRequestTopic(
        name=group, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    some = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=group, partition_indexes=[0])]
    )
    everything = OffsetFetchRequestGroup(group_id=group, topics=None)
    joined = messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    heartbeat = messages.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    committed = messages.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=[commit]
    )
    fetched = request(messages.OffsetFetchRequest(groups=[some, everything]), 9).groups
    (described,) = request(messages.DescribeGroupsRequest(groups=[group]), 5).groups
    return {
        "join": named(request(joined, 5).error_code),
        "heartbeat": named(request(heartbeat).error_code),
        "leave": named(request(messages.LeaveGroupRequest(group_id=group)).error_code),
        "commit": named(request(committed, 9).topics[0].partitions[0].error_code),
        "offsets": [
            [named(each.error_code)]
            + [named(part.error_code) for one in each.topics for part in one.partitions]
            for each in fetched
        ],
        "described": named(described.error_code),
    }


def of_the_rest(request: Any, topic: str) -> dict[str, object]:
    """Send the requests of coordinators, transactions, configs, and new topics."""

    def coordinator(kind: int) -> str:
        sought = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[topic])
        while True:
            (found,) = request(sought).coordinators
            if found.error_code != 15:
                return named(found.error_code)

    def initialized(name: str | None) -> str:
        sought = messages.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=10_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        while True:
            code = request(sought).error_code
            if code not in (14, 15, 16):
                return named(code)

    added = messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=topic,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=topic),
        DescribeConfigsResource(resource_type=4, resource_name="1"),
    ]
    wanted = CreatableTopic(name=topic + "-new", num_partitions=1, replication_factor=1)
    creation = messages.CreateTopicsRequest(timeout_ms=9_000, topics=[wanted])
    unwanted = DeleteTopicState(name=topic + "-new")
    deletion = messages.DeleteTopicsRequest(timeout_ms=9_000, topics=[unwanted])
    configs = request(messages.DescribeConfigsRequest(resources=resources)).results
    return {
        "coordinators": [coordinator(0), coordinator(1)],
        "init": [initialized(None), initialized(topic)],
        "add": [
            named(part.partition_error_code)
            for one in request(added, 3).results_by_topic_v3_and_below
            for part in one.results_by_partition
        ],
        "configs": [named(each.error_code) for each in configs],
        "create": [
            (named(each.error_code), each.error_message if each.error_code else None)
            for each in request(creation).topics
        ],
        "delete": [named(each.error_code) for each in request(deletion).responses],
    }


def asked_by(broker: Any, connection: Any, topic: str, topic_id: uuid.UUID) -> dict[str, object]:
    """Send one request of each kind, and return the results."""
    request = connection.request
    return {
        **of_the_rest(request, topic),
        **of_topics(broker, request, topic, topic_id),
        **of_groups(request, topic),
    }


def with_rules(broker: Any, user: str, *rules: dict[str, Any]) -> dict[str, object]:
    topic, topic_id = broker.topic()
    for rule in rules:
        values = {"principal": f"User:{user}"} | rule
        assert broker.acl(values.pop("name", topic), **values) == ("ok", "")
    return asked_by(broker, broker.as_user(user), topic, topic_id)


TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, DESCRIBE = 2, 3, 4, 5, 6, 8
DENY = 2


@scenario
def a_client_without_any_rule(broker: Any) -> dict[str, object]:
    return with_rules(broker, "unruled")


@scenario
def a_client_that_may_read(broker: Any) -> dict[str, object]:
    return with_rules(
        broker,
        "reader",
        {"resource_type": TOPIC, "operation": READ},
        {"resource_type": GROUP, "operation": READ},
    )


@scenario
def a_client_that_may_write(broker: Any) -> dict[str, object]:
    return with_rules(
        broker,
        "writer",
        {"resource_type": TOPIC, "operation": WRITE},
        {"resource_type": TRANSACTION, "operation": WRITE},
    )


@scenario
def a_client_that_may_describe(broker: Any) -> dict[str, object]:
    return with_rules(
        broker,
        "describer",
        {"resource_type": TOPIC, "operation": DESCRIBE},
        {"resource_type": GROUP, "operation": DESCRIBE},
        {"resource_type": TRANSACTION, "operation": DESCRIBE},
    )


@scenario
def a_client_that_may_do_everything_but_read(broker: Any) -> dict[str, object]:
    return with_rules(
        broker,
        "limited",
        {"resource_type": TOPIC, "operation": ALL},
        {"resource_type": TOPIC, "operation": READ, "permission_type": DENY},
    )


@scenario
def a_client_that_may_create_and_delete_by_prefix(broker: Any) -> dict[str, object]:
    topic, topic_id = broker.topic()
    for operation in (CREATE, DELETE):
        rule = {"principal": "User:prefixed", "operation": operation}
        broker.acl(topic, resource_pattern_type=4, **rule)
    return asked_by(broker, broker.as_user("prefixed"), topic, topic_id)


@scenario
def a_super_user(broker: Any) -> dict[str, object]:
    topic, topic_id = broker.topic()
    broker.acl(topic, operation=ALL, permission_type=DENY, principal="User:*")
    return asked_by(broker, broker.as_user("admin"), topic, topic_id)


@scenario
def a_reassignment_without_permission(broker: Any) -> list[object]:
    """Return the error of the request, and those of partitions, which Java's client reads."""
    topic, _ = broker.topic()
    moved = ReassignableTopic(
        name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
    )
    request = messages.AlterPartitionReassignmentsRequest(topics=[moved])
    answer = broker.as_user("alice").request(request)
    parts = [part for each in answer.responses for part in each.partitions]
    return [named(answer.error_code), *[(p.partition_index, named(p.error_code)) for p in parts]]


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_of_acls_are_those_of_kafka(name: str, same_as_kafka: Any) -> None:
    same_as_kafka(SCENARIOS[name])
