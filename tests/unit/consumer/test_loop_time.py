"""Tests that the library never blocks the event loop for long, by the CPU time of each callback."""

import asyncio
import contextlib
import importlib
import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from loop_time import check_held, held_times, measured

from aiokclient import Consumer
from aiokclient.errors import NotLeaderOrFollowerError
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import Compression, RecordBatchBuilder


@pytest.fixture
def held() -> Iterator[list[float]]:
    """Yield the CPU times of all callbacks of event loops in this thread."""
    with contextlib.suppress(ImportError):
        # Without this, the first consumer that reads tables would import it.
        importlib.import_module("pyarrow")
    with held_times() as times:
        yield times


@measured
@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_large_batches_do_not_block_the_loop(
    compression: str, held: list[float], kafka_cluster: Any, kafka_topic: str
) -> None:
    for _ in range(3):
        kafka_cluster.produce(kafka_topic, [b"x" * 20] * 60_000, compression=compression)
    await asyncio.sleep(0)
    servers = kafka_cluster.bootstrap_servers
    held.clear()  # Discard the callbacks of the test's own setup.
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
    # Deserializing threads share the interpreter lock, but do not add to the CPU time of this
    # thread.
    check_held(held)


def packed(compression: str, size: int, count: int) -> bytes:
    """Return a batch of values that are half random, so that every codec makes it smaller."""
    chance = random.Random(count)
    builder = RecordBatchBuilder(compression=Compression[compression.upper()], limit=1 << 30)
    for _ in range(count):
        builder.append(1, None, chance.randbytes(size // 2) + bytes(size // 2))
    builder.close()
    return bytes(builder.seal())


async def read_all(consumer: Consumer[Any, Any], way: str) -> int:
    count = 0
    if way == "Arrow":
        async for table in consumer.arrow_batches():
            count += table.num_rows
            if all(not left for left in (await consumer.lag()).values()):
                break
    elif way == "lists":
        async for records in consumer.batches(max_records=5_000, until_end=True):
            count += len(records)
    else:
        async for _ in consumer.until_end():
            count += 1
    return count


WAYS = ("one by one", "lists", "Arrow")
CODECS = ("gzip", "snappy", "lz4", "zstd")
# Two ways for each codec, which take turns, unless everything is explored.
CODECS_AND_WAYS = [
    (codec, way)
    for codec, left_out in zip(CODECS, itertools.cycle(WAYS), strict=False)
    for way in WAYS
    if way != left_out or os.environ.get("AIOKCLIENT_EXPLORE")
]


@measured
@pytest.mark.parametrize(("compression", "way"), CODECS_AND_WAYS)
async def test_32_mb_of_compressed_batches_do_not_block_the_loop(
    compression: str, way: str, held: list[float], kafka_cluster: Any, kafka_topic: str
) -> None:
    large, small = packed(compression, 1_000, 16_000), packed(compression, 100, 1_300)
    made = [large] * 3 + [small] * ((32_000_000 - 3 * len(large)) // len(small))
    assert 31_000_000 < sum(map(len, made)) < 32_000_000
    assert max(map(len, made)) > 7_000_000
    for batch in made[2:] + made[:2]:
        kafka_cluster.append(kafka_topic, 0, batch)
    await asyncio.sleep(0)
    held.clear()
    servers = kafka_cluster.bootstrap_servers
    async with Consumer(
        kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        assert await read_all(consumer, way) == 48_000 + 1_300 * (len(made) - 3)
    check_held(held)


@measured
@pytest.mark.parametrize("way", ["one by one", "Arrow"])
async def test_very_compressible_batches_do_not_block_the_loop(
    way: str, held: list[float], kafka_cluster: Any, kafka_topic: str
) -> None:
    builder = RecordBatchBuilder(compression=Compression.GZIP, limit=1 << 30)
    for _ in range(60):
        builder.append(1, None, bytes(1_000_000))
    builder.close()
    batch = bytes(builder.seal())
    assert len(batch) < 200_000
    for _ in range(2):
        kafka_cluster.append(kafka_topic, 0, batch)
    await asyncio.sleep(0)
    held.clear()
    servers = kafka_cluster.bootstrap_servers
    async with Consumer(
        kafka_topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        assert await read_all(consumer, way) == 120
    check_held(held)


@measured
@pytest.mark.fault(38)
@pytest.mark.kafka_topic(partitions=1_000)
async def test_a_thousand_partitions_do_not_block_the_loop(
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
    check_held(held)
