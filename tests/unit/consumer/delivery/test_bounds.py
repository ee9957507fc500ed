"""Tests of memory limits: the size of lists and tables, and very compressible batches."""

import asyncio
import gc
import itertools
import random
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ConfigError, CorruptBatchError, DecompressionLimitError, RecordError
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import Compression, RecordBatchBuilder
from aiokclient.record.header import seal_crc

T0 = TopicPartition("t", 0)
MIB = 1 << 20
WAYS = ["one by one", "poll", "lists", "Arrow"]
CODECS = ["gzip", "snappy", "lz4", "zstd"]


def packed(codec: str, values: list[bytes], **options: Any) -> bytes:
    builder = RecordBatchBuilder(compression=Compression[codec.upper()], limit=1 << 31, **options)
    for value in values:
        builder.append(1, None, value)
    builder.close()
    return bytes(builder.seal())


async def read(consumer: Consumer[Any, Any], way: str, max_bytes: int) -> AsyncIterator[list[Any]]:
    """Yield the values in lists, as they are delivered."""
    if way == "one by one":
        async for record in consumer:
            yield [record.value]
    elif way == "poll":
        while True:
            yield [record.value for record in await consumer.poll(10, 100_000, max_bytes)]
    elif way == "lists":
        async for records in consumer.batches(100_000, max_wait=1.0, max_bytes=max_bytes):
            yield [record.value for record in records]
    else:
        pytest.importorskip("pyarrow")
        async for table in consumer.arrow_batches(max_bytes=max_bytes):
            yield table["value"].to_pylist()


async def first_lists(
    consumer: Consumer[Any, Any], way: str, count: int, max_bytes: int = 64 * MIB
) -> list[list[Any]]:
    """Return the lists that contain the first `count` records."""
    found: list[list[Any]] = []
    left = count
    async with asyncio.timeout(600):
        async for values in read(consumer, way, max_bytes):
            found.append(values)
            left -= len(values)
            if left <= 0:
                break
    return found


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("max_bytes", [1, 100, 1_000, 5_000, 1 << 40])
def test_lists_and_tables_hold_no_more_than_max_bytes(
    way: str, compression: str, max_bytes: int
) -> None:
    chance = random.Random(max_bytes)
    values = [chance.randbytes(chance.choice((0, 10, 90, 700, 3_000))) for _ in range(300)]

    async def scenario(world: World) -> None:
        for some in itertools.batched(values, 25) if hasattr(itertools, "batched") else [values]:
            world.cluster.produce("t", list(some), compression=compression)
        async with world.consumer("t") as consumer:
            found = await first_lists(consumer, way, 300, max_bytes)
        assert list(itertools.chain(*found)) == values
        assert all(found)
        for one in found:
            assert sum(map(len, one)) <= max_bytes or len(one) == 1

    simulate(scenario)


@pytest.mark.parametrize("way", ["poll", "lists"])
def test_max_bytes_counts_keys_values_and_headers_as_they_were_fetched(way: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=100) as producer:
            for _ in range(40):
                producer.send("t", b"v" * 50, key=b"k" * 30, headers=[("name", b"x" * 16)])
        options = {"value_deserializer": lambda data: None, "key_deserializer": len}
        async with world.consumer("t", **options) as consumer:
            found = await first_lists(consumer, way, 40, 1_000)
        assert [len(one) for one in found] == [10] * 4

    simulate(scenario)


def test_max_bytes_that_cannot_be_are_refused() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t") as consumer:
            for bad in (0, -1, "1", None):
                for call in (consumer.batches, consumer.arrow_batches):
                    with pytest.raises(Exception, match="max_bytes"):
                        call(max_bytes=bad)  # type: ignore[arg-type]
                with pytest.raises(Exception, match="max_bytes"):
                    await consumer.poll(max_bytes=bad)  # type: ignore[arg-type]

    simulate(scenario)


def partitions(count: int, batch: bytes) -> Any:
    def fill(world: World) -> None:
        for partition in range(count):
            world.cluster.append("t", partition, batch)

    return fill


