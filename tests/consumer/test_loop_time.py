"""The library itself never holds the loop for long: in CPU time of each callback."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from loop_time import LIMIT_S, held_times

from aiokclient import Consumer
from aiokclient.errors import NotLeaderOrFollowerError
from aiokclient.protocol import ApiKey


@pytest.fixture
def held() -> Iterator[list[float]]:
    """How long each callback of a loop in this thread has run, in its CPU time."""
    with held_times() as times:
        yield times


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_large_batches(
    compression: str, held: list[float], kafka_cluster: Any, kafka_topic: str
) -> None:
    for _ in range(3):
        kafka_cluster.produce(kafka_topic, [b"x" * 20] * 60_000, compression=compression)
    await asyncio.sleep(0)
    held.clear()  # What the test itself did until here does not count.
    servers = kafka_cluster.bootstrap_servers
    async with Consumer(
        kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        count = 0
        async for _ in consumer.until_end():
            count += 1
        consumer.seek_to_beginning()
        async for records in consumer.batches(max_records=10_000, until_end=True):
            count += len(records)
    assert count == 360_000
    # The deserializing threads share the interpreter, but not this thread's time.
    assert max(held) < LIMIT_S


@pytest.mark.fault(38)
@pytest.mark.kafka_topic(partitions=1_000)
async def test_a_thousand_partitions(
    held: list[float], kafka_cluster: Any, kafka_topic: str
) -> None:
    def fill(count: int = 1) -> None:
        for partition in range(1_000):
            kafka_cluster.produce(kafka_topic, [b"v"] * count, partition=partition)

    await asyncio.to_thread(fill, 5)
    servers = kafka_cluster.bootstrap_servers
    async with Consumer(
        kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        held.clear()
        count = 0
        while count < 5_000:
            count += len(await consumer.poll())
        with kafka_cluster.fail(ApiKey.FETCH, NotLeaderOrFollowerError, times=3):
            await asyncio.to_thread(fill)
            while count < 6_000:
                count += len(await consumer.poll())
        for tp in consumer.assignment():
            consumer.seek(tp, 5)
        while count < 7_000:
            count += len(await consumer.poll())
    assert max(held) < LIMIT_S
