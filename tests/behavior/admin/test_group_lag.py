"""The lag of groups, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient import Admin, Consumer, Producer, TopicPartition
from aiokclient.admin import PartitionLag
from aiokclient.errors import GroupIdNotFoundError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError


async def write(servers: Any, topic: str, counts: list[int]) -> None:
    async with Producer(bootstrap_servers=servers.bootstrap) as producer:
        for partition, count in enumerate(counts):
            for n in range(count):
                await producer.send(topic, b"%d" % n, partition=partition)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_group_lag_names_the_members_that_own_the_partitions(
    cluster_servers: Any, admin: Admin, group: str, protocol: Any
) -> None:
    topic = await cluster_servers.new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await write(cluster_servers, topic, [5, 3])
    async with Consumer(
        topic,
        group_id=group,
        group_protocol=protocol,
        client_id="reader",
        enable_auto_commit=False,
        bootstrap_servers=cluster_servers.bootstrap,
    ) as consumer:
        while set(consumer.assignment()) != {first, second}:
            await consumer.poll(timeout=0.1)
        await consumer.commit({first: 2})
        lags = (await admin.group_lag([group])).raise_for_errors()[group]
        member_id = consumer.group_metadata().member_id
    assert list(lags) == [first, second]
    assert (lags[first].committed, lags[first].end, lags[first].lag) == (2, 5, 3)
    assert (lags[second].committed, lags[second].end, lags[second].lag) == (None, 3, None)
    for lag in lags.values():
        assert (lag.member_id, lag.client_id) == (member_id, "reader")
        assert lag.host
    # The group has no members any more. What it has not committed is none of its partitions.
    lags = (await admin.group_lag([group])).raise_for_errors()[group]
    assert lags == {first: PartitionLag(2, 5, 3, None, None, None)}


async def test_group_lag_of_several_groups_has_an_error_for_a_group_that_does_not_exist(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    topic = await cluster_servers.new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await write(cluster_servers, topic, [1, 2])
    other, missing = f"{group}-other", f"{group}-missing"
    (await admin.alter_consumer_group_offsets(group, {first: 1})).raise_for_errors()
    offsets = {second: 0, first: 9}
    (await admin.alter_consumer_group_offsets(other, offsets, check=False)).raise_for_errors()
    results = await admin.group_lag([other, missing, group, other])
    assert list(results) == [other, missing, group]
    assert isinstance(results[missing], GroupIdNotFoundError)
    assert results.succeeded == {
        # A committed offset after the end, as after a truncation, has no negative lag.
        other: {first: PartitionLag(9, 1, 0), second: PartitionLag(0, 2, 2)},
        group: {first: PartitionLag(1, 1, 0)},
    }
    assert await admin.group_lag([]) == {}


async def test_group_lag_ends_before_an_open_transaction_with_read_committed(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    topic = await cluster_servers.new_topic(1)
    tp = TopicPartition(topic, 0)
    await write(cluster_servers, topic, [2])
    (await admin.alter_consumer_group_offsets(group, {tp: 1})).raise_for_errors()
    async with Producer(
        bootstrap_servers=cluster_servers.bootstrap, transactional_id=group
    ) as producer:
        transaction = await producer.begin_transaction()
        await producer.send(topic, b"open", partition=0)
        await producer.flush()
        lags = (await admin.group_lag([group])).raise_for_errors()[group]
        assert lags == {tp: PartitionLag(1, 3, 2)}
        lags = (
            await admin.group_lag([group], isolation_level="read_committed")
        ).raise_for_errors()[group]
        assert lags == {tp: PartitionLag(1, 2, 1)}
        del transaction
        await producer.abort_transaction()


async def test_group_lag_refuses_an_unknown_isolation_level(admin: Admin) -> None:
    with pytest.raises(ArgumentValueError, match="read_uncommitted, read_committed, not 'dirty'"):
        await admin.group_lag(["g"], isolation_level="dirty")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="must be a str, not 1"):
        await admin.group_lag(["g"], isolation_level=1)  # type: ignore[arg-type]
