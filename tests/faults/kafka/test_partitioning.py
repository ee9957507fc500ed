"""Records with a key go to the partition that Kafka's own producer would choose."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import ExternalKafka
from kafka_harness.tools import console_produce

from aiokclient import Consumer, Producer, ProducerRecord

PARTITIONS = 7
chance = random.Random(7)
TEXTS = ["", "a", "key", "Schlüssel", "鍵", *(f"customer-{n}" for n in range(200))]
KEYS = [text.encode() for text in TEXTS]
BYTES = [*KEYS, *(chance.randbytes(size) for size in range(1, 100))]

Placement = dict[bytes | None, int]


async def placed_here(bootstrap: str, topic: str, keys: Sequence[bytes]) -> Placement:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send(topic, b"v", key) for key in keys]
        many = producer.send_many(topic, [ProducerRecord(topic, b"v", key) for key in keys])
        partitions = [result.partition for result in await producer.gather(sent)]
        assert [result.partition for result in await producer.gather(many)] == partitions
    return dict(zip(keys, partitions, strict=True))


async def found(bootstrap: str, topic: str) -> Placement:
    """Return the partition of each key in a topic."""
    options: Any = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer(topic, **options) as consumer:
        return {record.key: record.partition async for record in consumer.until_end()}


async def test_keys_have_the_partitions_of_confluent_kafka(kafka: ExternalKafka) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    topic, other = (kafka.create_topic(partitions=PARTITIONS) for _ in range(2))
    peer = confluent.Producer(
        {"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"}
    )
    for key in BYTES:
        peer.produce(other, value=b"v", key=key)
    assert await asyncio.to_thread(peer.flush, 30) == 0
    expected = await found(kafka.bootstrap, other)
    assert await placed_here(kafka.bootstrap, topic, BYTES) == expected
    assert set(expected.values()) == set(range(PARTITIONS))


async def test_keys_have_the_partitions_of_java(
    kafka: ExternalKafka, kafka_tools_jars: list[Path]
) -> None:
    topic, other = (kafka.create_topic(partitions=PARTITIONS) for _ in range(2))
    lines = [key + b"\tv" for key in KEYS]
    how = ("--reader-property", "parse.key=true")
    await asyncio.to_thread(console_produce, kafka.bootstrap, other, lines, *how)
    expected = await found(kafka.bootstrap, other)
    assert len(expected) == len(KEYS)
    assert await placed_here(kafka.bootstrap, topic, KEYS) == expected


async def test_without_a_key_all_partitions_are_used(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    async with Producer(bootstrap_servers=kafka.bootstrap, batch_size=256) as producer:
        await producer.prepare(topic)
        sent = [producer.send(topic, b"%060d" % n) for n in range(1000)]
        results = await producer.gather(sent)
    assert {result.partition for result in results} == set(range(PARTITIONS))
