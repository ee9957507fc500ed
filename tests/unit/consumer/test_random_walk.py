"""Tests that random steps of a program never lead to a gap or a repeated record.

A model keeps the next expected offset of each partition. Meanwhile, records are written, leaders
move, sessions are evicted, and connections are lost.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.testing.simulation.network import Weather

PARTITIONS = [TopicPartition("t", i) for i in range(4)]


class Walk:
    """A program with random steps, its model, and the faults around it."""

    def __init__(self, world: World, consumer: Consumer[Any, Any], rng: random.Random) -> None:
        self.world, self.consumer, self.rng = world, consumer, rng
        self.expected = dict.fromkeys(PARTITIONS, 0)
        self.read = 0

    def take(self, topic: str, partition: int, offset: int) -> None:
        tp = TopicPartition(topic, partition)
        assert offset == self.expected[tp], (
            f"{tp}: read offset {offset}, expected {self.expected[tp]}"
        )
        assert tp not in self.consumer.paused()
        self.expected[tp] += 1
        self.read += 1

    def take_all(self, records: Any) -> None:
        for record in records:
            self.take(record.topic, record.partition, record.offset)

    async def poll(self) -> None:
        self.take_all(await self.consumer.poll(0.3, max_records=self.rng.randint(1, 40)))

    async def cancelled_poll(self) -> None:
        waiting = asyncio.create_task(self.consumer.poll(1.0))
        await asyncio.sleep(self.rng.choice([0, 0.001, 0.01, 0.1]))
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.take_all(await waiting)

    async def get(self) -> None:
        record = await self.consumer.get(0.1)
        if record is not None:
            self.take_all([record])

    async def iterate(self) -> None:
        left = self.rng.randint(1, 30)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for record in self.consumer:
                    self.take_all([record])
                    left -= 1
                    if left == 7:
                        self.move()
                    if not left:
                        return

    async def batches(self) -> None:
        size, alone = self.rng.randint(1, 30), self.rng.random() < 0.5
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for records in self.consumer.batches(size, 0.05, alone):
                    self.take_all(records)
                    if self.rng.random() < 0.5:
                        return

    async def to_the_end(self) -> None:
        self.consumer.resume(self.consumer.paused())
        left = self.rng.randint(1, 100)
        async for record in self.consumer.until_end():
            self.take_all([record])
            left -= 1
            if not left:
                return

    async def arrow(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for table in self.consumer.arrow_batches():
                    names = ("topic", "partition", "offset")
                    for row in zip(*(table.column(n).to_pylist() for n in names), strict=True):
                        self.take(*row)
                    return

    def move(self) -> None:
        """Seek in a random partition, or pause or resume partitions."""
        tp = self.rng.choice(PARTITIONS)
        what = self.rng.choice(["seek", "beginning", "pause", "resume", "resume"])
        if what == "seek":
            offset = self.rng.randint(0, self.world.cluster.offsets(*tp)[1])
            self.consumer.seek(tp, offset)
            self.expected[tp] = offset
        elif what == "beginning":
            self.consumer.seek_to_beginning([tp])
            self.expected[tp] = 0
        elif what == "pause":
            self.consumer.pause([tp])
        else:
            self.consumer.resume(self.consumer.paused())

    def disturb(self) -> None:
        cluster, rng = self.world.cluster, self.rng
        what = rng.random()
        if what < 0.1:
            cluster.move_leader(*rng.choice(PARTITIONS))
        elif what < 0.15:
            cluster.evict_sessions()
        elif what < 0.2:
            self.world.network.cut()
        for _ in range(rng.randint(0, 3)):
            count, compression = rng.randint(1, 30), rng.choice(["none", "lz4"])
            tp = rng.choice(PARTITIONS)
            cluster.produce("t", [bytes(20)] * count, tp.partition, compression=compression)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_walk_reads_each_record_once(seed: int) -> None:
    pytest.importorskip("pyarrow")
    rng = random.Random(seed)
    options = {
        "max_partition_fetch_bytes": rng.choice([100, 1_000, 1 << 20]),
        "fetch_max_bytes": rng.choice([300, 3_000, 1 << 20]),
        "metadata_max_age_ms": 1_000,
    }

    async def scenario(world: World) -> None:
        async with world.consumer("t", **options) as consumer:
            walk = Walk(world, consumer, rng)
            ways: list[Callable[[], Awaitable[None]]] = [
                walk.poll,
                walk.cancelled_poll,
                walk.get,
                walk.iterate,
                walk.batches,
                walk.to_the_end,
                walk.arrow,
            ]
            for _ in range(120):
                walk.disturb()
                if rng.random() < 0.3:
                    walk.move()
                await rng.choice(ways)()
            world.network.heal()
            consumer.resume(consumer.paused())
            async with asyncio.timeout(120):
                while any(walk.expected[tp] < world.cluster.offsets(*tp)[1] for tp in PARTITIONS):
                    await walk.poll()
            assert walk.read > 500

    weather = Weather(loss=0.002) if seed % 2 else None
    simulate(scenario, seed=seed, brokers=3, topics={"t": 4}, weather=weather)


def test_the_model_detects_a_missing_record() -> None:
    """The check of the walk fails when a record is left out."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"] * 20)
        async with world.consumer("t") as consumer:
            walk = Walk(world, consumer, random.Random(0))
            consumer.seek(PARTITIONS[0], 1)
            await walk.poll()

    with pytest.raises(AssertionError, match="read offset 1, expected 0"):
        simulate(scenario, topics={"t": 4})
