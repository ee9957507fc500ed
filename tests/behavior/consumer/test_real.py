"""Consumer behavior that depends on the brokers, on the embedded cluster and on a real Kafka."""

import asyncio
import itertools
import math
import re
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokclient import Admin, Consumer, NewTopic, Producer, ProducerRecord, TopicPartition
from aiokclient.errors import RecordError, UnknownTopicOrPartitionError


class Site:
    def __init__(self, servers: Any, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.bootstrap: str = servers.bootstrap

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def consumer(self, *topics: Any, **options: Any) -> Consumer[Any, Any]:
        options.setdefault("auto_offset_reset", "earliest")
        return Consumer(*(topics or (self.topic,)), bootstrap_servers=self.bootstrap, **options)

    async def send(self, count: int, partition: int = 0, topic: str = "") -> None:
        """Write records with values "partition:number" after the last record of the partition."""
        tp = TopicPartition(topic or self.topic, partition)
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            async with Consumer(bootstrap_servers=self.bootstrap) as consumer:
                start = (await consumer.end_offsets([tp]))[tp]
            records = [
                ProducerRecord(tp.topic, b"%d:%d" % (partition, i), None, partition)
                for i in range(start, start + count)
            ]
            await producer.gather(producer.send_many(tp.topic, records))


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    return Site(cluster_servers, await cluster_servers.new_topic(partitions=3))


@pytest.fixture
async def admin(site: Site) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=site.bootstrap) as admin:
        yield admin


