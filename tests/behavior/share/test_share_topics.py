"""Topics of share groups that are created later, deleted, or grow; transactions; large records.

On the embedded cluster and on a real Kafka.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from share_queue import TIMEOUT_S, Queue, take

from aiokclient import Producer, TopicPartition


async def drain(consumer: Any, count: int) -> list[Any]:
    """Read and accept `count` records."""
    records = await take(consumer, count, tracked=True)
    assert consumer.done(records)
    assert set((await consumer.commit(records)).values()) == {None}
    return records


async def test_a_topic_is_shared_from_its_beginning_when_it_is_created_later(
    queue: Queue, cluster_servers: Any
) -> None:
    await queue.configure(auto_offset_reset="earliest")
    queue.topic = f"{queue.topic}-later"
    async with queue.consumer() as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            while not any("there is no topic" in reason for reason in consumer.health().reasons):
                assert await consumer.poll(0.1) == []
        await asyncio.to_thread(cluster_servers.kafka.create_topic, queue.topic)
        await queue.fill(20)
        records = await drain(consumer, 20)
        assert sorted(int(record.value) for record in records) == list(range(20))
    assert await queue.lag() == 0


@pytest.mark.fault(24)
async def test_a_deleted_topic_loses_its_locks_and_is_read_again_when_recreated(
    queue: Queue, cluster_servers: Any
) -> None:
    # A renewal, after half of a lock, would be too late to tell.
    assert TIMEOUT_S < 30
    await queue.configure(auto_offset_reset="earliest", record_lock_duration_ms="60000")
    other = await cluster_servers.new_topic()
    await queue.fill(3)
    told: asyncio.Queue[Any] = asyncio.Queue()
    tell = told.put_nowait
    async with queue.consumer(queue.topic, other, on_acknowledge_error=tell) as consumer:
        records = await take(consumer, 3, tracked=True)
        (await queue.admin.delete_topics([queue.topic])).raise_for_errors()
        await asyncio.wait_for(consumer.lock_lost(records[0]), TIMEOUT_S)
        assert not consumer.done(records[0])
        assert (await told.get()).reason == "moved"
        await queue.fill(2, topic=other)
        found = await drain(consumer, 2)
        assert {record.topic for record in found} == {other}
        await asyncio.to_thread(cluster_servers.kafka.create_topic, queue.topic)
        await queue.fill(5)
        found = await drain(consumer, 5)
        assert sorted(record.value for record in found) == [b"%d" % n for n in range(5)]
        assert {record.topic for record in found} == {queue.topic}


@pytest.mark.fault(25)
async def test_added_partitions_are_shared_from_their_beginning(queue: Queue) -> None:
    await queue.fill(3)
    async with queue.consumer() as consumer:
        await drain(consumer, 3)
        (await queue.admin.create_partitions({queue.topic: 3})).raise_for_errors()
        for partition in (1, 2):
            await queue.fill(4, partition=partition)
        found = await drain(consumer, 8)
        places = {(record.partition, record.offset) for record in found}
        assert places == {(partition, offset) for partition in (1, 2) for offset in range(4)}
        assert consumer.assignment() == {TopicPartition(queue.topic, n) for n in range(3)}
    assert [await queue.lag(partition) for partition in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_aborted_records_are_shared_only_if_the_group_reads_uncommitted_ones(
    queue: Queue, isolation: str
) -> None:
    await queue.configure(isolation_level=isolation)
    options = {**queue.options, "transactional_id": f"writer-{queue.topic}"}
    async with Producer(**options) as producer:
        for turn in range(4):
            await producer.begin_transaction()
            values = [b"%d" % (turn * 10 + number) for number in range(10)]
            await producer.gather(
                [producer.send(queue.topic, each, partition=0) for each in values]
            )
            await (producer.abort_transaction() if turn % 2 else producer.commit_transaction())
        await producer.begin_transaction()
        await producer.gather([producer.send(queue.topic, b"open", partition=0)])
        turns = range(0, 4, 2) if isolation == "read_committed" else range(4)
        expected = [b"%d" % (turn * 10 + number) for turn in turns for number in range(10)]
        expected += [] if isolation == "read_committed" else [b"open"]
        async with queue.consumer() as consumer:
            found = await drain(consumer, len(expected))
            assert sorted(record.value for record in found) == sorted(expected)
            await producer.commit_transaction()
            if isolation == "read_committed":
                assert [record.value for record in await drain(consumer, 1)] == [b"open"]
            # Markers of transactions, and aborted records, are finished without the application.
            async with asyncio.timeout(TIMEOUT_S):
                while await queue.lag() != 0:
                    assert await consumer.poll(0.2, tracked=True) == []


async def test_records_of_five_megabytes_are_shared(queue: Queue, cluster_servers: Any) -> None:
    configs = {"max.message.bytes": 6_000_000}
    topic = await cluster_servers.new_topic(configs=configs)
    await queue.configure(auto_offset_reset="earliest")
    values = [bytes([number]) * 5_000_000 for number in range(4)]
    async with Producer(**queue.options, max_request_size=6_000_000) as producer:
        for value in values:
            await producer.send(topic, value, partition=0)
    async with queue.consumer(topic) as consumer:
        (first,) = await take(consumer, 1, tracked=True)
        assert consumer.release(first)
        found = await drain(consumer, 4)
        assert sorted(record.value for record in found) == values
        counts = {record.offset: record.delivery_count for record in found}
        assert counts[first.offset] > 1
