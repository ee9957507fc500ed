"""Logs written by other clients: transactions, append times, and recompressed batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_harness import ExternalKafka

from aiokclient import Admin, Consumer, Producer, TopicPartition
from aiokclient.types import TimestampType

confluent = pytest.importorskip("confluent_kafka")

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3


def transactional(kafka: ExternalKafka, name: str) -> Any:
    options = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{name}-writer"}
    producer = confluent.Producer(options)
    producer.init_transactions(30)
    return producer


def write(producer: Any, topic: str, start: int, count: int) -> None:
    producer.begin_transaction()
    for number in range(start, start + count):
        producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
    producer.flush(30)


def write_transactions(kafka: ExternalKafka, topic: str) -> list[bytes]:
    """Write committed and aborted transactions alternately.

    Return the committed values in the order in which they were sent.
    """
    producer = transactional(kafka, topic)
    committed = []
    for turn in range(6):
        write(producer, topic, turn * 100, 100)
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += [b"%d" % n for n in range(turn * 100, turn * 100 + 100)]
    return committed


def by_partition(values: list[bytes]) -> dict[int, list[bytes]]:
    return {p: [v for v in values if int(v) % PARTITIONS == p] for p in range(PARTITIONS)}


async def read(kafka: ExternalKafka, topic: str, isolation: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    options: Any = {"bootstrap_servers": kafka.bootstrap, "isolation_level": isolation}
    async with Consumer(topic, auto_offset_reset="earliest", **options) as consumer:
        async for record in consumer.until_end():
            assert record.value is not None
            found[record.partition].append(record.value)
    return found


async def test_transactions_of_other_clients_are_read(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    committed = await asyncio.to_thread(write_transactions, kafka, topic)
    assert await read(kafka, topic, "read_committed") == by_partition(committed)
    everything = [b"%d" % number for number in range(600)]
    assert await read(kafka, topic, "read_uncommitted") == by_partition(everything)


async def test_lists_and_arrow_batches_skip_aborted_records(kafka: ExternalKafka) -> None:
    pytest.importorskip("pyarrow")
    topic = kafka.create_topic(partitions=PARTITIONS)
    committed = await asyncio.to_thread(write_transactions, kafka, topic)
    options: Any = {"bootstrap_servers": kafka.bootstrap, "isolation_level": "read_committed"}
    async with Consumer(topic, auto_offset_reset="earliest", **options) as consumer:
        lists = [record.value async for part in consumer.batches(until_end=True) for record in part]
        consumer.seek_to_beginning()
        columns: list[bytes] = []
        async for table in consumer.arrow_batches():
            columns += table.column("value").to_pylist()
            if len(columns) >= len(committed):
                break
    assert sorted(lists) == sorted(committed)
    assert sorted(columns) == sorted(committed)


async def test_an_open_transaction_holds_readers_back(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    writer = await asyncio.to_thread(transactional, kafka, topic)
    await asyncio.to_thread(write, writer, topic, 0, 9)
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        await producer.send(topic, b"9", partition=0)
    assert await read(kafka, topic, "read_committed") == by_partition([])
    await asyncio.to_thread(writer.commit_transaction, 30)
    expected = by_partition([b"%d" % number for number in range(10)])
    assert await read(kafka, topic, "read_committed") == expected


@pytest.mark.parametrize("codec", CODECS)
async def test_batches_recompressed_by_the_broker_are_read(
    kafka: ExternalKafka, codec: str
) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS, configs={"compression.type": codec})
    async with Producer(bootstrap_servers=kafka.bootstrap, compression_type="zstd") as producer:
        values = [b"%d" % number for number in range(3000)]
        sent = [producer.send(topic, v, partition=int(v) % PARTITIONS) for v in values]
        await producer.gather(sent)
    assert await read(kafka, topic, "read_uncommitted") == by_partition(values)


async def test_kafka_returns_its_append_time_to_producer_and_consumer(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    options: Any = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        given = await producer.send(topic, b"v", timestamp=1)
    async with Consumer(topic, **options) as consumer:
        record = await consumer.get(timeout=30)
    assert record is not None
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert record.timestamp > 1_700_000_000_000
    assert given.timestamp == record.timestamp


async def test_reading_begins_after_deleted_records_within_a_batch(kafka: ExternalKafka) -> None:
    """Reading begins in the middle of a batch, because the log keeps the whole batch."""
    topic = kafka.create_topic(partitions=1)
    tp = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=50) as producer:
        await producer.gather(producer.send_many(topic, [b"%d" % n for n in range(100)]))
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        (await admin.delete_records({tp: 42})).raise_for_errors()
    options: Any = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer(topic, **options) as consumer:
        assert await consumer.beginning_offsets([tp]) == {tp: 42}
        offsets = [record.offset async for record in consumer.until_end()]
        assert offsets == list(range(42, 100))
        consumer.seek(tp, 77)
        again = [record.value async for record in consumer.until_end()]
        assert again == [b"%d" % n for n in range(77, 100)]
