"""The offsets of share groups, on a real Kafka and on the embedded cluster."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from share_member import SharingMember

from aiokclient import Admin, Client, Producer, TopicPartition
from aiokclient.admin import (
    ConfigResource,
    OffsetChange,
    OffsetSpec,
    SharePartitionOffset,
)
from aiokclient.errors import (
    ConfigError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InconsistentGroupProtocolError,
    InvalidConfigError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError

T0 = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)


@pytest.fixture
async def admin(cluster_servers: Any) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        yield admin


@pytest.fixture
async def tp(cluster_servers: Any) -> TopicPartition:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for n in range(5):
            time_ms = int(T0.timestamp() * 1000) + n
            await producer.send(tp.topic, b"v", partition=0, timestamp=time_ms)
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


async def start_of(admin: Admin, group: str, tp: TopicPartition) -> int:
    found = (await admin.list_share_group_offsets([group])).raise_for_errors()[group][tp]
    assert found is not None
    return found.start_offset


async def test_offsets_are_set_to_bounds_and_times(admin: Admin, tp: TopicPartition) -> None:
    group = new_name()
    starts: list[tuple[Any, int]] = [
        ("latest", 5),
        ("earliest", 0),
        (T0 + timedelta(milliseconds=3), 3),
        (OffsetSpec.LATEST, 5),
        (T0 - timedelta(days=1), 0),
        (datetime.now(UTC) + timedelta(days=1), 5),
        (4, 4),
    ]
    for start, offset in starts:
        (await admin.alter_share_group_offsets(group, {tp: start})).raise_for_errors()
        assert await start_of(admin, group, tp) == offset
    beyond = TopicPartition(tp.topic, 7)
    results = await admin.alter_share_group_offsets(group, {beyond: "latest", tp: "earliest"})
    assert list(results) == [beyond, tp]
    assert isinstance(results[beyond], UnknownTopicOrPartitionError)
    assert await start_of(admin, group, tp) == 0


async def test_starts_that_are_unclear_are_refused_before_anything_is_sent(
    admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    wrong: list[tuple[Any, type[Exception], str]] = [
        ("first", ArgumentValueError, "'first' is not the start of a share group"),
        (OffsetSpec.MAX_TIMESTAMP, ArgumentValueError, "is not the start of a share group"),
        (True, ArgumentTypeError, "True is not the start of a share group"),
        (-1, ArgumentValueError, "-1 is not an offset"),
        (datetime(2026, 1, 1), ConfigError, "2026-01-01T00:00:00 has no time zone"),
        (datetime(1960, 1, 1, tzinfo=UTC), ConfigError, "before 1970"),
    ]
    for start, kind, text in wrong:
        with pytest.raises(kind, match=text):
            await admin.alter_share_group_offsets(group, {tp: start})
        with pytest.raises(kind, match=text if start is not True else "True"):
            await admin.create_share_group(group, [tp.topic], start)
    with pytest.raises(ArgumentValueError, match="would be the offset in each partition"):
        await admin.create_share_group(group, [tp.topic], 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match="'latest' is not an offset"):
        await admin.create_share_group(group, [tp.topic], {tp: "latest"})  # type: ignore[dict-item]
    with pytest.raises(ArgumentValueError, match="whose topic is not one of topics"):
        await admin.create_share_group(group, [], {tp: 3})
    assert group not in await admin.list_groups()


async def test_a_share_group_is_created_with_the_start_of_each_partition(
    cluster_servers: Any, admin: Admin, tp: TopicPartition
) -> None:
    empty = TopicPartition(await cluster_servers.new_topic(1), 0)
    topics = [tp.topic, empty.topic]
    starts: list[tuple[Any, int]] = [
        ("earliest", 0),
        ("latest", 5),
        (T0 + timedelta(milliseconds=2), 2),
        ({tp: 3, empty: 0}, 3),
    ]
    for start, offset in starts:
        group = new_name()
        expected = {
            tp: OffsetChange(None, offset, created_group=True),
            empty: OffsetChange(None, 0, created_group=True),
        }
        plan = await admin.create_share_group(group, topics, start, dry_run=True)
        assert plan.raise_for_errors() == expected
        assert group not in await admin.list_groups()
        created = await admin.create_share_group(group, topics, start)
        assert created.raise_for_errors() == expected
        listed = (await admin.list_share_group_offsets([group])).raise_for_errors()[group]
        assert listed == {
            tp: SharePartitionOffset(offset, 0, 5 - offset),
            empty: SharePartitionOffset(0, 0, 0),
        }
    assert await admin.create_share_group(new_name(), [], "earliest") == {}


async def test_a_partition_keeps_its_start_if_a_group_is_created_again(
    cluster_servers: Any, admin: Admin, tp: TopicPartition
) -> None:
    group, added = new_name(), TopicPartition(await cluster_servers.new_topic(1), 0)
    (await admin.create_share_group(group, [tp.topic], {tp: 1})).raise_for_errors()
    again = await admin.create_share_group(group, [tp.topic, added.topic], "latest")
    assert again.raise_for_errors() == {tp: OffsetChange(1, 1), added: OffsetChange(None, 0)}
    assert await start_of(admin, group, tp) == 1


async def test_a_group_is_created_for_the_topics_that_exist_and_the_others_have_errors(
    admin: Admin, tp: TopicPartition
) -> None:
    group, absent = new_name(), new_name()
    missing, whole = TopicPartition(tp.topic, 7), TopicPartition(absent, -1)
    results = await admin.create_share_group(group, [absent, tp.topic], "earliest")
    assert isinstance(results[whole], UnknownTopicOrPartitionError)
    assert results[tp] == OffsetChange(None, 0, created_group=True)
    results = await admin.create_share_group(new_name(), [tp.topic], {missing: 0})
    assert isinstance(results[missing], UnknownTopicOrPartitionError)
    assert isinstance(results[tp], NoOffsetError)
    results = await admin.create_share_group(new_name(), [tp.topic], {tp: 9})
    assert isinstance(results[tp], OffsetOutOfRangeError)
    results = await admin.create_share_group(new_name(), [tp.topic], {tp: 9}, check=False)
    assert results[tp] == OffsetChange(None, 9, created_group=True)


async def test_a_member_of_a_created_group_gets_what_was_produced_before_it_joined(
    cluster_servers: Any, admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    (await admin.create_share_group(group, [tp.topic], "latest")).raise_for_errors()
    servers = cluster_servers.bootstrap
    async with Client(bootstrap_servers=servers) as client, Producer(client=client) as producer:
        for _ in range(3):
            await producer.send(tp.topic, b"v", partition=0)
        member = SharingMember(client, group, tp.topic)
        await member.join()
        assert await member.fetch_until_acquired() == [(5, 7, 1)]
        with pytest.raises(GroupNotEmptyError, match="The members, by client id and host"):
            await admin.create_share_group(group, [await cluster_servers.new_topic(1)], "latest")
        again = await admin.create_share_group(group, [tp.topic], "latest")
        assert again.raise_for_errors() == {tp: OffsetChange(5, 5)}
        altered = await admin.alter_share_group_offsets(group, {tp: "earliest"})
        assert isinstance(altered[tp], GroupNotEmptyError)
        described = (await admin.describe_groups([group])).raise_for_errors()[group]
        (found,) = described.members
        assert (described.type, described.state, found.member_id, found.partitions) == (
            "share",
            "Stable",
            member.id,
            (tp,),
        )
        assert found.subscribed == (tp.topic,)
        await member.leave()
    assert (await admin.describe_groups([group])).raise_for_errors()[group].state == "Empty"


async def test_a_group_of_another_type_is_not_created_again(
    admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    (await admin.alter_consumer_group_offsets(group, {tp: 1})).raise_for_errors()
    with pytest.raises(InconsistentGroupProtocolError, match="but a classic group"):
        await admin.create_share_group(group, [tp.topic], "earliest")
    altered = await admin.alter_share_group_offsets(group, {tp: 0})
    assert isinstance(altered[tp], GroupIdNotFoundError)


async def test_configurations_of_share_groups_are_set_and_outlive_the_group(
    admin: Admin, tp: TopicPartition
) -> None:
    group = new_name()
    resource = ConfigResource.group(group)
    values = {"share.auto.offset.reset": "by_duration:PT1H", "share.delivery.count.limit": 7}
    (await admin.alter_configs({resource: values})).raise_for_errors()
    (await admin.create_share_group(group, [tp.topic], "earliest")).raise_for_errors()
    (await admin.delete_groups([group])).raise_for_errors()
    found = (await admin.describe_configs([resource])).raise_for_errors()[resource]
    assert found["share.auto.offset.reset"].value == "by_duration:PT1H"
    assert found["share.delivery.count.limit"].value == "7"
    refused = await admin.alter_configs({resource: {"share.delivery.count.limit": 11}})
    assert isinstance(refused[resource], InvalidConfigError)
