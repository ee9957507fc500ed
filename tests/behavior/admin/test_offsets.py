"""The offsets that the admin client lists, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokclient import Admin, Producer, TopicPartition
from aiokclient.admin import ListedOffset, OffsetSpec
from aiokclient.errors import UnknownTopicOrPartitionError, UnsupportedVersionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError

T0 = 1_790_000_000_000


async def write(servers: Any, tp: TopicPartition, times: list[int]) -> None:
    async with Producer(bootstrap_servers=servers.bootstrap) as producer:
        for time in times:
            await producer.send(tp.topic, b"v", partition=tp.partition, timestamp=time)


async def list_one(admin: Admin, tp: TopicPartition, spec: int, **options: Any) -> Any:
    return (await admin.list_offsets({tp: spec}, **options)).raise_for_errors()[tp]


async def test_offsets_are_listed_by_place_and_by_time(cluster_servers: Any, admin: Admin) -> None:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    await write(cluster_servers, tp, [T0 + 10, T0 + 30, T0 + 20, T0 + 30])
    (await admin.delete_records({tp: 1})).raise_for_errors()
    assert await list_one(admin, tp, OffsetSpec.EARLIEST) == ListedOffset(1, None, 0)
    assert await list_one(admin, tp, OffsetSpec.EARLIEST_LOCAL) == ListedOffset(1, None, 0)
    assert await list_one(admin, tp, OffsetSpec.LATEST) == ListedOffset(4, None, 0)
    assert await list_one(admin, tp, OffsetSpec.MAX_TIMESTAMP) == ListedOffset(1, T0 + 30, 0)
    assert await list_one(admin, tp, T0 + 20) == ListedOffset(1, T0 + 30, 0)
    assert await list_one(admin, tp, 0) == ListedOffset(1, T0 + 30, 0)
    assert await list_one(admin, tp, T0 + 31) is None
    assert await list_one(admin, tp, OffsetSpec.LATEST_TIERED) is None
    assert await list_one(admin, tp, OffsetSpec.EARLIEST_PENDING_UPLOAD) is None


async def test_an_empty_partition_has_a_start_and_an_end(
    cluster_servers: Any, admin: Admin
) -> None:
    topic = await cluster_servers.new_topic(4)
    specs: list[int] = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, T0]
    listed = await admin.list_offsets({TopicPartition(topic, i): s for i, s in enumerate(specs)})
    assert [each and each.offset for each in listed.raise_for_errors().values()] == [
        0,
        0,
        None,
        None,
    ]


async def test_partitions_that_do_not_exist_do_not_fail_the_others(
    cluster_servers: Any, admin: Admin
) -> None:
    topic = await cluster_servers.new_topic(1)
    there, beyond = TopicPartition(topic, 0), TopicPartition(topic, 1)
    absent = TopicPartition(f"absent-{uuid.uuid4().hex[:12]}", 0)
    results = await admin.list_offsets(dict.fromkeys([beyond, there, absent], OffsetSpec.LATEST))
    assert list(results) == [beyond, there, absent]
    assert list(results.succeeded) == [there]
    assert {type(each) for each in results.errors.values()} == {UnknownTopicOrPartitionError}
    assert await admin.list_offsets({}) == {}


async def test_an_open_transaction_ends_the_partition_with_read_committed(
    cluster_servers: Any, admin: Admin
) -> None:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    await write(cluster_servers, tp, [T0])
    async with Producer(
        bootstrap_servers=cluster_servers.bootstrap, transactional_id=tp.topic
    ) as producer:
        await producer.begin_transaction()
        await producer.send(tp.topic, b"open", partition=0, timestamp=T0 + 5)
        await producer.flush()
        for level, end, found in ("read_uncommitted", 2, 1), ("read_committed", 1, None):
            latest = await list_one(admin, tp, OffsetSpec.LATEST, isolation_level=level)
            by_time = await list_one(admin, tp, T0 + 1, isolation_level=level)
            assert latest.offset == end
            assert (by_time and by_time.offset) == found
        await producer.abort_transaction()


async def test_times_that_are_none_are_refused_or_sent_as_they_are(
    cluster_servers: Any, admin: Admin
) -> None:
    tp = TopicPartition(await cluster_servers.new_topic(1), 0)
    with pytest.raises(ArgumentValueError, match="-7 is not a time"):
        await admin.list_offsets({tp: -7})
    results = await admin.list_offsets({tp: -7}, check=False)
    assert isinstance(results[tp], UnsupportedVersionError)
    wrong: Any = {tp: "earliest"}
    with pytest.raises(ArgumentTypeError, match="'earliest' is not an offset to list"):
        await admin.list_offsets(wrong)
    with pytest.raises(ArgumentValueError, match="isolation_level must be one of"):
        await admin.list_offsets({tp: 0}, isolation_level="dirty")  # type: ignore[arg-type]
