"""Reading while records arrive, partitions are assigned again, and the consumer is closed.

The records of each partition are delivered in order, and the memory of fetched records is released.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.testing.simulation.network import Weather

PARTITIONS = 3
ALL = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
Records = Callable[[Consumer[Any, Any]], AsyncIterator[Any]]


async def one_by_one(consumer: Consumer[Any, Any]) -> AsyncIterator[Any]:
    async for record in consumer.until_end():
        yield record


async def in_lists(consumer: Consumer[Any, Any]) -> AsyncIterator[Any]:
    async for records in consumer.batches(17, max_wait=0.005, until_end=True):
        for record in records:
            yield record


WAYS: dict[str, Records] = {"async for": one_by_one, "batches": in_lists}


class Writing:
    """A writer of small batches, one for each partition every few milliseconds."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.count = dict.fromkeys(ALL, 0)
        self.over = False

    def add(self, least: int = 1) -> None:
        for tp in ALL:
            values = [b"x" * 50] * self.rng.randrange(least, 8)
            if values:
                self.world.cluster.produce("t", values, tp.partition)
                self.count[tp] += len(values)

    async def run(self) -> None:
        for _ in range(12):
            self.add(0)
            await asyncio.sleep(0.004)
        self.over = True


class Reading:
    """Repeated reading to the end. `expected` has the offset at which each partition continues."""

    def __init__(self, consumer: Consumer[Any, Any], way: Records) -> None:
        self.consumer, self.way = consumer, way
        self.expected = dict.fromkeys(ALL, 0)

    async def once(self) -> None:
        async for record in self.way(self.consumer):
            tp = TopicPartition(record.topic, record.partition)
            assert record.offset == self.expected[tp]
            self.expected[tp] += 1

    async def all_of(self, writing: Writing) -> None:
        async with asyncio.timeout(20):
            while not writing.over or self.expected != writing.count:
                await self.once()
                await asyncio.sleep(0.002)


def small(n: int) -> dict[str, Any]:
    """Return options that make fetch responses small if n is odd."""
    return {"max_partition_fetch_bytes": 700, "fetch_max_bytes": 1500} if n % 2 else {}


def at_each_moment(
    scenario: Callable[[World, int], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Run the scenario for n = 0 to 19, each with a network of its own, or for four of them."""
    for n in one_in(5, range(20)):
        simulate(
            partial(scenario, n=n),
            topics={"t": PARTITIONS},
            seed=n,
            weather=Weather(latency_s=(0.0005, 0.003)),
            **options,
        )


@pytest.mark.parametrize("change", ["none", "assigned anew", "one assigned anew"])
@pytest.mark.parametrize("way", WAYS)
def test_repeated_reading_to_the_end_misses_nothing(way: str, change: str) -> None:
    """Records after the end of one iteration are delivered by the next one."""

    async def scenario(world: World, n: int) -> None:
        writing = Writing(world, n)
        for _ in range(6):
            writing.add()
        consumer = world.consumer(**small(n))
        consumer.assign(ALL)
        async with consumer:
            reading = Reading(consumer, WAYS[way])
            write = asyncio.create_task(writing.run())
            read = asyncio.create_task(reading.all_of(writing))
            await asyncio.sleep(0.001 * n)
            if change == "assigned anew":
                consumer.assign([])
                consumer.assign(ALL)
                reading.expected.update(dict.fromkeys(ALL, 0))
            elif change == "one assigned anew":
                consumer.assign(ALL[1:])
                await asyncio.sleep(0.003)
                consumer.assign(ALL)
                reading.expected[ALL[0]] = 0
            await write
            await read
            for tp in ALL:
                assert await consumer.position(tp) == writing.count[tp]

    at_each_moment(scenario, brokers=3)


@pytest.mark.parametrize("how", ["closed", "cancelled and closed"])
def test_a_closed_consumer_keeps_no_fetched_records(how: str) -> None:
    async def scenario(world: World, n: int) -> None:
        writing = Writing(world, n)
        writing.add()
        async with world.client() as client:
            consumer: Consumer[Any, Any] = Consumer(
                "t", client=client, auto_offset_reset="earliest"
            )
            await consumer.start()
            reading = Reading(consumer, in_lists)
            read = asyncio.create_task(reading.once())
            write = asyncio.create_task(writing.run())
            await asyncio.sleep(0.001 * n)
            if how != "closed":
                read.cancel()
            await consumer.close()
            assert consumer._engine is not None
            assert len(consumer._engine.buffer) == 0
            await asyncio.wait([read, write])

    at_each_moment(scenario, brokers=3)


@pytest.mark.parametrize("by_hand", [False, True])
def test_no_record_of_an_unsubscribed_topic_is_delivered_while_no_broker_answers(
    by_hand: bool,
) -> None:
    """No record of a topic without a subscription is delivered.

    This holds even while the brokers return no offsets of the new topics.
    """

    async def scenario(world: World) -> None:
        for topic in ("t", "u"):
            world.cluster.produce(topic, [b"x"] * 50)
        async with world.consumer("t") as consumer:
            if by_hand:
                consumer.assign(ALL[:1])
            await consumer.poll(max_records=5)
            for wanted, topic in (["u"], "u"), (["t", "u"], "t"):
                world.network.part(["client"], [world.address(b) for b in world.cluster.brokers])
                consumer.subscribe(["u"])
                seen = {r.topic for _ in range(9) for r in await consumer.poll(0.1, max_records=3)}
                assert seen <= ({"t", "u"} if by_hand else {"u"})
                world.network.heal()
                consumer.subscribe(wanted)
                async with asyncio.timeout(20):
                    while topic not in {r.topic for r in await consumer.poll()}:
                        world.cluster.produce("t", [b"x"])
            assert not any(state.withheld for state in consumer._subscription.partitions.values())

    simulate(scenario, topics={"t": 1, "u": 1})


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_a_rebalance_does_not_end_an_iteration_to_the_end(protocol: str) -> None:
    """An iteration to the end continues after a rebalance, during which nothing is assigned."""
    count = 40

    async def scenario(world: World, n: int) -> None:
        for tp in ALL:
            world.cluster.produce("t", [b"x"] * count, tp.partition)
        options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
        if protocol != "consumer":
            options = {"group_id": "g", "partition_assignment_strategy": protocol}
            options |= {"heartbeat_interval_ms": 20, "auto_commit_interval_ms": 20}
        seen: set[tuple[int, int]] = set()

        async def another() -> None:
            await asyncio.sleep(0.003 * n)
            async with world.consumer("t", **options):
                await asyncio.sleep(0.05)

        async with world.consumer("t", **options) as consumer:
            meanwhile = asyncio.create_task(another())
            async for record in consumer.until_end():
                seen.add((record.partition, record.offset))
                await asyncio.sleep(0.002)
            for tp in consumer.assignment():
                assert (tp.partition, count - 1) in seen
            assert consumer.assignment()
            await meanwhile

    at_each_moment(scenario)
