"""Tests of topics that are unknown, missing, recreated, or get more partitions.

One topic accepts only small batches. The tests run on a simulated cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from ledger import Ledger
from world import World, simulate

from aiokclient.cluster.lifecycle.supervisor import Callbacks
from aiokclient.errors import (
    BufferExhaustedError,
    DeliveryErrors,
    DeliveryTimeoutError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.protocol import ApiKey
from aiokclient.record.murmur2 import murmur2, to_positive


def test_records_of_an_unknown_topic_wait_and_keep_their_order() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            # Mix records with keys, with chosen partitions, and with neither, before any metadata
            # exists.
            deliveries = []
            for i in range(5000):
                key = b"%d" % (i % 7) if i % 3 else None
                partition = i % 6 if i % 5 == 0 else None
                delivery = producer.send("t", b"%05d" % i, key=key, partition=partition)
                assert delivery.partition == partition
                deliveries.append((i, key, partition, delivery))
            results = await producer.gather([each[-1] for each in deliveries])
        for (_, key, partition, _), result in zip(deliveries, results, strict=True):
            if partition is not None:
                assert result.partition == partition
            elif key is not None:
                assert result.partition == to_positive(murmur2(key)) % 6
        for partition in range(6):
            values = [r.value for r in world.cluster.records("t", partition)]
            assert values == sorted(values), "the records keep the order of the sends"
        assert len(world.cluster.records("t")) == 5000

    simulate(scenario, topics={"t": 6})


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_large_records_of_an_unknown_topic_are_compressed_where_they_are_sent_from(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If a thread still compressed a batch whose records move, it would read changed memory.
    known: list[int | None] = []
    in_thread = Callbacks.call_in_thread

    def watched(turns: Callbacks, function: Any, *args: Any, then: Any) -> None:
        batch = function.__self__
        assert isinstance(batch, ProducerBatch)
        known.append(batch.queue.partition)
        in_thread(turns, function, *args, then=then)

    monkeypatch.setattr(Callbacks, "call_in_thread", watched)
    values = [b"%d" % i * 600_000 for i in range(5)]

    async def scenario(world: World) -> None:
        async with world.producer(compression_type=codec) as producer:
            deliveries = [producer.send("t", value) for value in values]
            assert not known
            await producer.gather(deliveries)
        assert [record.value for record in world.cluster.records("t")] == values

    simulate(scenario, topics={"t": 1})
    assert known == [0] * 5


@pytest.mark.parametrize(
    ("codec", "level", "most"),
    [
        ("gzip", None, 64),
        ("gzip", 1, 64),
        ("snappy", None, 256),
        ("lz4", None, 512),
        ("lz4", 9, 64),
        ("zstd", None, 256),
        ("zstd", -5, 256),
        ("zstd", 9, 64),
    ],
)
def test_a_thread_compresses_what_would_hold_the_loop(
    codec: str, level: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    in_thread = Callbacks.call_in_thread

    def watched(turns: Callbacks, function: Any, *args: Any, then: Any) -> None:
        sizes.append(function.__self__.builder.size)
        in_thread(turns, function, *args, then=then)

    monkeypatch.setattr(Callbacks, "call_in_thread", watched)
    values = [bytes(most * 1024 - 200), bytes(most * 1024)]

    async def scenario(world: World) -> None:
        options = {"compression_type": codec, "compression_level": level}
        async with world.producer(**options) as producer:
            await producer.prepare("t")
            for value in values:
                await producer.send("t", value)
        assert [record.value for record in world.cluster.records("t")] == values

    simulate(scenario, topics={"t": 1})
    assert [size // 1024 for size in sizes] == [most]


def test_what_is_sent_while_records_move_comes_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each slice of the move has only one batch, whatever the clock shows.
    monkeypatch.setattr("aiokclient.producer.sending.leaders.SLICE_S", -1)

    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            for i in range(20_000):
                producer.send("t", b"%05d" % i, partition=0)
            topic, sent = producer._topics["t"], 0
            await producer._cluster.updater.refresh(["t"], timeout=5)
            while not topic.known and sent < 20:
                producer.send("t", b"%05d" % (20_000 + sent), partition=0)
                sent += 1
                await asyncio.sleep(0)
            assert sent > 0
            await producer.flush()
        values = [r.value for r in world.cluster.records("t")]
        assert values == [b"%05d" % i for i in range(20_000 + sent)]

    simulate(scenario)


@pytest.mark.parametrize("acknowledged_before", [False, True])
def test_a_topic_that_does_not_exist(acknowledged_before: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(max_block_ms=5000) as producer:
            name = "t" if acknowledged_before else "nowhere"
            if acknowledged_before:
                await producer.send("t", b"x")
                world.cluster.delete_topic("t")
                await asyncio.sleep(0.1)
            began = world.now
            delivery = producer.send(name, b"x")
            with pytest.raises(UnknownTopicOrPartitionError, match=name):
                await delivery
            assert 5 <= world.now - began < 6
            assert (await producer.send("other", b"x")).offset == 0

    simulate(scenario, topics={"t": 1, "other": 1})


def test_a_topic_of_which_no_broker_says_anything() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(max_block_ms=5000) as producer:
            world.cluster.pause(1)
            began = world.now
            with pytest.raises(DeliveryTimeoutError, match="no broker described"):
                await producer.send("t", b"x")
            assert 5 <= world.now - began < 5.1
            world.cluster.resume(1)

    simulate(scenario)


def test_a_topic_that_appears_in_time() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            delivery = producer.send("late", b"x", key=b"k")
            await asyncio.sleep(3)
            assert not delivery.done()
            world.cluster.create_topic("late", 3)
            assert (await delivery).offset == 0

    simulate(scenario)


def test_a_topic_that_may_not_be_seen_fails_at_once() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            with (
                world.cluster.fail(ApiKey.METADATA, TopicAuthorizationError, topic="t"),
                pytest.raises(TopicAuthorizationError),
            ):
                await asyncio.wait_for(producer.send("t", b"x"), 5)

    simulate(scenario)


def test_a_partition_that_a_new_topic_does_not_have() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            good = producer.send("t", b"x", partition=2)
            bad = producer.send("t", b"x", partition=3)
            with pytest.raises(UnknownTopicOrPartitionError, match=r"t-3.*3 partitions"):
                await bad
            assert bad.partition == 3
            assert (await good).partition == 2

    simulate(scenario, topics={"t": 3})


def test_a_partitioner_that_fails_for_a_topic_that_was_not_known() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(partitioner=lambda key, all_, some: 9) as producer:
            with pytest.raises(SerializationError, match="returned 9"):
                await producer.send("t", b"x")
            with pytest.raises(SerializationError, match="returned 9"):
                producer.send("t", b"x")

    simulate(scenario)


def test_failures_among_records_that_moved_are_counted_one_by_one() -> None:
    async def scenario(world: World) -> None:
        async def produce() -> None:
            async with world.producer() as producer:
                for partition in (0, 5, 5, 0):
                    producer.send("t", b"x", partition=partition)

        with pytest.raises(DeliveryErrors) as caught:
            await produce()
        assert (caught.value.count, len(caught.value.exceptions)) == (2, 2)
        assert len(world.cluster.records("t")) == 2

    simulate(scenario)


def test_the_queue_of_a_missing_topic_is_bounded() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=100_000, max_block_ms=3000) as producer:
            deliveries = [producer.send("nowhere", b"x" * 1000) for _ in range(40)]
            with contextlib.suppress(BufferExhaustedError):
                deliveries += (producer.send("nowhere", b"x" * 1000) for _ in range(60))
            with pytest.raises(BufferExhaustedError, match="quarter"):
                producer.send("nowhere", b"x" * 1000)
            assert len(deliveries) in range(40, 50), (
                "only a quarter of the buffer and of the overflow queue"
            )
            results = await producer.gather(deliveries, return_exceptions=True)
            assert {type(result) for result in results} == {UnknownTopicOrPartitionError}
            assert producer._engine.accumulator.memory.buffer.total == 0

    simulate(scenario)


@pytest.mark.fault(24)
@pytest.mark.parametrize("partitions", [3, 1, 5])
def test_a_topic_created_again_is_a_new_topic(partitions: int) -> None:
    async def scenario(world: World) -> None:
        ledger = Ledger()
        async with world.producer(linger_ms=0, delivery_timeout_ms=30_000) as producer:
            for _ in range(20):
                for partition in range(3):
                    await producer.send("t", b"old", partition=partition)
            world.cluster.delete_topic("t")
            deliveries = []
            for _ in range(10):
                for partition in range(3):
                    payload = ledger.payload(0, "t", partition)
                    deliveries.append(producer.send("t", pack(payload), partition=partition))
                await asyncio.sleep(0.02)
            world.cluster.create_topic("t", partitions)
            results = await producer.gather(deliveries, return_exceptions=True)
            for payload, result in zip(ledger.sent, results, strict=True):
                if isinstance(result, Exception):
                    ledger.fail(payload, result)
                else:
                    ledger.acknowledge(payload, result.offset)
            left = min(partitions, 3)
            assert len(ledger.acknowledged) == 10 * left
            assert {"UnknownTopicOrPartitionError"} >= {
                text.split("(")[0] for text in ledger.failed.values()
            }
            for partition in range(left):
                assert (await producer.send("t", b"", partition=partition)).offset == 10
        records = [record for record in world.cluster.records("t") if record.value]
        ledger.consume_all(records)
        ledger.check()

    simulate(scenario, topics={"t": 3})


def pack(payload: Any) -> bytes:
    from ledger import pack as packed

    return packed(payload)


def test_a_producer_sends_to_partitions_added_after_its_start() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(metadata_max_age_ms=500) as producer:
            await producer.send("t", b"x")
            world.cluster.add_partitions("t", 4)
            assert (await producer.send("t", b"x", partition=3)).offset == 0

    simulate(scenario)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("size", [100, 3000])
def test_a_producer_learns_from_one_refusal_how_large_batches_may_be(codec: str, size: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("small", configs={"max.message.bytes": 5000})
        values = [world.sim.rng.randbytes(size) for _ in range(200_000 // size)]
        async with world.producer(compression_type=codec, batch_size=100_000) as producer:
            await producer.prepare("small")
            deliveries = [producer.send("small", value) for value in values]
            slow = asyncio.ensure_future(deliveries[0])
            results = await producer.gather(deliveries)
            assert [result.offset for result in results] == list(range(len(values)))
            assert (await slow).offset == 0
            before = producer.metrics()["producer.retries{error=MESSAGE_TOO_LARGE}"]
            await producer.gather([producer.send("small", value) for value in values])
            after = producer.metrics()["producer.retries{error=MESSAGE_TOO_LARGE}"]
            assert before == after, "the producer has learned how large a batch may be"
            assert producer._engine.accumulator.memory.buffer.total == 0
            with pytest.raises(RecordTooLargeError):
                await producer.send("small", world.sim.rng.randbytes(6000))
            assert (await producer.send("small", b"x")).offset == 2 * len(values)
        assert [record.value for record in world.cluster.records("small")] == [
            *values,
            *values,
            b"x",
        ]

    simulate(scenario)
