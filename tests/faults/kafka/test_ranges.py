"""Ranges that are read while their leader is killed or changed, and from an old broker."""

import asyncio
from typing import Any

import pytest
from kafka_harness import ExternalKafka, KafkaCluster

from aiokclient import Client, Producer, TopicPartition

pytest.importorskip("pyarrow")

COUNT = 50_000
SMALL: dict[str, Any] = {"columns": ["offset", "value"], "fetch_max_bytes": 200_000}


async def write(kafka: ExternalKafka, tp: TopicPartition, count: int, **options: Any) -> None:
    """Write records whose values are their offsets."""
    async with Producer(bootstrap_servers=kafka.bootstrap, acks="all", **options) as producer:
        for first in range(0, count, 5_000):
            values = [b"%d" % number for number in range(first, first + 5_000)]
            deliveries = producer.send_many(tp.topic, values)
            written = await producer.gather(deliveries)
            assert written[-1].offset == first + 4_999


def offsets_in(batch: Any) -> list[int]:
    rows = batch.to_pydict()
    offsets: list[int] = rows["offset"]
    assert rows["value"] == [b"%d" % offset for offset in offsets]
    return offsets


async def test_a_range_continues_after_its_leader_was_killed(kafka3: KafkaCluster) -> None:
    topic = await asyncio.to_thread(kafka3.create_topic, None, 1, 3, {"min.insync.replicas": 2})
    tp = TopicPartition(topic, 0)
    await write(kafka3, tp, COUNT)
    found: list[int] = []
    async with Client(bootstrap_servers=kafka3.bootstrap) as client:
        async for batch in client.read_range(tp, 10, COUNT, **SMALL):
            if not found:
                leader = await asyncio.to_thread(kafka3.leader, topic)
                await asyncio.to_thread(kafka3.kill, leader)
            found += offsets_in(batch)
    assert found == list(range(10, COUNT))


async def test_ranges_are_read_from_an_old_broker(kafka_old: KafkaCluster) -> None:
    topic = await asyncio.to_thread(kafka_old.create_topic)
    tp = TopicPartition(topic, 0)
    await write(kafka_old, tp, 10_000, compression_type="zstd")
    async with Client(bootstrap_servers=kafka_old.bootstrap) as client:
        batches = client.read_range(
            tp, 77, 9_999, isolation_level="read_committed", batch_rows=1_000, **SMALL
        )
        found = [offset async for batch in batches for offset in offsets_in(batch)]
    assert found == list(range(77, 9_999))
