"""The admin client, which gives the same results on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from typing import Any
from uuid import UUID

import pytest

from aiokclient import Producer
from aiokclient.admin import (
    Admin,
    BrokerDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ReplicaLog,
    Results,
    TopicDescription,
)
from aiokclient.errors import (
    ApiTimeoutError,
    IllegalStateError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from aiokclient.types import TopicPartition


@pytest.fixture
def name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


async def described(admin: Admin, topic: str | UUID, partitions: int) -> TopicDescription:
    """Return the topic's description once the broker knows all its partitions and their leaders."""
    deadline = time.monotonic() + 20
    result: object = None
    while time.monotonic() < deadline:
        result = (await admin.describe_topics([topic]))[topic]
        if isinstance(result, TopicDescription):
            led = [part for part in result.partitions if part.leader is not None]
            if len(led) == partitions:
                return result
    raise AssertionError(f"{topic} is not ready after 20 s. The last description: {result!r}")


async def gone(admin: Admin, topic: str) -> None:
    async with asyncio.timeout(20):
        while topic in await admin.list_topics():
            pass


def only(results: Results[Any, Any], kind: type[KafkaError]) -> KafkaError:
    ((_, error),) = results.errors.items()
    assert type(error) is kind
    return error


async def test_a_topic_can_be_created_described_and_deleted(admin: Admin, name: str) -> None:
    created = (await admin.create_topics([NewTopic(name, 3, 1)])).raise_for_errors()[name]
    assert (created.name, created.partitions, created.replication_factor) == (name, 3, 1)
    topic = await described(admin, name, 3)
    assert topic.topic_id == created.topic_id is not None
    assert not topic.internal
    assert [part.index for part in topic.partitions] == [0, 1, 2]
    assert all(part.leader in part.isr and part.isr == part.replicas for part in topic.partitions)
    assert (await described(admin, topic.topic_id, 3)).name == name
    assert (await admin.list_topics())[name].topic_id == topic.topic_id
    (await admin.delete_topics([name])).raise_for_errors()
    await gone(admin, name)


async def test_one_failed_item_does_not_fail_the_others(admin: Admin, name: str) -> None:
    first, second = f"{name}-1", f"{name}-2"
    (await admin.create_topics([NewTopic(first, 1)])).raise_for_errors()
    await described(admin, first, 1)
    results = await admin.create_topics([NewTopic(first, 1), NewTopic(second, 1)])
    assert list(results) == [first, second]
    assert list(results.succeeded) == [second]
    error = only(results, TopicExistsError)
    assert str(error).startswith(f"TOPIC_ALREADY_EXISTS (36) in CreateTopics for topic {first}: ")
    with pytest.raises(TopicExistsError):
        results.raise_for_errors()


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        (NewTopic("bad name", 1), InvalidTopicError),
        (NewTopic("ok", 0), InvalidPartitionsError),
        (NewTopic("ok", 1, 99), InvalidReplicationFactorError),
        (NewTopic("ok", 1, configs={"no.such.option": 1}), InvalidConfigError),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_create_topics_refuses_invalid_topics(
    admin: Admin, topic: NewTopic, kind: type[KafkaError]
) -> None:
    only(await admin.create_topics([topic]), kind)


async def test_create_topics_with_validate_only_creates_nothing(admin: Admin, name: str) -> None:
    (await admin.create_topics([NewTopic(name, 1)], validate_only=True)).raise_for_errors()
    assert name not in await admin.list_topics()


async def test_create_topics_uses_the_given_replica_assignments(admin: Admin, name: str) -> None:
    broker = (await admin.describe_cluster()).brokers[0].node_id
    placed = {0: [broker], 1: [broker]}
    (await admin.create_topics([NewTopic(name, assignments=placed)])).raise_for_errors()
    topic = await described(admin, name, 2)
    assert [part.replicas for part in topic.partitions] == [(broker,), (broker,)]


async def test_calls_about_missing_topics_return_errors(admin: Admin, name: str) -> None:
    nobody = uuid.uuid4()
    partition = TopicPartition(name, 0)
    only(await admin.describe_topics([name]), UnknownTopicOrPartitionError)
    only(await admin.describe_topics([nobody]), UnknownTopicIdError)
    only(await admin.delete_topics([name]), UnknownTopicOrPartitionError)
    only(await admin.delete_topics([nobody]), UnknownTopicIdError)
    only(await admin.create_partitions({name: 2}), UnknownTopicOrPartitionError)
    only(await admin.delete_records({partition: 1}), UnknownTopicOrPartitionError)
    only(await admin.describe_configs([ConfigResource.topic(name)]), UnknownTopicOrPartitionError)
    only(
        await admin.alter_configs({ConfigResource.topic(name): {"retention.ms": 1}}),
        UnknownTopicOrPartitionError,
    )


async def test_a_topic_is_deleted_by_id(admin: Admin, name: str) -> None:
    created = (await admin.create_topics([NewTopic(name, 1)])).raise_for_errors()[name]
    assert created.topic_id is not None
    assert (await admin.delete_topics([created.topic_id])).ok
    await gone(admin, name)


async def test_create_partitions_raises_the_count_of_a_topic(admin: Admin, name: str) -> None:
    (await admin.create_topics([NewTopic(name, 1)])).raise_for_errors()
    await described(admin, name, 1)
    assert (await admin.create_partitions({name: 4}, validate_only=True)).ok
    (await admin.create_partitions({name: 2})).raise_for_errors()
    await described(admin, name, 2)
    broker = (await admin.describe_cluster()).brokers[0].node_id
    assert (await admin.create_partitions({name: NewPartitions(3, [[broker]])})).ok
    assert (await described(admin, name, 3)).partitions[2].replicas == (broker,)
    only(await admin.create_partitions({name: 3}), InvalidPartitionsError)


