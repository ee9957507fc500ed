"""Faults that a consumer meets on a real Kafka."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from kafka_harness import KafkaCluster

from aiokclient import Consumer, Producer


async def send(kafka: Any, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap, batch_size=200) as producer:
        await producer.gather([producer.send(topic, v, partition=partition) for v in values])


async def test_no_record_is_lost_when_a_leader_dies(kafka3: KafkaCluster) -> None:
    topic = kafka3.create_topic(partitions=3, replication=3)
    for partition in range(3):
        await send(kafka3, topic, [b"%d" % i for i in range(300)], partition)
    options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 500}
    async with Consumer(topic, bootstrap_servers=kafka3.bootstrap, **options) as consumer:
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        leader = kafka3.leader(topic)
        async for record in consumer.until_end():
            seen[record.partition].append(record.offset)
            if sum(map(len, seen.values())) == 100:
                await asyncio.to_thread(kafka3.kill, leader)
        assert seen == {partition: list(range(300)) for partition in range(3)}


def transactions(bootstrap: str, topic: str) -> None:
    """Write committed values c0 to c29 and aborted a0 to a29 by librdkafka, ten of each in turn."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(30)
    for turn in range(3):
        for kind, finish in (("a", producer.abort_transaction), ("c", producer.commit_transaction)):
            producer.begin_transaction()
            for i in range(turn * 10, turn * 10 + 10):
                producer.produce(topic, b"%s%d" % (kind.encode(), i), partition=0)
            producer.flush(30)
            finish(30)


@pytest.mark.fault(52)
@pytest.mark.parametrize("size", [300, 1 << 20])
async def test_records_of_aborted_transactions_are_skipped(kafka: Any, size: int) -> None:
    topic = kafka.create_topic(partitions=1, replication=1)
    await asyncio.to_thread(transactions, kafka.bootstrap, topic)
    options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": size}
    bootstrap = {"bootstrap_servers": kafka.bootstrap}
    async with Consumer(
        topic, isolation_level="read_committed", **options, **bootstrap
    ) as consumer:
        values = [r.value async for r in consumer.until_end()]
        assert values == [b"c%d" % i for i in range(30)]
    async with Consumer(topic, **options, **bootstrap) as consumer:
        assert len([r async for r in consumer.until_end()]) == 60
