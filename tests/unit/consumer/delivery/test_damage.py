"""Tests of records that cannot be read: deserializer errors, damage, aborts, and large batches."""

import asyncio
import itertools
from typing import Any

import pytest
from world import World, simulate

from aiokclient import SKIP, Consumer, TopicPartition
from aiokclient.errors import CorruptBatchError, RecordError
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)
CRC_AT = 17


def number(data: bytes) -> int:
    return int(data)


async def read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll()
    return found


async def follow(consumer: Consumer[Any, Any], seen: list[Any]) -> None:
    async for record in consumer:
        seen.append(record.value)


def test_a_record_error_is_raised_once() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"1", b"bad", b"3"])
        async with world.consumer("t", value_deserializer=number) as consumer:
            seen: list[Any] = []
            with pytest.raises(RecordError, match="t-0 offset 2") as raised:
                await follow(consumer, seen)
            assert raised.value.raw_value == b"bad"
            assert consumer.consumed()[T0].offset == 3
            async for record in consumer:
                seen.append(record.value)
                break
            assert seen == [0, 1, 3]

            consumer.seek_to_beginning()
            assert [r.value for r in await consumer.poll()] == [0, 1]
            with pytest.raises(RecordError):
                await consumer.poll()
            assert [r.value for r in await consumer.poll()] == [3]

            consumer.seek(T0, 2)
            with pytest.raises(RecordError):
                await consumer.get()
            record = await consumer.get()
            assert record is not None
            assert record.value == 3

    simulate(scenario)


def test_poisonous_records_are_left_out_or_replaced() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"0", b"skip", b"2", b"other", b"skip"])

        def decide(error: RecordError) -> Any:
            return SKIP if error.raw_value == b"skip" else -1

        options = {"value_deserializer": number, "on_record_error": decide}
        async with world.consumer("t", **options) as consumer:
            records = [r async for r in consumer.until_end()]
            assert [r.value for r in records] == [0, 2, -1]
            assert consumer.consumed()[T0].offset == 5

    simulate(scenario)