async def drain(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        records = await consumer.poll(timeout=30.0)
        assert records, f"{len(found)} of {count} records arrived"
        found += records
    return found


async def test_until_end_ends_with_empty_partitions(site: Site) -> None:
    await site.send(500, 1)
    async with site.consumer() as consumer:
        assert [r.offset async for r in consumer.until_end()] == list(range(500))
        assert [r async for r in consumer.until_end()] == []
        lists = [len(each) async for each in consumer.batches(until_end=True, max_wait=math.inf)]
        assert lists == []
        consumer.seek_to_beginning()
        lists = [
            len(each)
            async for each in consumer.batches(max_records=123, max_wait=math.inf, until_end=True)
        ]
        assert lists == [123, 123, 123, 123, 8]


async def test_all_ways_to_read_can_follow_each_other(site: Site) -> None:
    await site.send(300)
    async with site.consumer() as consumer:
        seen: list[int] = []
        while len(seen) < 200:
            async for record in consumer:
                seen.append(record.offset)
                break
            seen += [r.offset for r in await consumer.poll(timeout=30, max_records=3)]
            record = await consumer.get(timeout=30)
            assert record is not None
            seen.append(record.offset)
            async for records in consumer.batches(max_records=4):
                seen += [r.offset for r in records]
                break
            assert consumer.consumed()[site.tp()].offset == len(seen)
        async for record in consumer.until_end():
            seen.append(record.offset)
    assert seen == list(range(300))


async def test_new_partitions_and_topics_are_read(site: Site, admin: Admin) -> None:
    prefix = f"late-{uuid.uuid4().hex[:8]}"
    pattern = re.compile(f"{re.escape(site.topic)}|{prefix}-.*")
    options = {"auto_offset_reset": "latest", "metadata_max_age_ms": 200}
    await site.send(5)
    async with site.consumer(pattern, **options) as consumer:
        (await admin.create_partitions({site.topic: 5})).raise_for_errors()
        await site.send(7, 4)
        (await admin.create_topics([NewTopic(f"{prefix}-x", 2, 1)])).raise_for_errors()
        await site.send(6, 1, f"{prefix}-x")
        await site.send(1, 0)
        seen: dict[TopicPartition, list[int]] = {}
        for record in await drain(consumer, 14):
            seen.setdefault(TopicPartition(record.topic, record.partition), []).append(
                record.offset
            )
        assert seen == {
            site.tp(4): list(range(7)),
            TopicPartition(f"{prefix}-x", 1): list(range(6)),
            site.tp(0): [5],
        }


async def test_an_assigned_partition_is_read_once_it_exists(site: Site, admin: Admin) -> None:
    options = {"auto_offset_reset": "latest", "retry_backoff_max_ms": 200}
    async with Consumer(bootstrap_servers=site.bootstrap, **options) as consumer:
        consumer.assign([site.tp(3)])
        async with asyncio.timeout(60):
            while not any(str(site.tp(3)) in reason for reason in consumer.health().reasons):
                assert await consumer.poll(timeout=0.1) == []
        (await admin.create_partitions({site.topic: 4})).raise_for_errors()
        await site.send(5, 3)
        assert [r.offset for r in await drain(consumer, 5)] == list(range(5))
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.partitions_for(f"nowhere-{uuid.uuid4().hex}")


async def test_repeated_cancellations_lose_no_record(site: Site) -> None:
    await site.send(2_000)
    seen: list[int] = []
    async with site.consumer(max_partition_fetch_bytes=3_000) as consumer:
        iterator = aiter(consumer)
        for turn in itertools.count():
            try:
                async with asyncio.timeout(0.0005 * (turn % 9)):
                    while len(seen) < 2_000:
                        seen.append((await anext(iterator)).offset)
                break
            except TimeoutError:
                pass
    assert seen == list(range(2_000))


async def test_a_bad_record_raises_and_the_next_is_read(site: Site) -> None:
    async with Producer(bootstrap_servers=site.bootstrap) as producer:
        values = [b"1", b"x", b"3"]
        await producer.gather([producer.send(site.topic, v, partition=0) for v in values])
    async with site.consumer(value_deserializer=int) as consumer:
        assert [r.value for r in await drain(consumer, 1)] == [1]
        with pytest.raises(RecordError) as raised:
            await consumer.poll(timeout=30)
        assert (raised.value.topic_partition, raised.value.offset) == (site.tp(), 1)
        assert [r.value for r in await drain(consumer, 1)] == [3]


async def test_stop_and_close_end_the_reading(site: Site) -> None:
    await site.send(10)
    seen: list[int] = []
    caught_up = asyncio.Event()

    async def follow(consumer: Consumer[Any, Any]) -> None:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                caught_up.set()

    async with site.consumer() as consumer:
        task = asyncio.create_task(follow(consumer))
        await caught_up.wait()
        await asyncio.to_thread(consumer.stop)
        await task
    consumer = await site.consumer()
    seen.clear()
    caught_up.clear()
    task = asyncio.create_task(follow(consumer))
    await caught_up.wait()
    await consumer.close()
    await task


async def test_hundreds_of_partitions_are_read(cluster_servers: Any) -> None:
    site = Site(cluster_servers, await cluster_servers.new_topic(partitions=200))
    async with Producer(bootstrap_servers=site.bootstrap) as producer:
        records = [ProducerRecord(site.topic, b"%d" % i, None, i % 200) for i in range(3_000)]
        await producer.gather(producer.send_many(site.topic, records))
    async with site.consumer() as consumer:
        values = [int(r.value) async for r in consumer.until_end()]
        assert sorted(values) == list(range(3_000))
        assert set((await consumer.lag()).values()) == {0}


@pytest.mark.kafka
async def test_transactions_of_librdkafka_are_read(kafka: Any) -> None:
    """Transactions of librdkafka's producer are read: committed, aborted, and open ones."""
    confluent = pytest.importorskip("confluent_kafka")
    topic = await asyncio.to_thread(kafka.create_topic, None, 1)

    def produce() -> Any:
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex}
        producer = confluent.Producer(settings)
        producer.init_transactions(30)
        for turn, commit in enumerate([True, False, True, False]):
            producer.begin_transaction()
            for i in range(5):
                producer.produce(topic, b"%d:%d" % (turn, i), partition=0)
            producer.flush(30)
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(30)
        return producer

    producer = await asyncio.to_thread(produce)
    tp = TopicPartition(topic, 0)
    options: Any = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
    expected = [b"%d:%d" % (turn, i) for turn in (0, 2) for i in range(5)]
    async with Consumer(topic, isolation_level="read_committed", **options) as consumer:
        assert [r.value async for r in consumer.until_end()] == expected
        assert await consumer.end_offsets([tp]) == {tp: 24}
        assert await consumer.position(tp) == 24
        consumer.seek_to_beginning()
        values: list[bytes] = []
        async for table in consumer.arrow_batches():
            values += table.column("value").to_pylist()
            if len(values) >= 10:
                break
        assert values == expected
        waiting = asyncio.create_task(consumer.poll(timeout=60))
        await asyncio.to_thread(producer.commit_transaction, 30)
        assert [r.value for r in await waiting] == [b"open"]
    async with Consumer(topic, **options) as consumer:
        assert len([r async for r in consumer.until_end()]) == 21
        assert await consumer.position(tp) == 26
