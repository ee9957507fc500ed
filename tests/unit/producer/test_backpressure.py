"""Tests of the overflow queue, `drain()`, and fairness between topics, on a simulated cluster."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import ProducerRecord
from aiokclient.errors import (
    BufferExhaustedError,
    ClosedError,
    DeliveryTimeoutError,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol import ApiKey

MEMORY = 200_000
VALUE = b"x" * 950


def memory_of(producer: Any) -> Any:
    return producer._engine.accumulator.memory


def fill(
    producer: Any, topic: str, partition: int | None = None, value: bytes = VALUE
) -> tuple[list[Any], list[Any]]:
    """Send until a send is refused.

    Return the buffered deliveries and those in the overflow queue.
    """
    taken: list[Any] = []
    overflowing: list[Any] = []
    while True:
        try:
            delivery = producer.send(topic, value, partition=partition)
        except BufferExhaustedError:
            return taken, overflowing
        (overflowing if producer.full else taken).append(delivery)


def test_the_largest_buffer_memory_has_room() -> None:
    """Sums of several limits would exceed a register."""

    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=2**63 - 1, batch_size=2000) as producer:
            deliveries = [*producer.send_many("t", [VALUE] * 50), producer.send("t", VALUE)]
            assert not producer.full
            assert memory_of(producer).buffer.free > 2**59
            await producer.gather(deliveries)

    simulate(scenario)


@pytest.mark.fault(39)
def test_memory_is_bounded_while_send_raises_for_a_full_buffer(
    memory_totals: list[int],
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=MEMORY, batch_size=16_384) as producer:
            await producer.send("t", b"warm up")
            with world.cluster.delay(ApiKey.PRODUCE, 0.5, times=3):
                taken, overflowing = fill(producer, "t")
                # Each record takes a little less than a thousand bytes.
                assert len(taken) in range(195, 208)
                assert len(overflowing) in range(195, 208)
                assert MEMORY < max(memory_totals) <= 2 * MEMORY
                for _ in range(3):
                    with pytest.raises(BufferExhaustedError, match=r"drain\(\)"):
                        producer.send("t", VALUE)
                assert producer.full
                await producer.drain()
                assert not producer.full
                assert not overflowing[-1].done(), (
                    "the record has left the overflow queue, but it has not been delivered"
                )
            results = await producer.gather(taken + overflowing)
        assert [result.offset for result in results] == list(range(1, len(results) + 1))
        assert len(world.cluster.records("t")) == len(results) + 1

    simulate(scenario)


def test_moving_in_begins_below_three_quarters() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=MEMORY, batch_size=16_384) as producer:
            await producer.send("t", b"warm up")
            memory = memory_of(producer)
            with world.cluster.delay(ApiKey.PRODUCE, 0.1):
                taken, overflowing = fill(producer, "t")
                assert memory.buffer.in_use > MEMORY * 0.9
                await taken[0]
                assert memory.buffer.in_use > MEMORY * 0.75
                assert overflowing[0].locate_record()[0].in_overflow
                await taken[-1]
                assert not overflowing[0].locate_record()[0].in_overflow
                await producer.flush()

    simulate(scenario)


def test_drain_waits_for_the_record_sent_last() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=MEMORY, batch_size=16_384) as producer:
            await producer.send("t", b"warm up", partition=0)
            world.cluster.pause(1)
            fill(producer, "t", 0)
            waiting = asyncio.ensure_future(producer.drain())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert producer.full
            world.cluster.resume(1)
            await producer.drain()
            await producer.flush()

    simulate(scenario, topics={"t": 2})


def test_drain_yields_to_the_loop_when_there_is_nothing_to_wait_for() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            task = asyncio.create_task(others())
            for _ in range(20):
                producer.send("t", b"x")
                world.sim.loop.leap(0.004)  # The program works for four milliseconds.
                await producer.drain()
            task.cancel()
            assert turns >= 4

    simulate(scenario)


def test_a_record_larger_than_the_buffer_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=1000) as producer:
            with pytest.raises(RecordTooLargeError, match="buffer_memory"):
                producer.send("t", b"x" * 1000)

    simulate(scenario)


class Flood:
    """Tasks that send three times the size of the memory to partitions that accept nothing.

    Each task calls `drain()` independently of the others.
    """

    def __init__(self, producer: Any, topic: str, partitions: list[int | None]) -> None:
        self.producer, self.topic, self.partitions = producer, topic, partitions
        self.deliveries: list[Any] = []
        self.refused = 0

    async def run(self) -> None:
        size = 3 * MEMORY // len(self.partitions)
        async with asyncio.TaskGroup() as group:
            for partition in self.partitions:
                group.create_task(self.send(partition, size))

    async def send(self, partition: int | None, size: int) -> None:
        for _ in range(size // len(VALUE)):
            while True:
                try:
                    delivery = self.producer.send(self.topic, VALUE, partition=partition)
                    break
                except BufferExhaustedError:
                    self.refused += 1
                    await asyncio.sleep(0.05)
            self.deliveries.append(delivery)
            if self.producer.full:
                await self.producer.drain()


async def others_keep_their_rate(producer: Any, alive: list[int], count: int = 400) -> None:
    """Send to another topic in rounds of ten records, and check that no send waits for memory."""
    for turn in range(count // 10):
        partition = alive[turn % len(alive)]
        deliveries = [producer.send("alive", b"y" * 500, partition=partition) for _ in range(10)]
        assert not producer.full
        await producer.gather(deliveries)


@pytest.mark.fault(14, 39)
@pytest.mark.parametrize("dead", ["leaderless", "missing", "stopped"])
def test_what_cannot_be_sent_holds_up_nobody(dead: str, memory_totals: list[int]) -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        led = led_by_two(world)
        alive = [partition for partition in range(4) if cluster.leader("alive", partition) == 1]
        async with world.producer(
            buffer_memory=MEMORY, batch_size=16_384, delivery_timeout_ms=20_000, max_block_ms=20_000
        ) as producer:
            await producer.prepare("alive")
            await producer.prepare("dead")
            await producer.gather([producer.send("dead", b"x", partition=p) for p in led])
            topic, partitions = "dead", list[int | None](led)
            if dead == "missing":
                topic, partitions = "nowhere", [None]
            elif dead == "leaderless":
                cluster.stop(2, failover_after=0)
                await producer.gather([producer.send("alive", b"x", partition=alive[0])])
                await asyncio.sleep(2)
            else:
                cluster.pause(2)
            flood = Flood(producer, topic, partitions)
            task = asyncio.create_task(flood.run())
            await asyncio.sleep(1.5)
            began = world.now
            await others_keep_their_rate(producer, alive)
            assert world.now - began < 2
            assert not any(delivery.done() for delivery in flood.deliveries)
            assert max(memory_totals) <= 3 * MEMORY
            await check_end(world, dead, producer, task, flood)

    simulate(scenario, brokers=2, topics={})


async def check_end(world: World, dead: str, producer: Any, task: Any, flood: Flood) -> None:
    """Check that all records are delivered when the brokers are back.

    If the topic is still missing, its records fail with UnknownTopicOrPartitionError.
    """
    if dead == "missing":
        await task
        results = await producer.gather(flood.deliveries, return_exceptions=True)
        assert {type(result) for result in results} == {UnknownTopicOrPartitionError}
        return
    world.cluster.resume(2)
    if dead == "leaderless":
        world.cluster.start(2)
    await task
    results = await producer.gather(flood.deliveries, return_exceptions=True)
    late = [result for result in results if isinstance(result, DeliveryTimeoutError)]
    assert not late, f"{len(late)} of {len(results)} were late: {late[0]}"
    assert len(results) == 6 * (3 * MEMORY // 6 // len(VALUE))


def led_by_two(world: World) -> list[int]:
    """Return the six partitions of a topic whose only replica is on broker 2."""
    world.cluster.create_topic("dead", 12, replication=1)
    world.cluster.create_topic("alive", 4, replication=1)
    led = [partition for partition in range(12) if world.cluster.leader("dead", partition) == 2]
    assert len(led) == 6
    return led


def test_send_all_goes_on_when_its_topic_becomes_known_beside_dead_partitions() -> None:
    """Two dead partitions hold their half of both pools, and nothing of it is released."""

    async def scenario(world: World) -> None:
        async with world.producer(
            buffer_memory=MEMORY, batch_size=16_384, max_block_ms=60_000
        ) as producer:
            await producer.prepare("t")
            world.cluster.pause(1)
            await asyncio.sleep(0)
            for name in ("dead-1", "dead-2"):
                fill(producer, name)
                fill(producer, name, value=b"")
            world.cluster.resume(1)
            began = world.now
            sending = asyncio.create_task(producer.send_all("late", [VALUE] * 50))
            await asyncio.sleep(2)
            assert not sending.done()
            world.cluster.create_topic("late")
            assert await sending == 50
            assert world.now - began < 15
            await producer.close(0)
            raise_nothing(producer)

    simulate(scenario)


@pytest.mark.parametrize("back", ["resumed", "created"])
def test_send_all_goes_on_when_its_partition_becomes_sendable(back: str) -> None:
    async def scenario(world: World) -> None:
        led = led_by_two(world)
        name = "late" if back == "created" else "dead"
        async with world.producer(
            buffer_memory=MEMORY, batch_size=16_384, metadata_max_age_ms=2000, max_block_ms=60_000
        ) as producer:
            await producer.prepare("dead")
            await producer.prepare("alive")
            await producer.gather([producer.send("dead", b"x", partition=p) for p in led])
            world.cluster.pause(2)
            producer.send("dead", b"x", partition=led[2])
            await asyncio.sleep(2)
            for missing in ("nowhere-1", "nowhere-2"):
                fill(producer, missing)
                fill(producer, missing, value=b"")
            record = ProducerRecord(name, VALUE, partition=None if back == "created" else led[2])
            sending = asyncio.create_task(producer.send_all(name, [record] * 50))
            await asyncio.sleep(1)
            assert not sending.done()
            began = world.now
            if back == "created":
                world.cluster.create_topic("late")
            else:
                world.cluster.resume(2)
            with anyio.fail_after(30):
                assert await sending == 50
            assert world.now - began < 15
            await producer.close(0)
            raise_nothing(producer)

    simulate(scenario, brokers=2, topics={})


def raise_nothing(producer: Any) -> None:
    """Prevent the end of `async with` from raising failures that the test already knows of."""
    producer._engine.failures.unretrieved = 0


def test_a_cancelled_send_all_leaves_no_waiter() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=MEMORY, batch_size=16_384) as producer:
            fill(producer, "nowhere")
            for _ in range(100):
                sending = asyncio.create_task(producer.send_all("nowhere", [VALUE]))
                await asyncio.sleep(0.001)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            assert not producer._engine.accumulator._room
            await producer.close(0)
            raise_nothing(producer)

    simulate(scenario)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_send_many_stays_within_the_memory_whatever_batches_reserve(
    seed: int, known: bool, memory_totals: list[int]
) -> None:
    async def scenario(world: World) -> None:
        rng = random.Random(seed)
        async with world.producer(
            buffer_memory=20_000, batch_size=4096, linger_ms=60_000, on_delivery_error=id
        ) as producer:
            topics = ["t"]
            if known:
                await producer.prepare("t")
            world.cluster.pause(1)
            for _ in range(200):
                items: list[Any] = []
                for _ in range(rng.randrange(1, 9)):
                    partition = rng.choice([None, *range(8)]) if known else None
                    value = bytes(rng.randrange(rng.choice([50, 900])))
                    key = rng.choice([None, b"k%d" % rng.randrange(20)])
                    items.append(ProducerRecord(rng.choice(topics), value, key, partition))
                if rng.random() < 0.2:
                    items = [bytes(rng.randrange(900)) for _ in items]
                try:
                    producer.send_many("t", items)
                except BufferExhaustedError:
                    pass
                if rng.random() < 0.3:
                    try:
                        producer.send("t", bytes(rng.randrange(900)))
                    except BufferExhaustedError:
                        pass
            assert max(memory_totals) <= 2 * 20_000
            await producer.close(0)
            raise_nothing(producer)

    simulate(scenario, topics={"t": 8})


class TestDrainOfAPartition:
    def test_drain_of_a_healthy_partition_does_not_wait_for_a_dead_one(self) -> None:
        """One task that alternates between both delivers to the healthy one at full rate."""

        async def scenario(world: World) -> None:
            led = led_by_two(world)
            alive = next(p for p in range(4) if world.cluster.leader("alive", p) == 1)
            options: dict[str, Any] = {"delivery_timeout_ms": 30_000, "on_delivery_error": id}
            async with world.producer(
                buffer_memory=MEMORY, batch_size=16_384, **options
            ) as producer:
                await producer.prepare("alive")
                await producer.send("dead", b"x", partition=led[0])
                world.cluster.pause(2)
                await asyncio.sleep(2)
                fill(producer, "dead", led[0])
                waiting = asyncio.create_task(producer.drain("dead", led[0]))
                began = world.now
                for _ in range(2000):
                    await producer.drain("alive", alive)
                    producer.send("alive", VALUE, partition=alive)
                await producer.drain("alive")
                assert world.now - began < 10
                assert not waiting.done()
                world.cluster.resume(2)
                await waiting
                producer.send("dead", VALUE, partition=led[0])
                assert not producer.full

        simulate(scenario, brokers=2, topics={})

    def test_loop_of_drains_and_sends_is_never_refused(self, memory_totals: list[int]) -> None:
        async def scenario(world: World) -> None:
            async with world.producer(buffer_memory=MEMORY, batch_size=16_384) as producer:
                world.cluster.delay(ApiKey.PRODUCE, 0.01)
                for number in range(2000):
                    partition = number % 4
                    await producer.drain("t", partition)
                    producer.send("t", VALUE, partition=partition)
                    await producer.drain("t")
                    producer.send("t", VALUE)
                await producer.flush()
            assert len(world.cluster.records("t")) == 4000
            assert max(memory_totals) <= 2 * MEMORY

        simulate(scenario, topics={"t": 4})

    @pytest.mark.parametrize("end", ["close", "fail", "cancel", "expire", "create"])
    def test_drain_of_an_unknown_topic_ends_with_room_or_with_the_producer(self, end: str) -> None:
        async def scenario(world: World) -> None:
            producer = await world.producer(
                buffer_memory=MEMORY, batch_size=16_384, max_block_ms=5000, on_delivery_error=id
            )
            fill(producer, "late")
            waiting = asyncio.create_task(producer.drain("late"))
            others = asyncio.create_task(producer.drain("late", 2))
            await asyncio.sleep(1)
            assert not waiting.done()
            assert not others.done()
            if end == "close":
                await producer.close(0)
            elif end == "fail":
                producer._supervisor.fail(ValueError("a bug"), "test")
            elif end == "create":
                world.cluster.create_topic("late", 4)
            elif end == "cancel":
                waiting.cancel()
                others.cancel()
            results = await asyncio.gather(waiting, others, return_exceptions=True)
            expected = {
                "close": ClosedError,
                "fail": KafkaError,
                "cancel": asyncio.CancelledError,
            }.get(end, type(None))
            assert {type(result) for result in results} == {expected}
            assert not producer._engine.accumulator._room  # type: ignore[union-attr]
            await producer.close(0)
            raise_nothing(producer)

        simulate(scenario)

    def test_a_cancelled_drain_is_cancelled_if_its_producer_fails_at_that_time(self) -> None:
        async def scenario(world: World) -> None:
            producer = await world.producer(
                buffer_memory=MEMORY, batch_size=16_384, max_block_ms=5000, on_delivery_error=id
            )
            fill(producer, "late")
            waiting = asyncio.create_task(producer.drain("late"))
            await asyncio.sleep(1)
            producer._supervisor.fail(ValueError("a bug"), "test")
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            await producer.close(0)
            raise_nothing(producer)

        simulate(scenario)

    def test_drain_has_room_at_once_whatever_the_size_of_the_memory(self) -> None:
        async def scenario(world: World) -> None:
            for memory in (200, 1000, 5000):
                async with world.producer(buffer_memory=memory) as producer:
                    await producer.drain("t")
                    await producer.drain("t", 0)
                    await producer.prepare("t")
                    await producer.drain("t", 0)
                    await producer.drain("t", 9)
                    with pytest.raises(UnknownTopicOrPartitionError):
                        await producer.drain("t", -1)
                    with pytest.raises(ArgumentTypeError):
                        await producer.drain("t", "0")  # type: ignore[arg-type]  # on purpose
                    with pytest.raises(ArgumentTypeError):
                        await producer.drain(partition=0)
                    with pytest.raises(InvalidTopicError):
                        await producer.drain("a b")

        simulate(scenario)
