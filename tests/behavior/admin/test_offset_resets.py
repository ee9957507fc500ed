"""Resets of the offsets of groups, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aiokclient import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokclient.admin import OffsetChange, OffsetSpec, Shift
from aiokclient.errors import (
    ConfigError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    NoOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError, TopicValueError

T0 = 1_700_000_000_000
MOMENT = datetime.fromtimestamp(T0 / 1000, UTC)


@pytest.fixture
async def tps(cluster_servers: Any, admin: Admin) -> list[TopicPartition]:
    """Partitions with the offsets 2 to 4, and 0 to 2, and one without records."""
    # The records are older than the default retention.
    topic = await cluster_servers.new_topic(3, configs={"retention.ms": -1})
    tps = [TopicPartition(topic, index) for index in range(3)]
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for n in range(5):
            await producer.send(topic, b"v", partition=0, timestamp=T0 + 10 * n)
        for n in range(3):
            await producer.send(topic, b"v", partition=1, timestamp=T0 - 10 * n)
    (await admin.delete_records({tps[0]: 2})).raise_for_errors()
    return tps


async def commit(admin: Admin, group: str, offsets: Any) -> None:
    (await admin.alter_consumer_group_offsets(group, offsets, check=False)).raise_for_errors()


async def committed(admin: Admin, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return (await admin.list_consumer_group_offsets([group])).raise_for_errors()[group]


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (OffsetSpec.EARLIEST, [2, 0, 0]),
        ("earliest", [2, 0, 0]),
        (OffsetSpec.LATEST, [5, 3, 0]),
        ("latest", [5, 3, 0]),
        (OffsetSpec.MAX_TIMESTAMP, [4, 0, 0]),
        ("earliest_local", [2, 0, 0]),
        (3, [3, 3, 0]),
        (MOMENT, [2, 0, 0]),
        (MOMENT.astimezone(timezone(timedelta(hours=9))), [2, 0, 0]),
        (MOMENT + timedelta(milliseconds=35), [4, 3, 0]),
        (MOMENT + timedelta(milliseconds=41), [5, 3, 0]),
        (datetime.max.replace(tzinfo=UTC), [5, 3, 0]),
        (timedelta(), [5, 3, 0]),
        (timedelta.max, [2, 0, 0]),
        (Shift(1), [5, 2, 0]),
        (Shift(-1), [3, 0, 0]),
        (Shift(0), [4, 1, 0]),
        (Shift(-9), [2, 0, 0]),
        (Shift(9), [5, 3, 0]),
        ("current", [4, 1, 0]),
    ],
    ids=str,
)
async def test_each_target_gives_each_partition_an_offset_in_its_log(
    admin: Admin, tps: list[TopicPartition], group: str, to: Any, after: list[int]
) -> None:
    before = dict(zip(tps, [4, 1, 0], strict=True))
    await commit(admin, group, before)
    plan = (await admin.reset_offsets(group, to, dry_run=True)).raise_for_errors()
    assert list(plan) == tps
    assert {tp: change.before for tp, change in plan.items()} == before
    assert [change.after for change in plan.values()] == after
    assert {tp: each.offset for tp, each in (await committed(admin, group)).items()} == before
    changes = (await admin.reset_offsets(group, to)).raise_for_errors()
    assert changes == plan
    found = await committed(admin, group)
    assert [found[tp].offset for tp in tps] == after


async def test_a_time_before_now_is_that_of_the_clock_of_the_machine(
    cluster_servers: Any, admin: Admin, group: str
) -> None:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    now = time.time_ns() // 1_000_000
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for hours in (5, 3, 1):
            await producer.send(tp.topic, b"v", partition=0, timestamp=now - hours * 3_600_000)
    for hours, offset in (6, 0), (4, 1), (2, 2), (0, 3):
        changes = await admin.reset_offsets(
            group, timedelta(hours=hours), topics=[tp], dry_run=True
        )
        assert changes.raise_for_errors()[tp].after == offset


async def test_an_offset_outside_of_the_log_is_moved_to_its_nearest_end_unless_unchecked(
    admin: Admin, tps: list[TopicPartition], group: str
) -> None:
    first, second, _ = tps
    wanted: Any = {first: 1, second: OffsetAndMetadata(7, "note", 0)}
    changes = (await admin.reset_offsets(group, wanted)).raise_for_errors()
    assert changes == {
        first: OffsetChange(None, 2, requested=1, created_group=True),
        # The leader epoch was that of offset 7.
        second: OffsetChange(None, 3, "note", None, requested=7, created_group=True),
    }
    assert (await committed(admin, group))[second] == OffsetAndMetadata(3, "note")
    changes = (await admin.reset_offsets(group, wanted, check=False)).raise_for_errors()
    assert changes == {first: OffsetChange(2, 1), second: OffsetChange(3, 7, "note", 0)}
    assert (await committed(admin, group))[second] == OffsetAndMetadata(7, "note", 0)
    # What is committed is no request, wherever it is.
    changes = (await admin.reset_offsets(group, "current")).raise_for_errors()
    assert changes == {first: OffsetChange(1, 1), second: OffsetChange(7, 7, "note", 0)}
    (await admin.reset_offsets(group, 100, topics=[first], check=False)).raise_for_errors()
    assert (await committed(admin, group))[first].offset == 100
    changes = (await admin.reset_offsets(group, Shift(-1), topics=[first])).raise_for_errors()
    assert changes == {first: OffsetChange(100, 5, requested=99)}


async def test_what_was_exported_can_be_restored(
    admin: Admin, tps: list[TopicPartition], group: str
) -> None:
    before = {tps[0]: OffsetAndMetadata(3, "a", 0), tps[1]: OffsetAndMetadata(2)}
    await commit(admin, group, before)
    exported = (await admin.reset_offsets(group, "current", dry_run=True)).raise_for_errors()
    (await admin.reset_offsets(group, "latest")).raise_for_errors()
    restored = {
        tp: OffsetAndMetadata(each.after, each.metadata, each.leader_epoch)
        for tp, each in exported.items()
    }
    changes = (await admin.reset_offsets(group, restored)).raise_for_errors()
    assert [(each.before, each.after) for each in changes.values()] == [(5, 3), (3, 2)]
    assert await committed(admin, group) == before


async def test_a_group_that_does_not_exist_is_created_only_if_partitions_are_named(
    admin: Admin, tps: list[TopicPartition], group: str
) -> None:
    with pytest.raises(GroupIdNotFoundError, match="pass topics, to create the group"):
        await admin.reset_offsets(group, "earliest")
    topics = [tps[0].topic]
    plan = (await admin.reset_offsets(group, "latest", topics=topics, dry_run=True)).succeeded
    assert [each.created_group for each in plan.values()] == [True, True, True]
    assert group not in await admin.list_groups()
    changes = (await admin.reset_offsets(group, "latest", topics=topics)).raise_for_errors()
    assert changes == plan
    changes = (await admin.reset_offsets(group, "earliest")).raise_for_errors()
    assert [each.created_group for each in changes.values()] == [False, False, False]
    assert list(changes) == tps


async def test_partitions_that_cannot_be_reset_have_errors_beside_the_others(
    admin: Admin, tps: list[TopicPartition], group: str
) -> None:
    first, second, third = tps
    beyond, absent = TopicPartition(first.topic, 9), f"absent-{group}"
    named = [beyond, absent, third, first.topic]
    results = await admin.reset_offsets(group, "latest", topics=named)
    assert list(results) == [beyond, TopicPartition(absent, -1), third, first, second]
    assert list(results.succeeded) == [third, first, second]
    assert {type(each) for each in results.errors.values()} == {UnknownTopicOrPartitionError}
    assert absent in str(results[TopicPartition(absent, -1)])
    assert sorted(await committed(admin, group)) == tps
    (await admin.delete_consumer_group_offsets(group, [second])).raise_for_errors()
    results = await admin.reset_offsets(group, Shift(-1), topics=tps)
    assert list(results) == tps
    assert isinstance(results[second], NoOffsetError)
    assert f"{group} has no committed offset here" in str(results[second])
    assert results[first] == OffsetChange(5, 4)
    # The current position of a partition without a committed offset is the end.
    results = await admin.reset_offsets(group, "current", topics=tps)
    assert [each.after for each in results.raise_for_errors().values()] == [4, 3, 0]


@pytest.mark.parametrize("to", ["latest_tiered", OffsetSpec.EARLIEST_PENDING_UPLOAD])
async def test_the_end_does_not_stand_for_an_offset_in_remote_storage(
    admin: Admin, tps: list[TopicPartition], group: str, to: Any
) -> None:
    results = await admin.reset_offsets(group, to, topics=tps[:1])
    assert isinstance(results[tps[0]], OffsetOutOfRangeError)
    assert "has no offset OffsetSpec." in str(results[tps[0]])
    assert group not in await admin.list_groups()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_with_members_is_refused_and_its_members_are_named(
    cluster_servers: Any, admin: Admin, tps: list[TopicPartition], group: str, protocol: Any
) -> None:
    before = {tps[0]: OffsetAndMetadata(3)}
    await commit(admin, group, before)
    async with Consumer(
        tps[0].topic,
        group_id=group,
        group_protocol=protocol,
        client_id="reader-7",
        enable_auto_commit=False,
        bootstrap_servers=cluster_servers.bootstrap,
    ) as consumer:
        while set(consumer.assignment()) != set(tps):
            await consumer.poll(timeout=0.1)
        described = (await admin.describe_groups([group])).raise_for_errors()[group]
        for dry_run in (True, False):
            with pytest.raises(GroupNotEmptyError) as raised:
                await admin.reset_offsets(group, "earliest", dry_run=dry_run)
            text = str(raised.value)
            assert f"reader-7 on {described.members[0].host}" in text
            assert f"group {group}" in text
            # Only members of a classic group can rewind it.
            assert ("Consumer.rewind_group()" in text) == (protocol == "classic")
        with pytest.raises(GroupNotEmptyError, match="reader-7 on "):
            await admin.copy_offsets("any", group)
        assert await committed(admin, group) == before
    changes = (await admin.reset_offsets(group, "earliest")).raise_for_errors()
    assert changes == {tps[0]: OffsetChange(3, 2)}


async def test_a_consumer_continues_where_its_group_was_reset(
    cluster_servers: Any, admin: Admin, tps: list[TopicPartition], group: str
) -> None:
    target = MOMENT + timedelta(milliseconds=30)
    (await admin.reset_offsets(group, target, topics=tps)).raise_for_errors()
    async with Consumer(
        tps[0].topic, group_id=group, bootstrap_servers=cluster_servers.bootstrap
    ) as consumer:
        records: list[Any] = []
        while len(records) < 2:
            records += await consumer.poll(timeout=1.0)
    assert [(each.partition, each.offset) for each in records] == [(0, 3), (0, 4)]


@pytest.mark.parametrize(
    ("to", "error", "why"),
    [
        (datetime(2026, 1, 1), ConfigError, "2026-01-01T00:00:00 has no time zone"),
        (datetime(1969, 12, 31, tzinfo=UTC), ConfigError, "is before 1970"),
        (timedelta(seconds=-1), ConfigError, "is in the future"),
        (-1, ArgumentValueError, "-1 is not an offset"),
        ({("t", 0): -1}, ArgumentValueError, "-1 is not an offset"),
        ({("t", 0): OffsetAndMetadata(-1)}, ArgumentValueError, "-1 is not an offset"),
        ("end", ArgumentValueError, "'end' is not a target of a reset. Pass one of 'latest'"),
        (True, ArgumentTypeError, "True is not a target of a reset"),
        (1.5, ArgumentTypeError, "is not a target of a reset"),
        (None, ArgumentTypeError, "None is not a target of a reset"),
        (Shift("1"), ArgumentTypeError, "'1' is not a number of offsets"),  # type: ignore[arg-type]
        ({"t": 0}, ArgumentTypeError, "'t' is not a partition"),
        ({("t", 0): "0"}, ArgumentTypeError, "'0' is not an offset"),
        ({("t\udcff", 0): 0}, TopicValueError, "cannot be the name of a topic"),
    ],
    ids=str,
)
async def test_a_target_that_is_none_is_refused(
    admin: Admin, to: Any, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        await admin.reset_offsets("g", to, dry_run=True)


async def test_partitions_are_named_once_and_as_a_collection(admin: Admin) -> None:
    tp = TopicPartition("t", 0)
    with pytest.raises(ArgumentValueError, match="Both a mapping of offsets and topics"):
        await admin.reset_offsets("g", {tp: 0}, topics=["t"])
    wrong: list[Any] = ["t", tp, [1], 5]
    for topics in wrong:
        with pytest.raises(ArgumentTypeError, match="is not a"):
            await admin.reset_offsets("g", 0, topics=topics)
    with pytest.raises(ArgumentTypeError, match="is not the name of a group"):
        await admin.reset_offsets(1, 0)  # type: ignore[arg-type]