async def test_records_are_deleted(admin: Admin, cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    results = await admin.delete_records({first: 0, second: -1, TopicPartition(topic, 7): 0})
    assert results.succeeded == {first: 0, second: 0}
    only(results, UnknownTopicOrPartitionError)
    error = only(await admin.delete_records({first: 5}), OffsetOutOfRangeError)
    assert f"for partition {first}" in str(error)


async def test_log_directories_have_the_sizes_of_replicas(
    admin: Admin, cluster_servers: Any
) -> None:
    topic = await cluster_servers.new_topic(partitions=2)
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        await producer.send_and_wait(topic, os.urandom(50_000), partition=1)
    nodes = [broker.node_id for broker in (await admin.describe_cluster()).brokers]
    found = (await admin.describe_log_dirs(topics=[topic])).raise_for_errors()
    assert sorted(found) == sorted(nodes)
    dirs = [each for described in found.values() for each in described]
    replicas = {tp: log for each in dirs for tp, log in each.replicas.items()}
    assert sorted(replicas) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert replicas[TopicPartition(topic, 0)] == ReplicaLog(0, 0, is_future=False)
    assert 50_000 < replicas[TopicPartition(topic, 1)].size < 51_000
    for each in dirs:
        assert each.error is None
        assert not each.is_cordoned
        assert each.path
        assert each.total_bytes is not None
        assert each.usable_bytes is not None
        assert 0 < each.usable_bytes <= each.total_bytes
    (node,) = (await admin.describe_log_dirs([nodes[0]])).raise_for_errors()
    assert node == nodes[0]


async def test_log_directories_of_unknown_brokers_and_topics_are_errors(
    admin: Admin, cluster_servers: Any
) -> None:
    topic = await cluster_servers.new_topic()
    node = (await admin.describe_cluster()).brokers[0].node_id
    results = await admin.describe_log_dirs([node, 4711], [topic], timeout=3)
    assert list(results.succeeded) == [node]
    only(results, ApiTimeoutError)
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.describe_log_dirs(topics=["nothing"])
    wrong: Any = admin.describe_log_dirs
    for given in ({"brokers": 1}, {"brokers": ["1"]}, {"topics": "t"}, {"topics": [1]}):
        with pytest.raises(TypeError, match="is not"):
            await wrong(**given)


async def test_describe_cluster_returns_brokers_and_controller(
    admin: Admin, cluster_servers: Any
) -> None:
    cluster = await admin.describe_cluster(include_authorized_operations=True)
    assert cluster.cluster_id
    assert cluster.controller_id in [broker.node_id for broker in cluster.brokers]
    addresses = [f"{broker.host}:{broker.port}" for broker in cluster.brokers]
    assert set(cluster_servers.bootstrap.split(",")) <= set(addresses)
    assert all(isinstance(broker, BrokerDescription) for broker in cluster.brokers)
    assert (await admin.describe_cluster()).authorized_operations is None


async def test_configs_of_a_topic_can_be_read_and_changed(admin: Admin, name: str) -> None:
    configs = {"retention.ms": 60_000, "cleanup.policy": "delete"}
    (await admin.create_topics([NewTopic(name, 1, configs=configs)])).raise_for_errors()
    await described(admin, name, 1)
    topic = ConfigResource.topic(name)

    async def value(option: str) -> ConfigEntry:
        return (await admin.describe_configs([topic])).raise_for_errors()[topic][option]

    assert (await value("retention.ms")).value == "60000"
    assert (await value("retention.ms")).source is ConfigSource.TOPIC
    changes = {"retention.ms": None, "max.message.bytes": 2048}
    assert (await admin.alter_configs({topic: changes}, validate_only=True)).ok
    (await admin.alter_configs({topic: changes})).raise_for_errors()
    async with asyncio.timeout(20):
        while (await value("max.message.bytes")).value != "2048":
            pass
    assert (await value("retention.ms")).source is not ConfigSource.TOPIC
    named = await admin.describe_configs({topic: ["retention.ms"]})
    assert list(named.raise_for_errors()[topic]) == ["retention.ms"]
    only(await admin.alter_configs({topic: {"retention.ms": "soon"}}), InvalidConfigError)


async def test_configs_of_several_resources_can_be_changed_in_one_call(
    admin: Admin, name: str
) -> None:
    broker = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
    topic = ConfigResource.topic(name)
    results = await admin.describe_configs([broker, topic])
    assert list(results) == [broker, topic]
    assert results.succeeded[broker]
    only(results, UnknownTopicOrPartitionError)


async def test_a_name_twice_in_one_call_is_refused(admin: Admin, name: str) -> None:
    with pytest.raises(IllegalStateError, match="twice"):
        await admin.create_topics([NewTopic(name), NewTopic(name)])


async def test_a_call_without_items_returns_no_results(admin: Admin) -> None:
    assert dict(await admin.describe_topics([])) == {}
    assert (await admin.create_topics([])).raise_for_errors() == {}


async def test_a_call_with_a_timeout_of_zero_returns_timeout_errors(
    admin: Admin, name: str
) -> None:
    only(await admin.describe_topics([name], timeout=0), ApiTimeoutError)
