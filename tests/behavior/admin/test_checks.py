"""Mistakes that brokers accept are not sent, on the embedded cluster and on a real Kafka alike."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokclient import Admin, OffsetAndMetadata, Producer, TopicPartition
from aiokclient.admin import ConfigEntry, ConfigResource
from aiokclient.errors import (
    InvalidConfigError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentValueError


async def test_offsets_outside_of_a_partition_are_not_committed(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    topic = await cluster_servers.new_topic(2)
    tp, other, beyond = (TopicPartition(topic, index) for index in (0, 1, 7))
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for _ in range(5):
            await producer.send(topic, b"v", partition=0)
    (await admin.delete_records({tp: 2})).raise_for_errors()
    for offset in (-1, OffsetAndMetadata(-1, "m")):
        with pytest.raises(ArgumentValueError, match="-1 is not an offset"):
            await admin.alter_consumer_group_offsets(group, {tp: offset})
    for offset in (1, 6):
        results = await admin.alter_consumer_group_offsets(group, {tp: offset, beyond: 0, other: 0})
        assert list(results) == [tp, beyond, other]
        assert list(results.succeeded) == [other]
        assert isinstance(results[tp], OffsetOutOfRangeError)
        assert isinstance(results[beyond], UnknownTopicOrPartitionError)
        assert f"Offset {offset} is not from 2" in str(results[tp])
    for offset in (2, 5):
        (await admin.alter_consumer_group_offsets(group, {tp: offset})).raise_for_errors()
    results = await admin.alter_consumer_group_offsets(group, {tp: 6}, check=False)
    assert results.raise_for_errors() == {tp: None}
    committed = (await admin.list_consumer_group_offsets([group])).raise_for_errors()[group]
    assert {each: found.offset for each, found in committed.items()} == {tp: 6, other: 0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cleanup.policy": ""}, "The option cleanup.policy is empty"),
        ({"no.such.option": None}, "There is no option 'no.such.option'"),
    ],
)
async def test_changes_of_a_topic_without_effect_are_refused(
    cluster_servers: Any, admin: Admin, change: Any, why: str
) -> None:
    topic = ConfigResource.topic(await cluster_servers.new_topic(1))
    other = ConfigResource.topic(await cluster_servers.new_topic(1))
    right = {"retention.ms": None, "cleanup.policy": "compact"}
    results = await admin.alter_configs({topic: change, other: right})
    assert list(results) == [topic, other]
    assert results[other] is None
    assert isinstance(results[topic], InvalidConfigError)
    assert why in str(results[topic])


async def test_changes_of_a_topic_without_effect_can_be_sent(
    cluster_servers: Any, admin: Admin
) -> None:
    topic = ConfigResource.topic(await cluster_servers.new_topic(1))
    change = {"cleanup.policy": "", "no.such.option": None}
    (await admin.alter_configs({topic: change}, check=False)).raise_for_errors()


async def test_unknown_options_of_brokers_are_refused(admin: Admin) -> None:
    broker = (await admin.describe_cluster()).brokers[0].node_id
    for resource in (ConfigResource.broker(broker), ConfigResource.broker()):
        for value in ("1", None):
            results = await admin.alter_configs({resource: {"no.such.option": value}})
            assert isinstance(results[resource], InvalidConfigError)
            assert "There is no option 'no.such.option'" in str(results[resource])
        change = {"log.cleaner.threads": None}
        (await admin.alter_configs({resource: change}, validate_only=True)).raise_for_errors()


async def test_rates_that_brokers_describe_only_while_set_are_sent(admin: Admin) -> None:
    resource = ConfigResource.broker((await admin.describe_cluster()).brokers[0].node_id)
    name = "leader.replication.throttled.rate"
    (await admin.alter_configs({resource: {name: 5_000}})).raise_for_errors()
    async with asyncio.timeout(30):  # The broker learns of it a moment later.
        while name not in (described := await describe(admin, resource, name)):
            pass
    assert (described[name].value, described[name].sensitive) == ("5000", False)
    results = await admin.alter_configs({resource: {name: -1}})
    assert isinstance(results[resource], InvalidRequestError)
    (await admin.alter_configs({resource: {name: None}})).raise_for_errors()
    async with asyncio.timeout(30):
        while await describe(admin, resource, name):
            pass


async def describe(admin: Admin, resource: ConfigResource, name: str) -> dict[str, ConfigEntry]:
    return (await admin.describe_configs({resource: [name]})).raise_for_errors()[resource]


async def test_options_of_a_topic_that_does_not_exist_are_the_brokers_business(
    admin: Admin, group: str
) -> None:
    absent = ConfigResource.topic(group)
    results = await admin.alter_configs({absent: {"retention.ms": None}})
    assert isinstance(results[absent], UnknownTopicOrPartitionError)
