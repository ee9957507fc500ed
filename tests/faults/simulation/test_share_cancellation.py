"""Every public call of a share consumer is cancelled at each suspension, and loses no record.

Afterwards the consumer is usable or closed. If it is usable, it gets every record that was not
accepted before the locks end: no record is locked by a member whose program does not have it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from interrupt import Interrupted, interrupt
from share_work import ShareWork
from thinned import one_in
from world import World, simulate

from aiokclient import ShareConsumer, State
from aiokclient.errors import ClosedError, KafkaError
from aiokclient.testing.simulation.network import Weather
from aiokclient.worker import Exponential, Retry, Worker

COUNT = 12
MOMENTS = 4
LOCK_MS = 30_000
Call = Callable[["Prepared"], Coroutine[Any, Any, Any]]


class Prepared:
    """A share consumer of a topic with records, and the records that it holds."""

    def __init__(self, world: World, consumer: ShareConsumer[Any, Any]) -> None:
        self.world, self.consumer = world, consumer
        self.held: list[Any] = []

    async def take(self, count: int) -> None:
        while len(self.held) < count:
            self.held += await self.consumer.poll(10.0, count - len(self.held), tracked=True)


async def make_new(world: World) -> Prepared:
    work = ShareWork(world)
    await work.create_group(lock_ms=LOCK_MS)
    world.cluster.produce("t", [b"%d" % number for number in range(COUNT)])
    return Prepared(world, work.new_consumer(max_poll_records=5))


async def make_started(world: World) -> Prepared:
    prepared = await make_new(world)
    await prepared.consumer.start()
    return prepared


async def make_holding(world: World) -> Prepared:
    prepared = await make_started(world)
    await prepared.take(4)
    return prepared


async def make_settled(world: World) -> Prepared:
    """Return a consumer with settlements, and a renewal, that have no outcome yet."""
    prepared = await make_holding(world)
    prepared.consumer.done(prepared.held[:2])
    prepared.consumer.renew(prepared.held[2])
    return prepared


# -- calls


async def poll(prepared: Prepared) -> None:
    for _ in range(3):
        prepared.held += await prepared.consumer.poll(2.0, 3, tracked=True)


async def get(prepared: Prepared) -> None:
    for _ in range(3):
        await prepared.consumer.get(2.0)


async def iterate(prepared: Prepared) -> None:
    seen = 0
    async for _ in prepared.consumer:
        seen += 1
        if seen == 7:
            break


async def iterate_batches(prepared: Prepared) -> None:
    seen = 0
    async for records in prepared.consumer.batches(3, max_wait=0.1):
        seen += len(records)
        if seen >= 6:
            break


async def iterate_tracked(prepared: Prepared) -> None:
    async for record in prepared.consumer.tracked(3):
        prepared.held.append(record)
        if len(prepared.held) % 3 == 0:
            prepared.consumer.done(prepared.held[-3:])
        if len(prepared.held) >= 7:
            break


async def process(prepared: Prepared) -> None:
    async with prepared.consumer.processing(prepared.held[0]):
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)


async def run(prepared: Prepared) -> None:
    """Handle records, of which one fails once, until the run is stopped in a handler."""
    handled: list[int] = []

    async def handle(record: Any, worker: Worker) -> None:
        await asyncio.sleep(0.01)
        handled.append(record.offset)
        if len(handled) == 2:
            raise ConnectionError("not now")
        if len(handled) == 6:
            worker.stop()

    retry = Retry(2, backoff=Exponential(0.02, max=0.02))
    await prepared.consumer.run(handle, concurrency=2, retry=retry)


async def wait_for_loss(prepared: Prepared) -> None:
    waiting = asyncio.get_running_loop().call_later(
        0.02, prepared.consumer.release, prepared.held[3]
    )
    try:
        await prepared.consumer.lock_lost(prepared.held[3])
    finally:
        waiting.cancel()


async def drain(prepared: Prepared) -> None:
    prepared.consumer.done(prepared.held[2:])
    await prepared.consumer.drain(10.0)


# -- checks


async def goes_on(prepared: Prepared) -> None:
    """Check that all records that are not accepted are held, or come before the locks end."""
    consumer = prepared.consumer
    if consumer.state is not State.CLOSED:
        await consumer.start()
        since = prepared.world.now
        for record in prepared.held:
            with contextlib.suppress(KafkaError):  # It is settled.
                consumer.done(record)
        async with asyncio.timeout(LOCK_MS / 1000 / 2):
            while set((await consumer.lag()).values()) != {0}:
                consumer.done(await consumer.poll(0.5, tracked=True))
                outcomes = await consumer.commit()
                assert set(outcomes.values()) <= {None}
        assert prepared.world.now - since < LOCK_MS / 1000 / 2
        await consumer.commit()
    await consumer.close()


async def is_closed(prepared: Prepared) -> None:
    assert prepared.consumer.state is State.CLOSED
    await prepared.consumer.close()


class Case(NamedTuple):
    """A test of one call: `make` prepares the consumer, and `check` uses it afterwards."""

    make: Callable[[World], Awaitable[Prepared]]
    call: Call
    check: Callable[[Prepared], Awaitable[None]] = goes_on


CASES = {
    "start": Case(make_new, lambda p: p.consumer.start()),
    "poll": Case(make_started, poll),
    "get": Case(make_started, get),
    "iteration": Case(make_started, iterate),
    "batches": Case(make_started, iterate_batches),
    "tracked": Case(make_started, iterate_tracked),
    "processing": Case(make_holding, process),
    "run": Case(make_started, run),
    "lock_lost": Case(make_holding, wait_for_loss),
    "commit": Case(make_settled, lambda p: p.consumer.commit()),
    "drain": Case(make_settled, drain),
    "lag": Case(make_holding, lambda p: p.consumer.lag()),
    "close": Case(make_settled, lambda p: p.consumer.close(), is_closed),
    "leaving": Case(make_settled, lambda p: p.consumer.__aexit__(None, None, None), is_closed),
}


def interrupted(case: Case, way: str, **when: Any) -> tuple[Interrupted, float]:
    """Run a case once. Return how the call ended, and its duration in virtual seconds."""

    async def scenario(world: World) -> tuple[Interrupted, float]:
        prepared = await case.make(world)
        began = world.now
        outcome = await interrupt(case.call(prepared), way=way, **when)
        took = world.now - began
        await case.check(prepared)
        return outcome, took

    return simulate(scenario, weather=Weather(latency_s=(0.001, 0.01)))


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_share_calls_can_be_cancelled_at_every_suspension(name: str, way: str) -> None:
    most = 0
    for n in range(1, 1_000):
        outcome, _ = interrupted(CASES[name], way, suspension=n)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    assert most > 0


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("name", CASES)
def test_share_calls_can_be_cancelled_at_many_moments(name: str) -> None:
    outcome, took = interrupted(CASES[name], "asyncio")
    assert not outcome.cancelled
    assert outcome.error is None
    for step in one_in(2, range(MOMENTS), list(CASES).index(name)):
        interrupted(CASES[name], ("asyncio", "anyio")[step // 2 % 2], moment=took * step / MOMENTS)


@pytest.mark.fault(36)
def test_two_concurrent_closes_both_end_and_release_what_is_held() -> None:
    async def scenario(world: World) -> None:
        prepared = await make_settled(world)
        consumer = prepared.consumer
        first, second = asyncio.create_task(consumer.close()), asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await second
        await consumer.close()
        assert consumer.state is State.CLOSED
        with pytest.raises(ClosedError):
            await consumer.poll()
        async with ShareWork(world).new_consumer() as other:
            found: list[int] = []
            while len(found) < COUNT - 2:
                records = await other.poll(5.0)
                assert records
                found += [record.offset for record in records]
            assert sorted(found) == list(range(2, COUNT))

    simulate(scenario)


def test_a_close_ends_without_an_error_while_no_coordinator_can_be_found() -> None:
    async def scenario(world: World) -> None:
        closes = []
        async with world.client(close_timeout_ms=3000) as client:
            consumers = [ShareConsumer[Any, Any]("t", group_id="s", client=client) for _ in "12345"]
            world.cluster.stop(1)
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            for consumer in consumers:
                # At some of these times, the limits of the close and of its parts end at once.
                await asyncio.sleep(1.0 + len(closes) * 0.01)
                closes.append(asyncio.ensure_future(consumer.close()))
            began = world.now
            await asyncio.gather(*closes)
            assert world.now - began <= 3.5
            assert {consumer.state for consumer in consumers} == {State.CLOSED}
        world.cluster.start(1)

    simulate(scenario)
