"""Tests of when batches are sent, and how many are in flight, on a simulated cluster.

A batch is sent when it is full, has lingered, or is awaited.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient.errors import DeliveryTimeoutError, TopicAuthorizationError
from aiokclient.producer.sending.sender import Sender
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather


def produced(world: World) -> list[Any]:
    """Return the produce requests, oldest first."""
    return world.requests(ApiKey.PRODUCE)


def test_a_batch_lingers() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=200) as producer:
            await producer.prepare("t")
            began = world.now
            for _ in range(10):
                producer.send("t", b"x")
                await asyncio.sleep(0.01)
            await world.cluster.until(lambda: produced(world), timeout=5)
            assert 0.2 <= world.now - began < 0.25
        assert len(produced(world)) == 1

    simulate(scenario)


def test_a_full_batch_leaves_at_once() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=10_000, batch_size=1000) as producer:
            await producer.prepare("t")
            began = world.now
            for _ in range(25):
                producer.send("t", b"x" * 90)
            await world.cluster.until(lambda: produced(world), timeout=5)
            assert world.now - began < 0.1

    simulate(scenario)


def test_awaiting_is_demand() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=10_000) as producer:
            await producer.prepare("t")
            began = world.now
            deliveries = [producer.send("t", b"x") for _ in range(10)]
            await deliveries[3]
            assert world.now - began < 0.1
            assert all(delivery.done() for delivery in deliveries)

    simulate(scenario)


def test_demand_waits_for_what_is_in_flight() -> None:
    """Batches that are awaited during a request are sent together after its response."""

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=10_000) as producer:
            await producer.send("t", b"first")
            since = world.now
            with world.cluster.delay(ApiKey.PRODUCE, 0.5, times=1):
                tasks = [asyncio.ensure_future(producer.send("t", b"slow"))]
                for _ in range(20):
                    await asyncio.sleep(0.01)
                    tasks.append(asyncio.ensure_future(producer.send("t", b"x")))
                await asyncio.gather(*tasks)
            assert len(world.requests(ApiKey.PRODUCE, since=since)) == 2

    simulate(scenario)


def test_an_awaited_record_is_sent_within_the_await_after_another_one_that_was_alone() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=10_000) as producer:
            await producer.send("t", b"first")
            sender = producer._engine.senders[1]
            delivery = producer.send("t", b"alone")
            assert sender.in_flight == 0
            awaiting = delivery.__await__()
            next(awaiting)
            assert sender.in_flight == 1
            awaiting.close()

    simulate(scenario)


def test_the_end_of_the_linger_time_of_a_batch_in_flight_calls_no_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[float] = []

    class Counted(Sender):
        def send_batches(self) -> None:
            calls.append(asyncio.get_running_loop().time())
            super().send_batches()

    monkeypatch.setattr("aiokclient.producer.engine.Sender", Counted)

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=5) as producer:
            await producer.send("t", b"first")
            calls.clear()
            await producer.send("t", b"v")
            assert len(calls) == 1

    simulate(scenario, weather=Weather(latency_s=(0.05, 0.05)))


def test_records_of_several_tasks_leave_together_though_each_is_awaited() -> None:
    async def scenario(world: World) -> None:
        async def work() -> None:
            for _ in range(10):
                await producer.send("t", b"v")

        async with world.producer(linger_ms=10_000) as producer:
            await producer.send("t", b"first")
            since = world.now
            await asyncio.gather(*(work() for _ in range(100)))
            # The first record leaves alone. After its response, all leave together.
            assert len(world.requests(ApiKey.PRODUCE, since=since)) <= 22

    simulate(scenario)


def test_without_linger_it_leaves_at_once_or_at_the_next_turn() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"first")
            sender = producer._engine.senders[1]
            producer.send("t", b"alone")
            assert sender.in_flight == 1, (
                "nothing was in flight, so the batch was sent within send()"
            )
            for _ in range(10):
                producer.send("t", b"together")
            assert sender.in_flight == 1
            await asyncio.sleep(0)
            assert sender.in_flight == 2, "the rest was sent in the next iteration of the loop"

    simulate(scenario)


def test_five_at_a_time_and_in_order() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, batch_size=200) as producer:
            await producer.send("t", b"first")
            sender = producer._engine.senders[1]
            highest = 0
            with world.cluster.delay(ApiKey.PRODUCE, 0.1):
                deliveries = [producer.send("t", b"%05d" % i * 10) for i in range(60)]
                while not deliveries[-1].done():
                    highest = max(highest, sender.in_flight)
                    await asyncio.sleep(0.01)
            assert highest == 5
        assert [r.value for r in world.cluster.records("t")][1:] == [
            b"%05d" % i * 10 for i in range(60)
        ]

    simulate(scenario)


def test_partitions_of_one_broker_travel_together() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=50) as producer:
            await producer.prepare("t")
            for partition in range(20):
                producer.send("t", b"x", partition=partition)
            await producer.flush()
        # One produce request carries the batches of all 20 partitions.
        assert len(produced(world)) == 1

    simulate(scenario, topics={"t": 20})


def test_the_size_of_a_request_is_bounded() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=50, max_request_size=5000) as producer:
            await producer.prepare("t")
            for partition in range(20):
                producer.send("t", b"x" * 2000, partition=partition)
            await producer.flush()
        for request in produced(world):
            parts = [part for topic in request.message.topic_data for part in topic.partition_data]
            assert sum(len(part.records) for part in parts) <= 5000

    simulate(scenario, topics={"t": 20})


@pytest.mark.fault(14)
@pytest.mark.parametrize("how", ["paused", "stopped"])
def test_the_delivery_timeout(how: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(delivery_timeout_ms=3000) as producer:
            await producer.send("t", b"first")
            world.cluster.pause(1) if how == "paused" else world.cluster.stop(1)
            began = world.now
            one = producer.send("t", b"one")
            await asyncio.sleep(1)
            two = producer.send("t", b"two")
            with pytest.raises(
                DeliveryTimeoutError, match="sent 1 time" if how == "paused" else "never sent"
            ):
                await one
            assert 3 <= world.now - began < 3.2
            with pytest.raises(DeliveryTimeoutError):
                await two
            assert 4 <= world.now - began < 4.2
            world.cluster.resume(1) if how == "paused" else world.cluster.start(1)
            assert (await producer.send("t", b"three")).offset > 0
        values = [record.value for record in world.cluster.records("t")]
        assert values[0] == b"first"
        assert values[-1] == b"three"
        assert values.count(b"one") <= 1

    simulate(scenario)


def test_flush_ends_by_the_delivery_timeout() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(delivery_timeout_ms=3000) as producer:
            await producer.send("t", b"first")
            world.cluster.pause(1)
            failed = producer.send("t", b"x")
            began = world.now
            await producer.flush()
            assert 3 <= world.now - began < 3.2
            assert isinstance(failed.exception(), DeliveryTimeoutError)
            world.cluster.resume(1)

    simulate(scenario)


def test_an_expired_batch_keeps_its_memory_until_its_bytes_are_let_go() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(
            delivery_timeout_ms=2000, request_timeout_ms=10_000, acks="all"
        ) as producer:
            await producer.send("t", b"first")
            memory = producer._engine.accumulator.memory
            world.cluster.pause(1)
            delivery = producer.send("t", b"x" * 1000)
            with pytest.raises(DeliveryTimeoutError):
                await delivery
            assert memory.buffer.total > 1000
            world.cluster.resume(1)
            await asyncio.sleep(1)
            assert memory.buffer.total == 0

    simulate(scenario)


def test_one_slow_broker_holds_up_no_other() -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        of = {cluster.leader("t", p): p for p in range(6)}
        async with world.producer() as producer:
            await producer.gather([producer.send("t", b"x", partition=p) for p in range(6)])
            with cluster.delay(ApiKey.PRODUCE, 5, broker=2):
                slow = producer.send("t", b"slow", partition=of[2])
                began = world.now
                for _ in range(50):
                    await producer.send("t", b"fast", partition=of[1])
                assert world.now - began < 1
                assert not slow.done()
                await slow

    simulate(scenario, brokers=3, topics={"t": 6}, replication=1)


def test_one_failed_partition_fails_no_other() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=20) as producer:
            await producer.prepare("t")
            with world.cluster.fail(
                ApiKey.PRODUCE, TopicAuthorizationError, topic="t", partition=1
            ):
                deliveries = [producer.send("t", b"x", partition=p) for p in range(3)]
                results = await producer.gather(deliveries, return_exceptions=True)
            assert [isinstance(r, Exception) for r in results] == [False, True, False]
            assert (await producer.send("t", b"x", partition=1)).offset == 0

    simulate(scenario, topics={"t": 3})
