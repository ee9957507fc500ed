"""Reading, which behaves the same on the embedded cluster and on a real Kafka."""

import asyncio
import itertools
import math
import re
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from aiokclient import Admin, Consumer, Producer, ProducerRecord, TimestampType, TopicPartition
from aiokclient.admin import NewTopic
from aiokclient.errors import (
    OffsetOutOfRangeError,
    RecordError,
    UnknownTopicOrPartitionError,
)

EARLIEST = {"auto_offset_reset": "earliest"}


class Site:
    """A cluster with one topic, and helpers for the tests."""

    def __init__(self, servers: Any, topic: str) -> None:
        self.servers, self.topic = servers, topic

    @property
    def bootstrap(self) -> str:
        return str(self.servers.bootstrap)

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def consumer(self, *topics: Any, **options: Any) -> Consumer[Any, Any]:
        return Consumer(*topics, bootstrap_servers=self.bootstrap, **options)

    def reader(self, *topics: Any, **options: Any) -> Consumer[Any, Any]:
        """Return a consumer that reads the topic, or others, from the first record."""
        options.setdefault("auto_offset_reset", "earliest")
        return self.consumer(*(topics or (self.topic,)), **options)

    async def send(
        self, values: Sequence[bytes | ProducerRecord], partition: int = 0, **options: Any
    ) -> None:
        """Write records, and wait until all are acknowledged."""
        async with Producer(bootstrap_servers=self.bootstrap, **options) as producer:
            records = [
                value
                if isinstance(value, ProducerRecord)
                else ProducerRecord(self.topic, value, partition=partition)
                for value in values
            ]
            await producer.gather(producer.send_many(self.topic, records))

    async def send_more(self, count: int, partition: int = 0, topic: str = "") -> None:
        """Write records with values "partition:number" after the last record of the partition."""
        tp = TopicPartition(topic or self.topic, partition)
        async with Consumer(bootstrap_servers=self.bootstrap) as consumer:
            start = (await consumer.end_offsets([tp]))[tp]
        await self.send(
            [
                ProducerRecord(tp.topic, b"%d:%d" % (partition, i), None, partition)
                for i in range(start, start + count)
            ]
        )


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    return Site(cluster_servers, await cluster_servers.new_topic(partitions=3))


@pytest.fixture
async def admin(site: Site) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=site.bootstrap) as admin:
        yield admin


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


async def read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await consumer.poll()
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_a_topic_is_read_once_and_in_order(site: Site, codec: str) -> None:
    for partition in range(3):
        await site.send(numbers(500), partition, compression_type=codec, batch_size=2_000)
    async with site.consumer(site.topic, **EARLIEST) as consumer:
        seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        async for record in consumer.until_end():
            assert record.offset == len(seen[record.partition])
            seen[record.partition].append(record.value)
        assert seen == dict.fromkeys((0, 1, 2), numbers(500))


async def test_a_record_has_the_fields_that_were_sent(site: Site) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    sent = [
        ProducerRecord(site.topic, b"value", b"key", 0, 1_234_567, headers),
        ProducerRecord(site.topic, None, None, 0, 1_234_568),
        ProducerRecord(site.topic, b"", b"", 0, 1_234_569),
    ]
    await site.send(sent)
    async with site.consumer(site.topic, **EARLIEST) as consumer:
        records = await read(consumer, 3)
        assert [(r.key, r.value, r.timestamp) for r in records] == [
            (b"key", b"value", 1_234_567),
            (None, None, 1_234_568),
            (b"", b"", 1_234_569),
        ]
        assert list(records[0].headers) == headers
        assert records[0].timestamp_type is TimestampType.CREATE_TIME
        assert records[0].leader_epoch == 0


async def test_latest_reads_only_records_sent_after_the_start(site: Site) -> None:
    await site.send(numbers(5))
    async with site.consumer(site.topic) as consumer:
        await site.send(numbers(5, 5))
        assert [r.value for r in await read(consumer, 5)] == numbers(5, 5)


