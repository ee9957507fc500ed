"""The producer on a real Kafka."""

import asyncio
from typing import Any

import anyio
import pytest

from aiokclient import Admin, AnyBroker, Client, Consumer, Leader, Producer, TopicPartition
from aiokclient.errors import (
    DeliveryErrors,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import messages


async def read(servers: str, topic: str, partitions: int = 1) -> list[Any]:
    """Return all records of a topic."""
    tps = [TopicPartition(topic, index) for index in range(partitions)]
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        return [record async for record in consumer.until_end()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_records_are_written_with_every_acks_and_codec(
    kafka: Any, codec: str, acks: Any
) -> None:
    topic = kafka.create_topic(None, 1)
    sent = [b"%d" % i * 20 for i in range(2000)]
    async with Producer(
        bootstrap_servers=kafka.bootstrap, acks=acks, compression_type=codec
    ) as producer:
        results = await producer.gather(producer.send_many(topic, sent))
        assert results[-1].offset == (-1 if acks == 0 else 1999)
    found: list[Any] = []
    async with asyncio.timeout(30):
        while len(found) < 2000:  # With acks=0, the broker may still be writing records.
            found = await read(kafka.bootstrap, topic)
    assert [record.value for record in found] == sent


async def test_all_fields_of_a_record_are_written(kafka: Any) -> None:
    topic = kafka.create_topic(None, 3)
    headers = [("a", b"1"), ("a", None), ("é", b"")]
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        metadata = await producer.send(topic, b"v", b"k", 2, 1_700_000_000_000, headers)
        assert metadata == (topic, 2, 0, 1_700_000_000_000)
        await producer.send(topic, None, key=b"k", partition=2)
    first, second = await read(kafka.bootstrap, topic, 3)
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
    assert first.timestamp == 1_700_000_000_000
    assert (second.key, second.value) == (b"k", None)


async def test_the_timestamp_is_the_brokers_with_log_append_time(kafka: Any) -> None:
    topic = kafka.create_topic(None, 1, 1, {"message.timestamp.type": "LogAppendTime"})
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        delivery = producer.send(topic, b"v", timestamp=1_700_000_000_000)
        metadata = await delivery
    (record,) = await read(kafka.bootstrap, topic)
    assert metadata.timestamp == delivery.timestamp == record.timestamp > 1_700_000_000_000


async def test_refused_records_fail_with_their_errors(kafka: Any) -> None:
    small = kafka.create_topic(None, 1, 1, {"max.message.bytes": 1000})
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        with pytest.raises(RecordTooLargeError) as caught:
            await producer.send(small, bytes(1200))
        assert (caught.value.api, caught.value.topic_partition) == ("Produce", (small, 0))
        results = await producer.gather(
            producer.send_many(small, [bytes(90)] * 100), return_exceptions=True
        )
        assert [metadata.offset for metadata in results] == [*range(100)], (
            "the batch must be split and sent again"
        )
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send(small, b"v", partition=1)


async def test_a_record_at_the_limit_of_max_request_size_is_written(kafka: Any) -> None:
    topic = kafka.create_topic(None, 1)
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        taken = 0
        for size in range(1_048_576 - 140, 1_048_576, 20):
            try:
                delivery = producer.send(topic, bytes(size))
            except RecordTooLargeError:
                continue
            await delivery
            taken += 1
        assert taken


async def test_unretrieved_failures_are_raised_at_the_end(kafka: Any) -> None:
    small = kafka.create_topic(None, 1, 1, {"max.message.bytes": 1000})
    producer: Producer[Any, Any] = await Producer(bootstrap_servers=kafka.bootstrap, batch_size=0)
    for _ in range(120):
        producer.send(small, bytes(1200))
    with pytest.raises(DeliveryErrors) as caught:
        await producer.__aexit__(None, None, None)
    assert (caught.value.count, len(caught.value.exceptions)) == (120, 100)


async def test_tasks_can_be_cancelled_while_records_are_delivered(kafka: Any) -> None:
    topic = kafka.create_topic(None, 4)
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
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
    values = [record.value for record in await read(kafka.bootstrap, topic, 4)]
    assert len(values) == 5250
    assert values.count(b"cancelled") == 50, "cancelling a waiter must cancel no delivery"


async def test_low_level_calls_return_responses(kafka: Any) -> None:
    topic = kafka.create_topic(None, 1)
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
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
