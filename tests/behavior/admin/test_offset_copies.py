"""Copies of the offsets of groups, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokclient import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokclient.admin import OffsetChange
from aiokclient.errors import GroupIdNotFoundError, NoOffsetError, UnknownTopicOrPartitionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError


@pytest.fixture
def source() -> str:
    return f"source-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def target() -> str:
    return f"target-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def tps(cluster_servers: Any) -> list[TopicPartition]:
    """Two partitions of a topic, and one of another topic, with five records each."""
    first, second = await cluster_servers.new_topic(2), await cluster_servers.new_topic(1)
    tps = [TopicPartition(first, 0), TopicPartition(first, 1), TopicPartition(second, 0)]
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for tp in tps:
            for _ in range(5):
                await producer.send(tp.topic, b"v", partition=tp.partition)
    return tps


async def commit(admin: Admin, group: str, offsets: Any) -> None:
    (await admin.alter_consumer_group_offsets(group, offsets)).raise_for_errors()


async def committed(admin: Admin, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    return (await admin.list_consumer_group_offsets([group])).raise_for_errors()[group]


async def test_offsets_are_copied_with_metadata_and_leader_epochs(
    admin: Admin, tps: list[TopicPartition], source: str, target: str
) -> None:
    offsets = {
        tps[0]: OffsetAndMetadata(3, "a note", 0),
        tps[1]: OffsetAndMetadata(1),
        tps[2]: OffsetAndMetadata(5, "another"),
    }
    await commit(admin, source, offsets)
    plan = (await admin.copy_offsets(source, target, dry_run=True)).raise_for_errors()
    assert plan == {
        tps[0]: OffsetChange(None, 3, "a note", 0, created_group=True),
        tps[1]: OffsetChange(None, 1, created_group=True),
        tps[2]: OffsetChange(None, 5, "another", created_group=True),
    }
    assert list(plan) == sorted(tps)
    assert target not in await admin.list_groups()
    assert (await admin.copy_offsets(source, target)).raise_for_errors() == plan
    assert await committed(admin, target) == offsets
    # The group exists now. The copy of an offset that the source did not change is no change.
    await commit(admin, source, {tps[1]: 4})
    changes = (await admin.copy_offsets(source, target)).raise_for_errors()
    assert changes[tps[1]] == OffsetChange(1, 4)
    assert changes[tps[0]] == OffsetChange(3, 3, "a note", 0)


async def test_selected_offsets_are_copied_and_the_others_of_the_target_remain(
    admin: Admin, tps: list[TopicPartition], source: str, target: str
) -> None:
    await commit(admin, source, {tps[0]: 3, tps[2]: 4})
    await commit(admin, target, {tps[1]: 2})
    absent = f"absent-{source}"
    selected = [tps[1], absent, tps[0].topic]
    results = await admin.copy_offsets(source, target, topics=selected)
    assert list(results) == [tps[1], TopicPartition(absent, -1), tps[0]]
    assert results.succeeded == {tps[0]: OffsetChange(None, 3)}
    assert {type(each) for each in results.errors.values()} == {NoOffsetError}
    assert f"{source} has no committed offset here" in str(results[tps[1]])
    assert absent in str(results[TopicPartition(absent, -1)])
    assert {tp: each.offset for tp, each in (await committed(admin, target)).items()} == {
        tps[0]: 3,
        tps[1]: 2,
    }
    assert await admin.copy_offsets(source, target, topics=[]) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_source_may_have_members(
    cluster_servers: Any,
    admin: Admin,
    tps: list[TopicPartition],
    source: str,
    target: str,
    protocol: Any,
) -> None:
    options: dict[str, Any] = {
        "group_protocol": protocol,
        "enable_auto_commit": False,
        "bootstrap_servers": cluster_servers.bootstrap,
    }
    async with Consumer(tps[2].topic, group_id=source, **options) as consumer:
        while tps[2] not in consumer.assignment():
            await consumer.poll(timeout=0.1)
        await consumer.commit({tps[2]: 2})
        changes = (await admin.copy_offsets(source, target)).raise_for_errors()
        assert changes[tps[2]].after == 2
    async with Consumer(tps[2].topic, group_id=target, **options) as consumer:
        record = await consumer.get(timeout=20)
    assert record is not None
    assert record.offset == 2


async def test_the_offsets_of_a_deleted_topic_are_not_copied(
    cluster_servers: Any, admin: Admin, tps: list[TopicPartition], source: str, target: str
) -> None:
    gone = TopicPartition(await cluster_servers.new_topic(1), 0)
    await commit(admin, source, {tps[0]: 3, gone: 0})
    (await admin.delete_topics([gone.topic])).raise_for_errors()
    results = await admin.copy_offsets(source, target, topics=[tps[0], gone])
    # A coordinator removes the offsets of a deleted topic, sooner or later.
    assert isinstance(results[gone], UnknownTopicOrPartitionError | NoOffsetError)
    assert results[tps[0]] == OffsetChange(None, 3, created_group=True)


async def test_groups_that_cannot_be_a_source_or_a_target_are_refused(
    admin: Admin, source: str
) -> None:
    with pytest.raises(GroupIdNotFoundError, match="Check the spelling of the source") as raised:
        await admin.copy_offsets(source, "any")
    assert f"group {source}" in str(raised.value)
    with pytest.raises(ArgumentValueError, match="is both the source and the target"):
        await admin.copy_offsets(source, source)
    wrong: Any
    for wrong in (1, None):
        with pytest.raises(ArgumentTypeError, match="is not the name of a group"):
            await admin.copy_offsets(wrong, "any")
        with pytest.raises(ArgumentTypeError, match="is not the name of a group"):
            await admin.copy_offsets("any", wrong)
    for wrong in ("t", TopicPartition("t", 0), [None]):
        with pytest.raises(ArgumentTypeError, match="is not a"):
            await admin.copy_offsets("any", "other", topics=wrong)