async def test_a_waiting_reader_gets_a_record_that_arrives(site: Site) -> None:
    async with site.consumer(site.topic) as consumer:
        waiting = asyncio.create_task(consumer.get(timeout=30))
        await asyncio.sleep(0)
        await site.send([b"now"], 2)
        record = await waiting
        assert record is not None
        assert (record.partition, record.value) == (2, b"now")


async def test_a_record_larger_than_the_fetch_limit_is_read(site: Site) -> None:
    large = bytes(300_000)
    await site.send([b"before", large, b"after"], batch_size=1_000)
    sizes = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000}
    async with site.consumer(site.topic, **EARLIEST, **sizes) as consumer:
        assert [r.value for r in await read(consumer, 3)] == [b"before", large, b"after"]


async def test_seek_and_pause_apply_to_the_next_record(site: Site) -> None:
    for partition in range(3):
        await site.send(numbers(20), partition)
    async with site.consumer() as consumer:
        consumer.assign([site.tp(0), site.tp(1)])
        consumer.seek(site.tp(0), 10)
        consumer.seek_to_beginning([site.tp(1)])
        consumer.pause([site.tp(1)])
        assert [r.offset for r in await read(consumer, 10)] == list(range(10, 20))
        consumer.resume([site.tp(1)])
        assert [r.offset for r in await read(consumer, 20)] == list(range(20))
        assert await consumer.lag() == {site.tp(0): 0, site.tp(1): 0}


async def test_lookups_return_end_offsets_and_offsets_for_times(site: Site) -> None:
    times = [1_000, 2_000, 2_000, 5_000]
    await site.send([ProducerRecord(site.topic, b"v", None, 0, time) for time in times])
    async with site.consumer() as consumer:
        tps = [site.tp(0), site.tp(1)]
        assert await consumer.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        assert await consumer.end_offsets(tps) == {site.tp(0): 4, site.tp(1): 0}
        found = await consumer.offsets_for_times({site.tp(0): 1_500, site.tp(1): 0})
        assert found[site.tp(1)] is None
        assert found[site.tp(0)] is not None
        assert found[site.tp(0)][:2] == (1, 2_000)
        assert await consumer.offsets_for_times({site.tp(0): 5_001}) == {site.tp(0): None}


async def test_reset_by_duration_begins_at_the_first_young_record(site: Site) -> None:
    now = int(time.time() * 1000)
    records = [ProducerRecord(site.topic, b"v", None, 0, now - age) for age in (10**9, 10**6, 0)]
    await site.send(records, batch_size=1)
    async with site.consumer(site.topic, auto_offset_reset="by_duration:PT2H") as consumer:
        assert await consumer.position(site.tp(0)) == 1


