"""Tests of descriptions of topics in pages with old brokers, and with topics that change."""

from __future__ import annotations

from typing import Any

from aiokclient import Admin
from aiokclient.admin import TopicDescription
from aiokclient.errors import ProtocolError, UnknownTopicOrPartitionError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


async def test_old_brokers_describe_all_partitions_at_once(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.limit_versions({ApiKey.DESCRIBE_TOPIC_PARTITIONS: None})
    results = await admin.describe_topics(["orders", "bills"], partitions_per_response=1)
    for topic in results.raise_for_errors().values():
        assert len(topic.partitions) == 3
        assert {part.eligible_leader_replicas for part in topic.partitions} == {None}


async def test_a_topic_that_is_deleted_between_two_pages_has_an_error(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    def change(request: Any, response: Any) -> Any:
        if request.cursor is not None and request.cursor.topic_name == "bills":
            (topic, *_) = response.topics
            topic.error_code, topic.partitions = UnknownTopicOrPartitionError.code, []
        return response

    with cluster.alter(ApiKey.DESCRIBE_TOPIC_PARTITIONS, change):
        results = await admin.describe_topics(["orders", "bills"], partitions_per_response=2)
    assert isinstance(results["bills"], UnknownTopicOrPartitionError)
    assert isinstance(results["orders"], TopicDescription)


async def test_a_broker_that_repeats_a_page_is_not_asked_for_ever(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    pages: list[Any] = []

    def change(request: Any, response: Any) -> Any:
        pages.append(response.next_cursor)
        response.next_cursor = pages[0]
        return response

    with cluster.alter(ApiKey.DESCRIBE_TOPIC_PARTITIONS, change):
        results = await admin.describe_topics(["orders"], partitions_per_response=1)
    assert isinstance(results["orders"], ProtocolError)
    assert len(pages) == 2


async def test_the_limit_is_that_of_each_request(cluster: EmbeddedCluster, admin: Admin) -> None:
    await admin.describe_topics(["orders", "bills"], partitions_per_response=2)
    asked = [
        each.message for each in cluster.requests if each.api is ApiKey.DESCRIBE_TOPIC_PARTITIONS
    ]
    assert {each.response_partition_limit for each in asked} == {2}
    assert [[topic.name for topic in each.topics] for each in asked] == [["bills", "orders"]] * 3
