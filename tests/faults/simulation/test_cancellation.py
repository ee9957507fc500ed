"""Every public call is cancelled at each suspension, and the object remains usable or is closed.

Afterwards, every payload is accounted for, and another record can be sent. The tests print the
number of suspensions of each call. If a background task does a part of the call's work, the call is
also cancelled at many moments of that task.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from driver import Writer
from interrupt import Interrupted, interrupt
from ledger import pack
from thinned import one_in
from world import World, simulate

from aiokclient import State, TopicPartition
from aiokclient.testing.simulation.network import Weather

T0 = TopicPartition("t", 0)
MOMENTS = 40


class Case(NamedTuple):
    """A test of one call: ``made`` prepares an object, ``call`` uses it, ``after`` checks it."""

    made: Callable[[World], Awaitable[Any]]
    call: Callable[[World, Any], Coroutine[Any, Any, Any]]
    after: Callable[[World, Any], Awaitable[None]]


# -- prepared objects


async def started_producer(world: World) -> Any:
    producer = world.producer(buffer_memory=20_000, linger_ms=1_000)
    await producer.start()
    await Writer(producer, world.ledger, [("t", 0)]).run(30)
    return producer


async def full_producer(world: World) -> Any:
    producer = await started_producer(world)
    writer = Writer(producer, world.ledger, [("t", 0)], number=1, size=1_000)
    while not producer.full:
        writer.send("t", 0)
    return producer


async def new_producer(world: World) -> Any:
    return world.producer()


async def new_consumer(world: World) -> Any:
    fill(world)
    consumer = world.consumer()
    consumer.assign([T0])
    return consumer


async def started_consumer(world: World) -> Any:
    consumer = await new_consumer(world)
    await consumer.start()
    return consumer


async def unsure_consumer(world: World) -> Any:
    """Return a consumer that must look up the beginning of the log to get its position."""
    consumer = await started_consumer(world)
    consumer.seek_to_beginning([T0])
    return consumer


async def closed_over(world: World) -> Any:
    """Return a consumer that has read some records, with more of them fetched or in flight."""
    consumer = await started_consumer(world)
    world.ledger.consume_all(await consumer.poll(max_records=7))
    return consumer


def fill(world: World) -> None:
    for _ in range(5):
        payloads = [world.ledger.payload(9, "t", 0) for _ in range(20)]
        written = world.cluster.produce("t", [pack(p) for p in payloads])
        for payload, metadata in zip(payloads, written, strict=True):
            world.ledger.acknowledge(payload, metadata.offset)


# -- calls under test


async def delivery(world: World, producer: Any) -> None:
    payload = world.ledger.payload(2, "t", 0)
    sent = producer.send("t", pack(payload), partition=0)
    sent.add_done_callback(lambda d: world.ledger.acknowledge(payload, d.offset))
    await sent


async def gather(world: World, producer: Any) -> None:
    payloads = [world.ledger.payload(2, "t", 0) for _ in range(5)]
    deliveries = [producer.send("t", pack(p), partition=0) for p in payloads]
    for payload, sent in zip(payloads, deliveries, strict=True):
        sent.add_done_callback(lambda d, p=payload: world.ledger.acknowledge(p, d.offset))
    await producer.gather(deliveries)


async def send_all(world: World, producer: Any) -> None:
    """Send records.

    If the call is cancelled, each record may still be written, but at most once.
    """
    payloads = [world.ledger.payload(2, "t", 0) for _ in range(100)]
    for payload in payloads:
        world.ledger.fail(payload, asyncio.CancelledError())
    await producer.send_all("t", [pack(payload, 500) for payload in payloads])


async def poll(world: World, consumer: Any) -> None:
    while world.ledger.missing:
        world.ledger.consume_all(await consumer.poll(timeout=1.0, max_records=30))


async def get(world: World, consumer: Any) -> None:
    while world.ledger.missing:
        record = await consumer.get(timeout=1.0)
        world.ledger.consume_all([record] if record else [])


async def iteration(world: World, consumer: Any) -> None:
    async for record in consumer:
        world.ledger.consume(record)
        if not world.ledger.missing:
            break


async def batches(world: World, consumer: Any) -> None:
    async for records in consumer.batches(max_records=30):
        world.ledger.consume_all(records)
        if not world.ledger.missing:
            break


# -- checks after the call


async def producer_goes_on(world: World, producer: Any) -> None:
    """Check that another record can be sent, also after a start that was cancelled."""
    if producer.state is not State.CLOSED:
        await producer.start()
        producer.full and await producer.drain()
        await delivery(world, producer)
        await producer.flush()
    await producer.close()
    lost = [payload for payload in world.ledger.sent if payload not in world.ledger.acknowledged]
    assert all(payload in world.ledger.failed for payload in lost)
    world.check()


async def consumer_goes_on(world: World, consumer: Any) -> None:
    """Check that the consumer reads every remaining record exactly once."""
    if consumer.state is not State.CLOSED:
        await consumer.start()
        payload = world.ledger.payload(9, "t", 0)
        (metadata,) = world.cluster.produce("t", [pack(payload)])
        world.ledger.acknowledge(payload, metadata.offset)
        async with asyncio.timeout(30):
            await poll(world, consumer)
        world.ledger.check()
    await consumer.close()


async def is_closed(world: World, closed: Any) -> None:
    assert closed.state is State.CLOSED
    await closed.close()


async def producer_is_closed(world: World, producer: Any) -> None:
    """Check that every record has an outcome, which may be the error of a closed producer."""
    await is_closed(world, producer)
    assert world.ledger.settled
    world.check()


def on(method: str, *arguments: Any) -> Callable[[World, Any], Coroutine[Any, Any, Any]]:
    return lambda world, made: getattr(made, method)(*arguments)


CASES = {
    "Producer.start": Case(new_producer, on("start"), producer_goes_on),
    "Producer.prepare": Case(started_producer, on("prepare", "t"), producer_goes_on),
    "Producer.flush": Case(started_producer, on("flush"), producer_goes_on),
    "Producer.drain": Case(full_producer, on("drain"), producer_goes_on),
    "delivery": Case(started_producer, delivery, producer_goes_on),
    "Producer.gather": Case(started_producer, gather, producer_goes_on),
    "Producer.send_all": Case(started_producer, send_all, producer_goes_on),
    "Producer.close": Case(full_producer, on("close"), producer_is_closed),
    "Consumer.start": Case(new_consumer, on("start"), consumer_goes_on),
    "Consumer.poll": Case(started_consumer, poll, consumer_goes_on),
    "Consumer.get": Case(started_consumer, get, consumer_goes_on),
    "Consumer iteration": Case(started_consumer, iteration, consumer_goes_on),
    "Consumer.batches": Case(started_consumer, batches, consumer_goes_on),
    "Consumer.position": Case(unsure_consumer, on("position", T0), consumer_goes_on),
    "Consumer.end_offsets": Case(started_consumer, on("end_offsets", [T0]), consumer_goes_on),
    "Consumer.offsets_for_times": Case(
        started_consumer, on("offsets_for_times", {T0: 0}), consumer_goes_on
    ),
    "Consumer.lag": Case(started_consumer, on("lag"), consumer_goes_on),
    "Consumer.close": Case(closed_over, on("close"), is_closed),
}


def interrupted(case: Case, way: str, **when: Any) -> tuple[Interrupted, float]:
    """Run a case once. Return how the call ended, and its duration in virtual seconds."""

    async def scenario(world: World) -> tuple[Interrupted, float]:
        made = await case.made(world)
        began = world.now
        outcome = await interrupt(case.call(world, made), way=way, **when)
        took = world.now - began
        await case.after(world, made)
        return outcome, took

    return simulate(scenario, weather=Weather(latency_s=(0.001, 0.01)))


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_calls_can_be_cancelled_at_every_suspension(
    name: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0
    for n in range(1, 1_000):
        outcome, _ = interrupted(CASES[name], way, suspension=n)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {most} suspensions, each cancelled by {way}'s cancellation ")
    assert most > 0


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("name", CASES)
def test_calls_can_be_cancelled_at_many_moments(name: str) -> None:
    """The ways to cancel take turns."""
    ways = ("asyncio", "anyio")
    outcome, whole = interrupted(CASES[name], ways[0])
    assert not outcome.cancelled
    assert outcome.error is None
    for step in one_in(6, range(MOMENTS), list(CASES).index(name)):
        interrupted(CASES[name], ways[step // 2 % 2], moment=whole * step / MOMENTS)


@pytest.mark.fault(36)
@pytest.mark.parametrize("name", ["Producer.close", "Consumer.close"])
def test_two_concurrent_closes_both_end(name: str) -> None:
    async def scenario(world: World) -> None:
        made = await CASES[name].made(world)
        first, second = asyncio.create_task(made.close()), asyncio.create_task(made.close())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        await second
        await made.close()
        assert made.state is State.CLOSED

    simulate(scenario)
