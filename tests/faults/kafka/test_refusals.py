"""Refusals of a real broker, and the outcome of the records in the same request."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka_harness import ExternalKafka

from aiokclient import Consumer, Producer
from aiokclient.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)

chance = random.Random(7)


async def values_in(kafka: ExternalKafka, topic: str) -> list[bytes | None]:
    options: Any = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer(topic, **options) as consumer:
        return [record.value async for record in consumer.until_end()]


async def test_a_record_that_is_too_large_alone_fails(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(configs={"max.message.bytes": 2000})
    async with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=100) as producer:
        await producer.prepare(topic)
        before, large, after = (producer.send(topic, bytes(n)) for n in (10, 5000, 20))
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as caught:
            await large
        assert topic in str(caught.value)
        await producer.gather([before, after])
        await producer.send(topic, bytes(30))
    assert await values_in(kafka, topic) == [bytes(10), bytes(20), bytes(30)]


async def test_a_compacted_topic_refuses_records_without_a_key(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(configs={"cleanup.policy": "compact"})
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        with pytest.raises(InvalidRecordError, match="compacted topic needs a key"):
            await producer.send(topic, b"v")
        await producer.send(topic, b"v", key=b"k")
    assert await values_in(kafka, topic) == [b"v"]


async def test_a_timestamp_that_is_too_old_is_refused(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(configs={"message.timestamp.before.max.ms": 3_600_000})
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        with pytest.raises(InvalidTimestampError):
            await producer.send(topic, b"v", timestamp=1)
        assert (await producer.send(topic, b"v")).offset == 0