@pytest.mark.fault(22)
async def test_an_offset_out_of_range_is_reset_or_raised(site: Site) -> None:
    await site.send(numbers(20))
    async with Admin(bootstrap_servers=site.bootstrap) as admin:
        (await admin.delete_records({site.tp(0): 15})).raise_for_errors()
    async with site.consumer(**EARLIEST) as consumer:
        consumer.assign([site.tp(0)])
        consumer.seek(site.tp(0), 3)
        assert [r.offset for r in await read(consumer, 5)] == list(range(15, 20))
        assert consumer.metrics()[f"consumer.position.resets{{topic={site.topic}}}"] == 1
    async with site.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([site.tp(0)])
        consumer.seek(site.tp(0), 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll(timeout=30)


@pytest.mark.fault(25)
async def test_added_partitions_are_read_from_their_first_offset(site: Site) -> None:
    async with (
        Admin(bootstrap_servers=site.bootstrap) as admin,
        site.consumer(site.topic, metadata_max_age_ms=300) as consumer,
    ):
        (await admin.create_partitions({site.topic: 5})).raise_for_errors()
        await asyncio.to_thread(site.servers.kafka.await_partitions, site.topic, 5)
        await site.send(numbers(5), 4)
        records = await read(consumer, 5)
        assert [(r.partition, r.offset) for r in records] == [(4, i) for i in range(5)]


@pytest.mark.fault(24)
async def test_a_recreated_topic_is_read_from_its_first_offset(site: Site) -> None:
    await site.send(numbers(10))
    async with (
        Admin(bootstrap_servers=site.bootstrap) as admin,
        site.consumer(site.topic, metadata_max_age_ms=300, **EARLIEST) as consumer,
    ):
        await read(consumer, 10)
        (await admin.delete_topics([site.topic])).raise_for_errors()
        await created(admin, site.topic)
        await site.send(numbers(15, 100))
        records = await read(consumer, 15)
        assert [r.offset for r in records] == list(range(15))
        assert [r.value for r in records] == numbers(15, 100)


async def created(admin: Admin, topic: str) -> None:
    """Create a topic again, which may fail for a moment after the old one was deleted."""
    async with asyncio.timeout(30):
        while True:
            answer = await admin.create_topics([NewTopic(topic, 1, 1)])
            if not answer.errors:
                return
            await asyncio.sleep(0.05)


async def test_hundreds_of_partitions_are_read(cluster_servers: Any) -> None:
    site = Site(cluster_servers, await cluster_servers.new_topic(partitions=200))
    records = [ProducerRecord(site.topic, b"%d" % i, None, i % 200) for i in range(3_000)]
    await site.send(records)
    async with site.consumer(site.topic, fetch_max_bytes=20_000, **EARLIEST) as consumer:
        seen = [r.value async for r in consumer.until_end()]
        assert sorted(map(int, seen)) == list(range(3_000))
        assert set((await consumer.lag()).values()) == {0}


async def test_arrow_batches_have_the_records(site: Site) -> None:
    pytest.importorskip("pyarrow")
    await site.send(numbers(100), 1, compression_type="lz4")
    async with site.consumer(site.topic, **EARLIEST) as consumer:
        values: list[bytes] = []
        async for table in consumer.arrow_batches():
            values += table.column("value").to_pylist()
            if len(values) >= 100:
                break
        assert values == numbers(100)


async def test_until_end_ends_with_empty_partitions(site: Site) -> None:
    await site.send_more(500, 1)
    async with site.reader() as consumer:
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
    await site.send_more(300)
    async with site.reader() as consumer:
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
    await site.send_more(5)
    async with site.reader(pattern, **options) as consumer:
        (await admin.create_partitions({site.topic: 5})).raise_for_errors()
        await site.send_more(7, 4)
        (await admin.create_topics([NewTopic(f"{prefix}-x", 2, 1)])).raise_for_errors()
        await site.send_more(6, 1, f"{prefix}-x")
        await site.send_more(1, 0)
        seen: dict[TopicPartition, list[int]] = {}
        for record in await read(consumer, 14):
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
        await site.send_more(5, 3)
        assert [r.offset for r in await read(consumer, 5)] == list(range(5))
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.partitions_for(f"nowhere-{uuid.uuid4().hex}")


async def test_repeated_cancellations_lose_no_record(site: Site) -> None:
    await site.send_more(2_000)
    seen: list[int] = []
    async with site.reader(max_partition_fetch_bytes=3_000) as consumer:
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
    async with site.reader(value_deserializer=int) as consumer:
        assert [r.value for r in await read(consumer, 1)] == [1]
        with pytest.raises(RecordError) as raised:
            await consumer.poll(timeout=30)
        assert (raised.value.topic_partition, raised.value.offset) == (site.tp(), 1)
        assert [r.value for r in await read(consumer, 1)] == [3]


async def test_stop_and_close_end_the_reading(site: Site) -> None:
    await site.send_more(10)
    seen: list[int] = []
    caught_up = asyncio.Event()

    async def follow(consumer: Consumer[Any, Any]) -> None:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                caught_up.set()

    async with site.reader() as consumer:
        task = asyncio.create_task(follow(consumer))
        await caught_up.wait()
        await asyncio.to_thread(consumer.stop)
        await task
    consumer = await site.reader()
    seen.clear()
    caught_up.clear()
    task = asyncio.create_task(follow(consumer))
    await caught_up.wait()
    await consumer.close()
    await task


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