def test_slow_deserializers_yield_to_the_loop() -> None:
    """Other tasks run between the deserializer calls for one batch."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1"] * 1_000)
        turns: list[float] = []

        def slow(data: bytes) -> bytes:
            world.sim.loop.leap(0.002)
            return data

        async def watch() -> None:
            while True:
                turns.append(world.now)
                await asyncio.sleep(0)
                await asyncio.sleep(0.001)

        async with world.consumer("t", value_deserializer=slow) as consumer:
            watching = asyncio.create_task(watch())
            assert len([r async for r in consumer.until_end()]) == 1_000
            watching.cancel()
        gaps = [b - a for a, b in itertools.pairwise(turns)]
        assert max(gaps) < 0.1

    simulate(scenario)


def damaging(offset: int, times: int) -> Any:
    """Return a function that flips one bit of the batch at `offset`, after its header.

    It does so for the first `times` responses.
    """
    left = [times]

    def change(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                pieces = [bytes(piece) for piece in partition.records or ()]
                for i, piece in enumerate(pieces):
                    if int.from_bytes(piece[:8], "big") == offset and left[0]:
                        left[0] -= 1
                        pieces[i] = piece[:-1] + bytes([piece[-1] ^ 1])
                partition.records = pieces
        return response

    return change


def fill(world: World) -> None:
    for first in range(0, 40, 10):
        world.cluster.produce("t", [b"%d" % i for i in range(first, first + 10)])


@pytest.mark.fault(32)
def test_a_batch_damaged_on_the_way_is_fetched_again() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        with world.cluster.alter(ApiKey.FETCH, damaging(20, 1)):
            async with world.consumer("t") as consumer:
                assert [r.value for r in await read(consumer, 40)] == [b"%d" % i for i in range(40)]
                assert consumer.metrics()["consumer.batches.damaged"] == 1

    simulate(scenario)


async def by_iteration(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for record in consumer:
        offsets.append(record.offset)


async def by_poll(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    while True:
        offsets += [record.offset for record in await consumer.poll()]


async def by_arrow(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for table in consumer.arrow_batches():
        offsets += table.column("offset").to_pylist()


READ = {"iteration": by_iteration, "poll": by_poll, "arrow": by_arrow}


@pytest.mark.fault(32)
@pytest.mark.parametrize("way", list(READ))
def test_a_damaged_batch_is_raised_until_the_user_seeks_past_it(way: str) -> None:
    async def scenario(world: World) -> None:
        fill(world)
        with world.cluster.alter(ApiKey.FETCH, damaging(20, 99)):
            async with world.consumer("t") as consumer:
                offsets: list[int] = []
                with pytest.raises(CorruptBatchError) as raised:
                    await READ[way](consumer, offsets)
                error = raised.value
                assert (error.topic_partition, error.offset, error.last_offset) == (T0, 20, 29)
                for _ in range(2):
                    with pytest.raises(CorruptBatchError):
                        await consumer.poll()
                assert offsets == list(range(20))
                consumer.seek(T0, error.last_offset + 1)
                assert [r.offset for r in await read(consumer, 10)] == list(range(30, 40))

    if way == "arrow":
        pytest.importorskip("pyarrow")
    simulate(scenario)


@pytest.mark.fault(32)
@pytest.mark.parametrize("header", [b"\xff" * 12, b"\x00" * 8 + b"\x7f\xff\xff\xff", b"\x00" * 12])
def test_bytes_that_are_no_batch_are_reported(header: bytes) -> None:
    def change(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.records:
                    partition.records = [header + bytes(b"".join(partition.records))[12:]]
        return response

    async def scenario(world: World) -> None:
        fill(world)
        with world.cluster.alter(ApiKey.FETCH, change):
            async with world.consumer("t") as consumer:
                with pytest.raises(CorruptBatchError) as raised:
                    await consumer.poll(timeout=20.0)
                assert raised.value.offset == 0
        assert len(world.requests(ApiKey.FETCH)) < 10

    simulate(scenario)


def garbled(every: int) -> Any:
    """Return a function that replaces record batches by garbage.

    It does so for the first response with records, and for each `every`-th one after it.
    """
    count = itertools.count()

    def change(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.records and next(count) % every == 0:
                    partition.records = [bytes(100)]
        return response

    return change


@pytest.mark.parametrize("way", list(READ))
@pytest.mark.parametrize("patience", [0.0, 5.0], ids=["read at once", "read later"])
def test_a_good_batch_fetched_after_a_damaged_one_is_delivered(way: str, patience: float) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"%d" % i for i in range(10)])
        with world.cluster.alter(ApiKey.FETCH, garbled(2)):
            async with world.consumer("t") as consumer:
                offsets: list[int] = []
                await asyncio.sleep(patience)
                reading = asyncio.create_task(READ[way](consumer, offsets))
                await world.cluster.until(lambda: len(offsets) == 10 or reading.done())
                assert offsets == list(range(10))
                reading.cancel()
                assert consumer.metrics()["consumer.batches.damaged"] == 1

    if way == "arrow":
        pytest.importorskip("pyarrow")
    simulate(scenario)


def produce_transactions(world: World) -> None:
    """Produce committed and aborted transactions.

    Committed offsets: 0-9, 20-29, and 50-59. Aborted offsets: 10-19, and 31-40 of another producer.
    """
    values = [b"%d" % i for i in range(10)]
    world.cluster.produce("t", values)
    for producer_id, sequence, commit in ((1, 0, False), (1, 10, True), (2, 0, False)):
        world.cluster.produce(
            "t", values, producer_id=producer_id, base_sequence=sequence, transactional=True
        )
        world.cluster.end_transaction("t", producer_id=producer_id, commit=commit)
    world.cluster.produce("t", values)


@pytest.mark.parametrize("size", [200, 1 << 20])
def test_read_committed_leaves_out_what_was_aborted(size: int) -> None:
    async def scenario(world: World) -> None:
        produce_transactions(world)
        options = {"isolation_level": "read_committed", "max_partition_fetch_bytes": size}
        async with world.consumer("t", **options) as consumer:
            offsets = [r.offset async for r in consumer.until_end()]
            assert offsets == [*range(10), *range(21, 31), *range(43, 53)]
            consumer.seek(T0, 15)
            assert [r.offset async for r in consumer.until_end()] == offsets[10:]
        async with world.consumer("t") as consumer:
            assert len([r async for r in consumer.until_end()]) == 50
            assert consumer.consumed()[T0].offset == 53

    simulate(scenario)


@pytest.mark.fault(52)
def test_a_list_of_aborted_transactions_out_of_order() -> None:
    def reverse(request: Any, response: Any) -> Any:
        for topic in response.responses:
            for partition in topic.partitions:
                partition.aborted_transactions = (partition.aborted_transactions or [])[::-1]
        return response

    async def scenario(world: World) -> None:
        produce_transactions(world)
        with world.cluster.alter(ApiKey.FETCH, reverse):
            async with world.consumer("t", isolation_level="read_committed") as consumer:
                assert len([r async for r in consumer.until_end()]) == 30

    simulate(scenario)


def test_an_open_transaction_holds_back_what_follows() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 5)
        world.cluster.produce("t", [b"v"] * 5, producer_id=1, transactional=True)
        world.cluster.produce("t", [b"v"] * 5)
        async with world.consumer("t", isolation_level="read_committed") as consumer:
            assert await consumer.end_offsets([T0]) == {T0: 5}
            assert len([r async for r in consumer.until_end()]) == 5
            assert await consumer.poll() == []
            world.cluster.end_transaction("t", producer_id=1)
            assert len(await read(consumer, 10)) == 10

    simulate(scenario)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_large_batches_are_decoded_in_threads(
    compression: str, kafka_cluster: Any, kafka_topic: str
) -> None:
    """A fetch has two batches, and one is decoded ahead of the reader.

    Cancellations lose no records.
    """
    values = [b"%d" % i * 50 for i in range(20_000)]
    for first in range(0, 20_000, 5_000):
        batch = values[first : first + 5_000]
        kafka_cluster.produce(kafka_topic, batch, compression=compression)
    options = {
        "auto_offset_reset": "earliest",
        "bootstrap_servers": kafka_cluster.bootstrap_servers,
    }
    async with Consumer(kafka_topic, **options) as consumer:
        found: list[Any] = []
        while len(found) < 20_000:
            waiting = asyncio.create_task(consumer.poll(timeout=5.0, max_records=3_000))
            if len(found) % 2:
                await asyncio.sleep(0)
                waiting.cancel()
            try:
                found += [r.value for r in await waiting]
            except asyncio.CancelledError:
                found += [r.value for r in await consumer.poll(timeout=5.0)]
            if len(found) < 20_000:
                record = await consumer.get(timeout=5.0)
                assert record is not None
                found.append(record.value)
        assert found == values
