"""The offsets of share groups, on a real Kafka and on the embedded cluster."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokclient import Admin, Producer, TopicPartition
from aiokclient.admin import SharePartitionOffset
from aiokclient.errors import (
    GroupIdNotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentValueError


@pytest.fixture
async def admin(cluster_servers: Any) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        yield admin


@pytest.fixture
async def tp(cluster_servers: Any) -> TopicPartition:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for _ in range(5):
            await producer.send(tp.topic, b"v", partition=0)
    return tp


def new_name() -> str:
    return f"share-{uuid.uuid4().hex[:12]}"


async def test_offsets_of_a_share_group_are_set_listed_and_deleted(
    admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    results = await admin.alter_share_group_offsets(group, {tp: 2})
    assert results.raise_for_errors() == {tp: None}
    for asked in ([group], {group: None}, {group: [tp]}):
        listed = (await admin.list_share_group_offsets(asked)).raise_for_errors()
        assert list(listed) == [group]
        found = listed[group][tp]
        assert isinstance(found, SharePartitionOffset)
        assert (found.start_offset, found.lag) == (2, 3)
    deleted = await admin.delete_share_group_offsets(group, [tp.topic])
    assert deleted.raise_for_errors() == {tp.topic: None}
    again = await admin.delete_share_group_offsets(group, [tp.topic])
    assert isinstance(again[tp.topic], UnknownTopicOrPartitionError)
    (await admin.delete_groups([group])).raise_for_errors()


async def test_offsets_outside_of_a_partition_are_refused_or_sent_as_they_are(
    admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    beyond = TopicPartition(tp.topic, 7)
    with pytest.raises(ArgumentValueError, match="-1 is not an offset"):
        await admin.alter_share_group_offsets(group, {tp: -1})
    results = await admin.alter_share_group_offsets(group, {beyond: 0, tp: 6})
    assert [type(each) for each in results.values()] == [
        UnknownTopicOrPartitionError,
        OffsetOutOfRangeError,
    ]
    assert "Offset 6 is not from 0, the start of the partition, to 5, its end" in str(results[tp])
    assert group not in await admin.list_groups()
    results = await admin.alter_share_group_offsets(group, {beyond: 0, tp: 6}, check=False)
    assert isinstance(results[beyond], UnknownTopicOrPartitionError)
    assert results[tp] is None
    assert (await admin.alter_share_group_offsets(group, {})) == {}


async def test_groups_and_partitions_that_do_not_exist_have_errors(
    admin: Admin, tp: TopicPartition
) -> None:
    group, absent = new_name(), new_name()
    (await admin.alter_share_group_offsets(group, {tp: 0})).raise_for_errors()
    beyond = TopicPartition(tp.topic, 7)
    results = await admin.list_share_group_offsets({absent: None, group: [tp, beyond]})
    assert isinstance(results[absent], GroupIdNotFoundError)
    assert isinstance(results[group], UnknownTopicOrPartitionError)
    deleted = await admin.delete_share_group_offsets(absent, [tp.topic])
    assert isinstance(deleted[tp.topic], GroupIdNotFoundError)