@pytest.mark.parametrize("way", WAYS)
def test_memory_follows_what_is_delivered_when_batches_are_very_compressible(way: str) -> None:
    """Each of eight partitions has a batch of 100 MB which is a few KB when it is compressed."""
    batch = packed("zstd", [bytes(100_000)] * 1_000)
    assert len(batch) < 100_000

    async def scenario(world: World) -> None:
        partitions(8, batch)(world)
        async with world.consumer("t") as consumer:
            tracemalloc.start()
            try:
                count = 0
                async for values in read(consumer, way, 4 * MIB):
                    count += len(values)
                    if count >= 1_500:
                        break
                assert tracemalloc.get_traced_memory()[1] < 100 * MIB
            finally:
                tracemalloc.stop()

    simulate(scenario, topics={"t": 8})


def test_errors_of_damaged_batches_keep_nothing_alive() -> None:
    """The errors hold no reference to data that was decompressed before the damage was found."""
    batch = bytearray(packed("gzip", [bytes(8 * MIB)]) + b"no second member")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal_crc(batch)

    async def scenario(world: World) -> None:
        partitions(5, bytes(batch))(world)
        async with world.consumer("t") as consumer:
            tracemalloc.start()
            try:
                for _ in range(5):
                    with pytest.raises(CorruptBatchError):
                        await consumer.poll(timeout=10)
                    await asyncio.sleep(5)
                gc.collect()
                assert tracemalloc.get_traced_memory()[0] < 4 * MIB
            finally:
                tracemalloc.stop()

    simulate(scenario, topics={"t": 5})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_over_the_limit_names_the_option_until_it_is_passed(codec: str, way: str) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"before"])
        world.cluster.append("t", 0, packed(codec, [bytes(1_000)] * 2_000))
        world.cluster.produce("t", [b"after"])
        async with world.consumer("t", max_decompressed_batch_bytes=1_000_000) as consumer:
            assert await first_lists(consumer, way, 1) == [[b"before"]]
            for _ in range(3):
                with pytest.raises(DecompressionLimitError) as raised:
                    await first_lists(consumer, way, 1)
            error = raised.value
            assert isinstance(error, RecordError)
            assert not isinstance(error, CorruptBatchError)
            assert "max_decompressed_batch_bytes" in str(error)
            assert "1000000" in str(error)
            assert "is corrupt" not in str(error)
            where = (error.topic_partition, error.offset, error.last_offset)
            assert where == (T0, 1, 2_000)
            assert len(world.requests(ApiKey.FETCH)) < 5
            assert consumer.metrics().get("consumer.batches.damaged", 0) == 0
            consumer.seek(T0, error.last_offset + 1)
            assert await first_lists(consumer, way, 1) == [[b"after"]]
        async with world.consumer("t", max_decompressed_batch_bytes=4_000_000) as consumer:
            found = await first_lists(consumer, way, 2_002)
            assert sum(map(len, found)) == 2_002

    simulate(scenario)


def test_the_limit_has_a_default_and_must_be_positive() -> None:
    options = {"bootstrap_servers": "localhost:1"}
    assert Consumer("t", **options)._config.max_decompressed_batch_bytes == 268_435_456
    with pytest.raises(ConfigError, match="max_decompressed_batch_bytes"):
        Consumer("t", max_decompressed_batch_bytes=0, **options)


@pytest.mark.parametrize("way", WAYS)
def test_a_large_batch_is_read_from_its_middle_after_a_seek_and_a_pause(way: str) -> None:
    values = [b"%d" % number + bytes(20_000) for number in range(2_000)]

    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, packed("lz4", values))
        async with world.consumer("t") as consumer:
            seen = list(itertools.chain(*await first_lists(consumer, way, 700, MIB)))
            count = len(seen)
            assert seen == values[:count]
            consumer.seek(T0, 1_500)
            seen = list(itertools.chain(*await first_lists(consumer, way, 10, MIB)))
            assert seen == values[1_500 : 1_500 + len(seen)]
            begin = 1_500 + len(seen)
            consumer.pause([T0])
            await asyncio.sleep(1)
            consumer.resume([T0])
            other = WAYS[(WAYS.index(way) + 1) % len(WAYS)]
            seen = list(itertools.chain(*await first_lists(consumer, other, 10, MIB)))
            assert seen == values[begin : begin + len(seen)]
            consumer.seek(T0, 3)
            seen = list(itertools.chain(*await first_lists(consumer, way, 1_997, MIB)))
            assert seen == values[3:]

    simulate(scenario)
