"""Descriptions of topics in pages, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokclient import Admin
from aiokclient.admin import TopicDescription
from aiokclient.errors import InvalidTopicError, UnknownTopicOrPartitionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100, 1 << 40])
async def test_pages_have_the_same_topics_as_one_response(
    cluster_servers: Any, admin: Admin, limit: int
) -> None:
    names = [await cluster_servers.new_topic(count) for count in (3, 1, 4)]
    expected = (await admin.describe_topics(names)).raise_for_errors()
    absent, wrong = f"absent-{uuid.uuid4().hex[:12]}", "a wrong name"
    topics = [wrong, *reversed(names), absent]
    results = await admin.describe_topics(topics, partitions_per_response=limit)
    assert list(results) == topics
    assert isinstance(results[absent], UnknownTopicOrPartitionError)
    assert isinstance(results[wrong], InvalidTopicError)
    for name in names:
        found, one = results[name], expected[name]
        assert isinstance(found, TopicDescription)
        assert (found.name, found.topic_id, found.internal) == (name, one.topic_id, False)
        assert found.authorized_operations is None
        assert [(p.index, p.leader, p.replicas, p.isr) for p in found.partitions] == [
            (p.index, p.leader, p.replicas, p.isr) for p in one.partitions
        ]
        assert {p.eligible_leader_replicas for p in found.partitions} <= {(), None}
        assert {p.eligible_leader_replicas for p in one.partitions} == {None}


async def test_an_empty_name_does_not_keep_other_topics_from_being_described(
    cluster_servers: Any, admin: Admin
) -> None:
    name = await cluster_servers.new_topic(2)
    results = await admin.describe_topics(["", name, "a wrong name"], partitions_per_response=9)
    assert list(results) == ["", name, "a wrong name"]
    assert len(results.succeeded[name].partitions) == 2
    assert {type(each) for each in results.errors.values()} == {InvalidTopicError}


async def test_pages_have_authorized_operations_if_the_call_asks(
    cluster_servers: Any, admin: Admin
) -> None:
    name = await cluster_servers.new_topic(2)
    both = [
        (await admin.describe_topics([name], include_authorized_operations=True, **options))
        for options in ({}, {"partitions_per_response": 1})
    ]
    first, second = (each.raise_for_errors()[name].authorized_operations for each in both)
    assert first == second
    assert first


async def test_topics_by_id_are_described_beside_pages(cluster_servers: Any, admin: Admin) -> None:
    names = [await cluster_servers.new_topic(2) for _ in range(2)]
    listed = await admin.list_topics()
    topic_id = listed[names[0]].topic_id
    assert topic_id is not None
    results = await admin.describe_topics([topic_id, names[1]], partitions_per_response=1)
    assert [each.name for each in results.raise_for_errors().values()] == names


async def test_a_page_has_a_partition(admin: Admin) -> None:
    for limit in (0, -1):
        with pytest.raises(ArgumentValueError, match="must be above 0"):
            await admin.describe_topics(["t"], partitions_per_response=limit)
    wrong: Any = "1"
    with pytest.raises(ArgumentTypeError, match="is not a number of partitions"):
        await admin.describe_topics(["t"], partitions_per_response=wrong)
