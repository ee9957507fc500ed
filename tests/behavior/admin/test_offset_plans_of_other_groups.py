"""Resets and copies of offsets of share and streams groups, and of groups of an older Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from streams_member import StreamsMember

from aiokclient import Admin, Client, Coordinator, NewTopic, Producer, TopicPartition
from aiokclient.admin import OffsetChange, OffsetSpec, Shift
from aiokclient.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    UnsupportedVersionError,
)
from aiokclient.protocol.messages import ShareGroupHeartbeatRequest

T0 = 1_700_000_000_000


@pytest.fixture
async def client(kafka: Any) -> AsyncIterator[Client]:
    async with Client(bootstrap_servers=kafka.bootstrap, client_id="worker-3") as client:
        yield client


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with Admin(client=client) as admin:
        yield admin


@pytest.fixture
async def tp(kafka: Any, client: Client) -> TopicPartition:
    topic = await asyncio.to_thread(kafka.create_topic, None, 1, 1, {"retention.ms": -1})
    async with Producer(client=client) as producer:
        for n in range(5):
            await producer.send(topic, b"v", partition=0, timestamp=T0 + n)
    return TopicPartition(topic, 0)


async def start_of(admin: Admin, group: str, tp: TopicPartition) -> int:
    found = (await admin.list_share_group_offsets([group])).raise_for_errors()[group][tp]
    assert found is not None
    return found.start_offset


async def test_a_share_group_is_reset_to_each_target(
    admin: Admin, tp: TopicPartition, group: str
) -> None:
    (await admin.alter_share_group_offsets(group, {tp: 1})).raise_for_errors()
    before = 1
    targets: list[Any] = [OffsetSpec.EARLIEST, "latest", Shift(-1), 2, timedelta(0), {tp: 1}, 9]
    times = [datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(milliseconds=3)]
    for target, after in zip(
        [*targets, *times, "current"], (0, 5, 4, 2, 5, 1, 5, 3, 3), strict=True
    ):
        plan = (await admin.reset_offsets(group, target, dry_run=True)).raise_for_errors()
        assert await start_of(admin, group, tp) == before
        assert (plan[tp].before, plan[tp].after) == (before, after)
        assert (await admin.reset_offsets(group, target)).raise_for_errors() == plan
        assert await start_of(admin, group, tp) == after
        before = after
    changes = await admin.reset_offsets(group, "earliest", topics=[tp.topic])
    assert changes == {tp: OffsetChange(3, 0)}


async def test_a_share_group_is_copied_to_a_share_group_or_to_another_group(
    admin: Admin, tp: TopicPartition, group: str
) -> None:
    (await admin.alter_share_group_offsets(group, {tp: 2})).raise_for_errors()
    share, classic = f"{group}-share", f"{group}-classic"
    changes = (await admin.copy_offsets(group, share)).raise_for_errors()
    assert changes == {tp: OffsetChange(None, 2, created_group=True)}
    assert await start_of(admin, share, tp) == 2
    (await admin.reset_offsets(classic, 4, topics=[tp])).raise_for_errors()
    changes = (await admin.copy_offsets(classic, share)).raise_for_errors()
    assert changes == {tp: OffsetChange(2, 4)}
    assert await start_of(admin, share, tp) == 4
    changes = (await admin.copy_offsets(group, classic)).raise_for_errors()
    assert changes == {tp: OffsetChange(4, 2)}
    listed = (await admin.list_consumer_group_offsets([classic])).raise_for_errors()[classic]
    assert listed[tp].offset == 2


async def test_a_share_group_with_members_is_refused(
    client: Client, admin: Admin, tp: TopicPartition, group: str
) -> None:
    member = uuid.uuid4().hex
    join = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, subscribed_topic_names=[tp.topic]
    )
    assert (await client.request(join, Coordinator("group", group))).error_code == 0
    with pytest.raises(GroupNotEmptyError, match="worker-3 on ") as raised:
        await admin.reset_offsets(group, "earliest", topics=[tp])
    assert "rewind_group" not in str(raised.value)
    leave = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1)
    await client.request(leave, Coordinator("group", group))
    changes = (await admin.reset_offsets(group, "latest", topics=[tp])).raise_for_errors()
    assert (changes[tp].after, changes[tp].created_group) == (5, False)
    assert await start_of(admin, group, tp) == 5


async def test_a_streams_group_is_reset_once_it_has_no_members(
    client: Client, admin: Admin, tp: TopicPartition, group: str
) -> None:
    member = StreamsMember(client, group, tp.topic)
    await member.join()
    for dry_run in (True, False):
        with pytest.raises(GroupNotEmptyError, match="worker-3 on "):
            await admin.reset_offsets(group, "earliest", topics=[tp], dry_run=dry_run)
    await member.leave()
    changes = (await admin.reset_offsets(group, 3, topics=[tp])).raise_for_errors()
    assert changes == {tp: OffsetChange(None, 3)}
    changes = (await admin.reset_offsets(group, Shift(1))).raise_for_errors()
    assert changes == {tp: OffsetChange(3, 4)}
    copied = (await admin.copy_offsets(group, f"{group}-copy")).raise_for_errors()
    assert copied == {tp: OffsetChange(None, 4, created_group=True)}


async def test_groups_of_an_older_broker_are_reset_and_copied(kafka_old: Any, group: str) -> None:
    topic = f"topic-{group}"
    tp = TopicPartition(topic, 0)
    async with Admin(bootstrap_servers=kafka_old.bootstrap) as admin:
        ensured = await admin.ensure_topics([NewTopic(topic, 1, 1, {"retention.ms": -1})])
        assert ensured.raise_for_errors()[topic].created
        async with Producer(bootstrap_servers=kafka_old.bootstrap) as producer:
            for n in range(5):
                await producer.send(topic, b"v", timestamp=T0 + n)
        # The broker knows the requests about consumer groups, but has none of these groups.
        described = await admin.describe_groups([group])
        assert isinstance(described[group], GroupIdNotFoundError)
        before: int | None = None
        for to, after in ("latest", 5), (Shift(-2), 3), (OffsetSpec.MAX_TIMESTAMP, 4), (2, 2):
            changes = (await admin.reset_offsets(group, to, topics=[tp])).raise_for_errors()
            assert changes == {tp: OffsetChange(before, after, created_group=before is None)}
            before = after
        results = await admin.reset_offsets(group, OffsetSpec.EARLIEST_PENDING_UPLOAD)
        assert isinstance(results[tp], UnsupportedVersionError)
        copied = (await admin.copy_offsets(group, f"{group}-copy")).raise_for_errors()
        assert copied == {tp: OffsetChange(None, 2, created_group=True)}
