"""A broker of Kafka 3.9.1: the client negotiates older versions, and everything else works."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_harness import ExternalKafka, KafkaCluster

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from aiokclient.errors import TopicExistsError, UnknownTopicOrPartitionError
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NEWEST_OF_3_9 = {ApiKey.PRODUCE: 11, ApiKey.FETCH: 17, ApiKey.METADATA: 12, ApiKey.API_VERSIONS: 4}


def reading(kafka: ExternalKafka, **options: Any) -> Any:
    return {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"} | options


async def test_the_old_broker_lacks_new_versions(kafka_old: KafkaCluster) -> None:
    async with Client(bootstrap_servers=kafka_old.bootstrap) as client:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        response = await client.request(request, AnyBroker())
    spoken = {entry.api_key: entry.max_version for entry in response.api_keys}
    assert {key: spoken[key] for key in NEWEST_OF_3_9} == NEWEST_OF_3_9
    assert messages.ProduceRequest.max_version > NEWEST_OF_3_9[ApiKey.PRODUCE]
    assert messages.FetchRequest.max_version > NEWEST_OF_3_9[ApiKey.FETCH]
    assert messages.MetadataRequest.max_version > NEWEST_OF_3_9[ApiKey.METADATA]


@pytest.mark.parametrize("codec", CODECS)
async def test_an_old_broker_returns_the_records_that_were_sent(
    kafka_old: KafkaCluster, codec: str
) -> None:
    topic = kafka_old.create_topic(partitions=3)
    async with Producer(bootstrap_servers=kafka_old.bootstrap, compression_type=codec) as producer:
        sent = [
            producer.send(topic, b"%d" % n, b"%d" % n, headers=[("n", b"%d" % n)], timestamp=n)
            for n in range(300)
        ]
        results = await producer.gather(sent)
    async with Consumer(topic, **reading(kafka_old)) as consumer:
        read = {
            (r.partition, r.offset): (r.value, r.key, list(r.headers), r.timestamp)
            async for r in consumer.until_end()
        }
    assert read == {
        (result.partition, result.offset): (b"%d" % n, b"%d" % n, [("n", b"%d" % n)], n)
        for n, result in enumerate(results)
    }


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_an_old_broker_acknowledges_with_every_acks(
    kafka_old: KafkaCluster, acks: int | str
) -> None:
    topic = kafka_old.create_topic()
    async with Producer(bootstrap_servers=kafka_old.bootstrap, acks=acks) as producer:
        result = await producer.send(topic, b"v")
    assert result.offset == (-1 if acks == 0 else 0)
    async with Consumer(topic, **reading(kafka_old)) as consumer:
        record = await consumer.get(timeout=30)
    assert record is not None
    assert record.value == b"v"


async def test_an_old_broker_returns_offsets_and_accepts_seeks(kafka_old: KafkaCluster) -> None:
    topic = kafka_old.create_topic()
    tp = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=kafka_old.bootstrap) as producer:
        for n in range(10):
            await producer.send(topic, b"%d" % n, timestamp=1000 * n)
    async with Consumer(**reading(kafka_old, isolation_level="read_committed")) as consumer:
        consumer.assign([tp])
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 10}
        found = (await consumer.offsets_for_times({tp: 4500}))[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (5, 5000)
        consumer.seek(tp, 7)
        assert [record.value async for record in consumer.until_end()] == [b"7", b"8", b"9"]
        assert await consumer.lag() == {tp: 0}


async def test_an_old_broker_reports_a_missing_topic(kafka_old: KafkaCluster) -> None:
    options: Any = {"bootstrap_servers": kafka_old.bootstrap, "max_block_ms": 3_000}
    async with Producer(**options) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("nobody-made-this", b"v")


async def test_an_old_broker_serves_admin_calls(kafka_old: KafkaCluster) -> None:
    async with Admin(bootstrap_servers=kafka_old.bootstrap) as admin:
        name = kafka_old.create_topic()
        again = await admin.create_topics([NewTopic(name, 1, 1)])
        assert isinstance(again[name], TopicExistsError)
        (await admin.create_partitions({name: 2})).raise_for_errors()
        await asyncio.to_thread(kafka_old.await_partitions, name, 2)
        described = (await admin.describe_topics([name])).raise_for_errors()
        assert len(described[name].partitions) == 2
        tp = TopicPartition(name, 0)
        async with Producer(bootstrap_servers=kafka_old.bootstrap) as producer:
            await producer.gather(producer.send(name, b"v", partition=0) for _ in range(3))
        (await admin.delete_records({tp: 2})).raise_for_errors()
        async with Consumer(name, **reading(kafka_old)) as consumer:
            assert [record.offset async for record in consumer.until_end()] == [2]
        (await admin.delete_topics([name])).raise_for_errors()
