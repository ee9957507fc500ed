"""Logs and topics that change while a consumer reads them, on a real Kafka."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from driver import Writer, partitions_of
from kafka_harness import KAFKA, OLD, ExternalKafka, KafkaCluster
from kafka_harness.probe import wait_until
from ledger import Ledger

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, TopicPartition
from aiokclient.admin import NewPartitions, NewTopic
from aiokclient.errors import LogTruncationError, OffsetOutOfRangeError
from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_client_quotas import EntityData, EntryData, OpData
from aiokclient.protocol.messages.describe_client_quotas import ComponentData
from aiokclient.protocol.messages.elect_leaders import TopicPartitions


@pytest_asyncio.fixture
async def admin(kafka: ExternalKafka) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        yield admin


def consumer(kafka: ExternalKafka, *topics: str, **options: Any) -> Consumer[Any, Any]:
    options.setdefault("auto_offset_reset", "earliest")
    return Consumer(*topics, bootstrap_servers=kafka.bootstrap, **options)


async def write(kafka: ExternalKafka, topic: str, values: list[bytes], **options: Any) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap, **options) as producer:
        await producer.gather([producer.send(topic, value, partition=0) for value in values])


async def read(reader: Consumer[Any, Any], count: int) -> list[Any]:
    """Read `count` records, and return their values."""
    values: list[Any] = []
    async with asyncio.timeout(60):
        while len(values) < count:
            values += [record.value for record in await reader.poll(timeout=1.0)]
    return values


def numbered(prefix: bytes, count: int) -> list[bytes]:
    return [prefix + b"-%d" % i for i in range(count)]


@pytest.mark.fault(21)
async def test_an_unclean_election_is_reported(kafka3: KafkaCluster) -> None:
    """Reading raises an error if the new leader never had some of the records that were read."""
    async with (
        Admin(bootstrap_servers=kafka3.bootstrap) as admin,
        consumer(kafka3, auto_offset_reset="none", metadata_max_age_ms=500) as reader,
    ):
        topic = kafka3.create_topic()  # This topic only provides an unused name.
        name, tp = f"{topic}-2", TopicPartition(f"{topic}-2", 0)
        created = await admin.create_topics([NewTopic(name, assignments={0: [2, 3]})])
        created.raise_for_errors()
        await asyncio.to_thread(kafka3.await_in_sync, name)
        await write(kafka3, name, numbered(b"kept", 50))
        kafka3.pause(3)
        await asyncio.to_thread(
            wait_until, "one replica", lambda: kafka3.partition(name, 0).in_sync == [2], 30
        )
        await write(kafka3, name, numbered(b"lost", 50))
        reader.assign([tp])
        reader.seek(tp, 0)
        assert len(await read(reader, 100)) == 100
        await asyncio.to_thread(kafka3.kill, 2)
        kafka3.resume(3)
        await elect_uncleanly(kafka3, name)
        await write(kafka3, name, numbered(b"new", 10))
        with pytest.raises(LogTruncationError) as raised:
            await read(reader, 1)
        assert raised.value.diverging_offset == 50
        reader.seek(tp, 50)
        assert await read(reader, 10) == numbered(b"new", 10)


async def elect_uncleanly(kafka: KafkaCluster, topic: str) -> None:
    request = messages.ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic=topic, partitions=[0])]
    )
    async with Client(bootstrap_servers=kafka.bootstrap) as client, asyncio.timeout(30):
        while kafka.leader(topic) != 3:
            await client.request(request, to=AnyBroker())
            await asyncio.sleep(0.05)


@pytest.mark.fault(22)
async def test_deleted_records_are_skipped(kafka: ExternalKafka, admin: Admin) -> None:
    topic = kafka.create_topic()
    tp = TopicPartition(topic, 0)
    await write(kafka, topic, numbered(b"v", 100))
    (await admin.delete_records({tp: 40})).raise_for_errors()
    async with consumer(kafka) as reader:
        reader.assign([tp])
        reader.seek(tp, 10)
        assert await read(reader, 60) == numbered(b"v", 100)[40:]
    async with consumer(kafka, auto_offset_reset="none") as reader:
        reader.assign([tp])
        reader.seek(tp, 10)
        with pytest.raises(OffsetOutOfRangeError):
            await read(reader, 1)


@pytest.mark.fault(24)
async def test_a_producer_writes_to_a_recreated_topic(kafka: ExternalKafka, admin: Admin) -> None:
    topic = kafka.create_topic()
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        assert (await producer.send(topic, b"old")).offset == 0
        (await admin.delete_topics([topic])).raise_for_errors()
        await asyncio.to_thread(
            wait_until, "the deletion", lambda: topic not in kafka.metadata([topic]).topics, 30
        )
        kafka.create_topic(topic)
        assert (await producer.send(topic, b"new")).offset == 0


@pytest.mark.fault(25)
async def test_kafkas_added_partitions_are_written_and_read(
    kafka: ExternalKafka, admin: Admin
) -> None:
    topic = kafka.create_topic()
    ledger = Ledger()
    options = {"bootstrap_servers": kafka.bootstrap, "metadata_max_age_ms": 500}
    async with (
        Producer(**options) as producer,
        Consumer(topic, auto_offset_reset="latest", **options) as reader,
    ):
        await reader.poll(timeout=0.0)
        (await admin.create_partitions({topic: NewPartitions(4)})).raise_for_errors()
        await asyncio.to_thread(kafka.await_partitions, topic, 4)
        await Writer(producer, ledger, partitions_of({topic: 4})).run(200)
        await producer.flush()
        async with asyncio.timeout(60):
            while sum(map(len, ledger.read.values())) < 150:
                ledger.consume_all(await reader.poll(timeout=1.0))
    assert not ledger.failed


@pytest.mark.timeout(600)  # The brokers start three times.
@pytest.mark.fault(33)
async def test_clients_continue_when_a_broker_returns_with_an_older_version(java: str) -> None:
    """A broker of Kafka 4.4 becomes 3.9, and then 4.4 again, with the same data under traffic."""
    with KafkaCluster(KAFKA, formatted_by=OLD) as kafka:
        topic = kafka.create_topic(partitions=2)
        ledger = Ledger()
        async with (
            Producer(bootstrap_servers=kafka.bootstrap) as producer,
            consumer(kafka, topic) as reader,
        ):
            writer = Writer(producer, ledger, partitions_of({topic: 2}), pause=0.005)
            writing = asyncio.create_task(writer.run())
            for version in (OLD, KAFKA):
                await ledger.until(len(ledger.acknowledged) + 200)
                await asyncio.to_thread(kafka.change_version, 1, version)
            await ledger.until(len(ledger.acknowledged) + 200)
            writer.stopped = True
            await writing
            await producer.flush()
            async with asyncio.timeout(60):
                while ledger.missing:
                    ledger.consume_all(await reader.poll(timeout=1.0))
        ledger.check()
        assert not ledger.failed


@pytest.mark.fault(49)
async def test_a_quota_slows_a_producer_down(kafka: ExternalKafka) -> None:
    """The producer waits as long as the broker's throttle times ask, and loses no record."""
    topic = kafka.create_topic()
    slow, options = f"slow-{topic}", {"bootstrap_servers": kafka.bootstrap}
    # The quota limits the average rate over ten seconds. The tenth send exceeds it.
    quota = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=slow)],
        ops=[OpData(key="producer_byte_rate", value=1_900.0)],
    )
    async with Client(**options) as client:
        request = messages.AlterClientQuotasRequest(entries=[quota])
        answer = await client.request(request, to=AnyBroker())
        assert [entry.error_code for entry in answer.entries] == [0]
        # The controller has sent the response. Wait until the broker knows the quota, too.
        component = ComponentData(entity_type="client-id", match_type=0, match=slow)
        described = messages.DescribeClientQuotasRequest(components=[component])
        async with asyncio.timeout(60):
            while not (await client.request(described, to=AnyBroker())).entries:
                pass
    loop, ledger = asyncio.get_running_loop(), Ledger()
    async with Producer(client_id=slow, linger_ms=0, **options) as producer:
        began = loop.time()
        writer = Writer(producer, ledger, [(topic, 0)], size=2_000)
        for count in range(1, 12):
            writer.send(topic, 0)
            await ledger.until(count)
        await producer.flush()
        assert loop.time() - began > 0.4
    assert not ledger.failed
