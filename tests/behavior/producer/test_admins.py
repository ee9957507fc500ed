"""Results of Admin calls: mappings from names to results. They raise errors only on request."""

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import pytest

from aiokclient import Admin, ConfigResource, NewTopic, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterAuthorizationError,
    InvalidPartitionsError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


async def test_each_topic_has_its_own_result(admin: Admin, topic: str) -> None:
    results = await admin.create_topics([NewTopic("made", 2), NewTopic(topic, 1)])
    assert isinstance(results, Mapping)
    assert list(results) == ["made", topic]
    assert not isinstance(results["made"], KafkaError)
    assert isinstance(results[topic], TopicExistsError)
    with pytest.raises(TopicExistsError) as caught:
        results.raise_for_errors()
    assert topic in str(caught.value)
    described = await admin.describe_topics(["made", "nowhere"])
    assert len(described.succeeded["made"].partitions) == 2
    assert isinstance(described["nowhere"], UnknownTopicOrPartitionError)
    deleted = await admin.delete_topics(["made", "nowhere"])
    assert isinstance(deleted["nowhere"], UnknownTopicOrPartitionError)
    assert not isinstance(deleted["made"], KafkaError)
    assert "made" not in await admin.list_topics()


async def test_partitions_records_and_configs_have_results(
    admin: Admin, topic: str, cluster: EmbeddedCluster
) -> None:
    grown = await admin.create_partitions({topic: 3, "nowhere": 2})
    assert list(grown) == [topic, "nowhere"]
    assert cluster.topics[topic] == 3
    assert isinstance(grown["nowhere"], UnknownTopicOrPartitionError)
    again = await admin.create_partitions({topic: 3})
    assert isinstance(again[topic], InvalidPartitionsError)
    cluster.produce(topic, [b"v"] * 5, 0)
    there, beyond = TopicPartition(topic, 0), TopicPartition(topic, 1)
    deleted = await admin.delete_records({there: 3, beyond: 7})
    assert deleted[there] == 3
    assert isinstance(deleted[beyond], OffsetOutOfRangeError)
    assert cluster.offsets(topic, 0) == (3, 5)
    resource = ConfigResource.topic(topic)
    altered = await admin.alter_configs({resource: {"retention.ms": 1234}})
    altered.raise_for_errors()
    configs = (await admin.describe_configs([resource])).raise_for_errors()
    assert configs[resource]["retention.ms"].value == "1234"


async def test_describe_cluster_returns_the_brokers(admin: Admin) -> None:
    cluster = await admin.describe_cluster()
    assert [broker.node_id for broker in cluster.brokers] == [1]


CALLS = [
    lambda admin, **o: admin.create_topics([NewTopic("t-inf")], **o),
    lambda admin, **o: admin.describe_topics(["t-inf"], **o),
    lambda admin, **o: admin.create_partitions({"t-inf": 2}, **o),
    lambda admin, **o: admin.delete_records({TopicPartition("t-inf", 0): -1}, **o),
    lambda admin, **o: admin.describe_configs([ConfigResource.topic("t-inf")], **o),
    lambda admin, **o: admin.alter_configs({ConfigResource.topic("t-inf"): {}}, **o),
    lambda admin, **o: admin.list_topics(**o),
    lambda admin, **o: admin.describe_cluster(**o),
    lambda admin, **o: admin.delete_topics(["t-inf"], **o),
]


async def test_an_infinite_timeout_is_allowed(admin: Admin) -> None:
    for call in CALLS:
        results = await call(admin, timeout=math.inf)
        if hasattr(results, "raise_for_errors"):
            results.raise_for_errors()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_without_a_response_raises_after_its_timeout(
    admin: Admin, cluster: EmbeddedCluster, call: Any
) -> None:
    cluster.pause(1)
    try:
        results = await call(admin, timeout=0.02)
    except ApiTimeoutError:
        return
    assert {type(error) for error in results.errors.values()} <= {ApiTimeoutError}
    assert not results.ok
    with pytest.raises(TimeoutError):
        results.raise_for_errors()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_can_be_cancelled(admin: Admin, cluster: EmbeddedCluster, call: Any) -> None:
    cluster.pause(1)
    with anyio.move_on_after(0.01) as scope:
        await call(admin)
    assert scope.cancelled_caught
    cluster.resume(1)
    assert (await admin.describe_cluster()).brokers


async def test_a_refusal_of_the_whole_request_raises(
    admin: Admin, cluster: EmbeddedCluster
) -> None:
    cluster.fail(ApiKey.CREATE_TOPICS, ClusterAuthorizationError)
    results = await admin.create_topics([NewTopic("a"), NewTopic("b")])
    assert {type(error) for error in results.errors.values()} == {ClusterAuthorizationError}
    assert list(results.errors) == ["a", "b"]
