"""Producing, which behaves the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from driver import read_to_the_end
from ledger import Ledger, pack

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    Consumer,
    Leader,
    Producer,
    ProducerRecord,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)
from aiokclient.admin import NewTopic
from aiokclient.errors import (
    DeliveryErrors,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import messages
from aiokclient.record.murmur2 import murmur2, to_positive


async def read(servers: Any, topic: str, partitions: int = 1) -> list[Any]:
    """Return all records of a topic, partition by partition."""
    found = []
    async with Consumer(
        bootstrap_servers=servers.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition)])
            found += [record async for record in consumer.until_end()]
    return found


async def until(consumer: Any, value: bytes) -> AsyncIterator[Any]:
    """Yield the records before the one with this value."""
    async for record in consumer:
        if record.value == value:
            return
        yield record


def producer(servers: Any, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=servers.bootstrap, **options)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_as_they_were_sent(cluster_servers: Any, codec: str) -> None:
    topic = await cluster_servers.new_topic(partitions=3)
    ledger = Ledger()
    payloads = [ledger.payload(0, topic, i % 3) for i in range(3000)]
    async with producer(cluster_servers, compression_type=codec, batch_size=10_000) as sending:
        deliveries = [
            sending.send(topic, pack(payload, 200), partition=payload.partition)
            for payload in payloads
        ]
        results = await sending.gather(deliveries)
    for payload, result in zip(payloads, results, strict=True):
        ledger.acknowledge(payload, result.offset)
    partitions = [(topic, partition) for partition in range(3)]
    await read_to_the_end(ledger, cluster_servers.bootstrap, partitions)
    ledger.check()


async def test_all_fields_of_a_record_are_written(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic()
    headers = [("h", b"1"), ("h", None), ("", b"")]
    async with producer(cluster_servers) as sending:
        one = await sending.send(topic, b"v", b"k", 0, 1_700_000_000_123, headers)
        assert one == RecordMetadata(topic, 0, 0, 1_700_000_000_123)
        await sending.gather(sending.send_many(topic, [None, (b"", b""), ProducerRecord(topic)]))
    first, *others = await read(cluster_servers, topic)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 1_700_000_000_123)
    assert list(first.headers) == headers
    assert [(r.key, r.value) for r in others] == [(None, None), (b"", b""), (None, None)]


async def test_keys_determine_partitions_as_in_java(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic(partitions=5)
    async with producer(cluster_servers) as sending:
        keys = [b"key-%d" % i for i in range(200)]
        results = await sending.gather([sending.send(topic, b"v", key) for key in keys])
        assert [r.partition for r in results] == [to_positive(murmur2(key)) % 5 for key in keys]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_are_written_with_every_acks_and_codec(
    cluster_servers: Any, acks: Any, codec: str
) -> None:
    topic = await cluster_servers.new_topic()
    async with producer(cluster_servers, acks=acks, compression_type=codec) as sending:
        results = await sending.gather(sending.send_many(topic, [b"x"] * 100))
        assert [r.offset for r in results] == ([-1] * 100 if acks == 0 else list(range(100)))
        # With acks=0, there is no acknowledgement, so the test waits until it can read this last
        # record.
        end = sending.send(topic, b"end")
        await end
        async with Consumer(
            topic, bootstrap_servers=cluster_servers.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(30):
                values = [record.value async for record in until(consumer, b"end")]
        assert values == [b"x"] * 100


async def test_append_times_are_returned(cluster_servers: Any) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    topic = await cluster_servers.new_topic(configs=configs)
    async with producer(cluster_servers) as sending:
        result = await sending.send(topic, b"v", timestamp=5)
    (record,) = await read(cluster_servers, topic)
    assert result.timestamp == record.timestamp > 5
    assert result.timestamp_type is record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert result.log_start_offset == 0
    assert (record.serialized_key_size, record.serialized_value_size) == (-1, 1)


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_batch_that_is_too_large_is_split(cluster_servers: Any, codec: str) -> None:
    topic = await cluster_servers.new_topic(configs={"max.message.bytes": 2000})
    values = [b"%04d" % i * 20 for i in range(1000)]
    async with producer(cluster_servers, compression_type=codec, batch_size=60_000) as sending:
        results = await sending.gather(sending.send_many(topic, values))
        assert [r.offset for r in results] == list(range(1000))
        with pytest.raises(RecordTooLargeError):
            await sending.send(topic, random.Random(1).randbytes(5000))
        assert (await sending.send(topic, b"fits")).offset == 1000
    assert [r.value for r in await read(cluster_servers, topic)] == [*values, b"fits"]


async def test_a_refused_record_fails_alone(cluster_servers: Any) -> None:
    """Each refused batch leaves a gap in the sequences, but later records are still written."""
    configs = {"message.timestamp.before.max.ms": 3_600_000, "cleanup.policy": "compact"}
    topic = await cluster_servers.new_topic(configs=configs)
    refused: list[tuple[dict[str, Any], type[KafkaError]]] = [
        ({"key": None}, InvalidRecordError),
        ({"key": b"k", "timestamp": 1}, InvalidTimestampError),
    ]
    async with producer(cluster_servers, linger_ms=0) as sending:
        offset = 0
        for arguments, error in refused * 2:
            assert (await sending.send(topic, b"v", key=b"k")).offset == offset
            bad = sending.send(topic, b"bad", **arguments)
            later = [sending.send(topic, b"v", key=b"k") for _ in range(3)]
            with pytest.raises(error):
                await bad
            offsets = [result.offset for result in await sending.gather(later)]
            assert offsets == [offset + 1, offset + 2, offset + 3]
            offset += 4


async def test_a_record_for_a_missing_topic_fails(cluster_servers: Any) -> None:
    async with producer(cluster_servers, max_block_ms=3_000) as sending:
        with pytest.raises(UnknownTopicOrPartitionError):
            await sending.send("nobody-made-this-topic", b"v")


async def test_a_recreated_topic_is_written_to(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic()
    async with (
        producer(cluster_servers, linger_ms=0) as sending,
        Admin(bootstrap_servers=cluster_servers.bootstrap) as admin,
    ):
        for _ in range(10):
            await sending.send(topic, b"old")
        (await admin.delete_topics([topic])).raise_for_errors()
        deliveries = [sending.send(topic, b"new") for _ in range(10)]
        while True:
            created = await admin.create_topics([NewTopic(topic)])
            if not any(isinstance(result, KafkaError) for result in created.values()):
                break
            await asyncio.sleep(0.05)
        deliveries += [sending.send(topic, b"new") for _ in range(10)]
        results = await sending.gather(deliveries, return_exceptions=True)
    assert not [result for result in results if isinstance(result, KafkaError)]
    values = [record.value for record in await read(cluster_servers, topic)]
    # Records that the old topic accepted were deleted with it.
    assert values == [b"new"] * len(values)
    assert len(values) >= 10


async def test_a_record_at_the_limit_of_max_request_size_is_written(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic()
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        taken = 0
        for size in range(1_048_576 - 140, 1_048_576, 20):
            try:
                delivery = producer.send(topic, bytes(size))
            except RecordTooLargeError:
                continue
            await delivery
            taken += 1
        assert taken


async def test_unretrieved_failures_are_raised_at_the_end(cluster_servers: Any) -> None:
    small = await cluster_servers.new_topic(configs={"max.message.bytes": 1000})
    sending = await producer(cluster_servers, batch_size=0)
    for _ in range(120):
        sending.send(small, bytes(1200))
    with pytest.raises(DeliveryErrors) as caught:
        await sending.__aexit__(None, None, None)
    assert (caught.value.count, len(caught.value.exceptions)) == (120, 100)


async def test_tasks_can_be_cancelled_while_records_are_delivered(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic(partitions=4)
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        cancelled = 0
        async with anyio.create_task_group() as group:
            for i in range(200):
                group.start_soon(producer.send_and_wait, topic, b"%d" % i)
        for _ in range(50):
            with anyio.move_on_after(0) as scope:
                await producer.send(topic, b"cancelled")
            cancelled += scope.cancelled_caught
        assert await producer.send_all(topic, (b"x" for _ in range(5000))) == 5000
    assert cancelled
    values = [record.value for record in await read(cluster_servers, topic, 4)]
    assert len(values) == 5250
    assert values.count(b"cancelled") == 50, "cancelling a waiter must cancel no delivery"


async def test_low_level_calls_return_responses(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic()
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        groups = await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        assert groups.error_code == 0
        handle = client.send(messages.DescribeClusterRequest(), to=Leader(topic, 0))
        assert (await handle).cluster_id == (await handle).cluster_id
        async with Producer(client=client) as producer, Admin(client=client) as admin:
            assert (await producer.send(topic, b"v")).offset == 0
            described = (await admin.describe_topics([topic])).raise_for_errors()
            assert described[topic].name == topic
            results = await admin.describe_topics(["there-is-none", topic])
            assert isinstance(results["there-is-none"], KafkaError)
