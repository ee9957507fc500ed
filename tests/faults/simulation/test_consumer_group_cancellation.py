"""Every call of a group member is cancelled at each suspension, and at many moments.

Afterwards no record is missing, no offset of an unprocessed record is committed, and the consumer
reads on, or is closed and has left its group.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from group_world import committed, fill, member
from interrupt import Interrupted, interrupt
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, State, TopicPartition
from aiokclient.errors import ClosedError
from aiokclient.testing.simulation.network import Weather

COUNT = 30
MOMENTS = 24
T0 = TopicPartition("t", 0)
Call = Callable[[Consumer[Any, Any]], Coroutine[Any, Any, Any]]


async def read_on(consumer: Consumer[Any, Any]) -> None:
    async for record in consumer:
        if record.offset >= 12:
            break


async def tracked(consumer: Consumer[Any, Any]) -> None:
    async for record in consumer.tracked(max_outstanding=4):
        await asyncio.sleep(0)
        consumer.done(record)
        if record.offset >= 12:
            break


async def start_another(consumer: Consumer[Any, Any]) -> None:
    consumer.subscribe(["t", "u"])
    await consumer.poll(timeout=1)


async def rewind(consumer: Consumer[Any, Any]) -> None:
    """Call `rewind_group` in the task that reads, between its records."""
    await consumer.poll(timeout=1, max_records=2)
    await consumer.rewind_group({T0: 0}, timeout=20)


CALLS: dict[str, Call] = {
    "commit": lambda c: c.commit(),
    "commit of a record": lambda c: c.commit({T0: 2}),
    "committed": lambda c: c.committed([T0]),
    "poll": lambda c: c.poll(timeout=1, max_records=5),
    "get": lambda c: c.get(),
    "async for": read_on,
    "tracked": tracked,
    "subscribe and poll": start_another,
    "rewind_group": rewind,
    "position": lambda c: c.position(T0),
    "close": lambda c: c.close(),
}


async def once(world: World, call: Call, how: dict[str, Any]) -> Interrupted:
    fill(world, COUNT)
    options = {"auto_commit_interval_ms": 300}
    consumer = member(world, **options)
    await consumer.start()
    seen = [record.offset for record in await consumer.poll(max_records=3)]
    assert seen == [0, 1, 2]
    done = await interrupt(call(consumer), **how)
    if not done.cancelled and done.error is not None:
        raise done.error
    if consumer.state is not State.CLOSED:
        last = committed(world)
        assert last is None or last <= COUNT
        # A record that the cancelled call had received was not processed. The seek delivers it
        # again.
        async with asyncio.timeout(60):
            for _ in range(1000):  # A rebalance may delay the assignment.
                if T0 in consumer.consumed():
                    break
                await asyncio.sleep(0.05)
            consumer.seek(T0, min(consumer.consumed()[T0].offset, 3))
            while seen[-1] < COUNT - 1:
                seen += [record.offset for record in await consumer.poll()]
        await consumer.poll(timeout=0)
        await consumer.close()
        assert committed(world) == COUNT
    else:
        with pytest.raises(ClosedError):
            await consumer.poll()
        assert committed(world) in (0, 3)
    assert not world.cluster.groups["g"].members
    assert sorted(set(seen)) == list(range(seen[-1] + 1))
    return done


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_of_a_consumer_in_a_group_can_be_cancelled_at_every_suspension(
    name: str, way: str
) -> None:
    for n in range(1, 500):
        how = {"way": way, "suspension": n}
        done = simulate(lambda w, how=how: once(w, CALLS[name], how), topics={"t": 1, "u": 1})  # type: ignore[misc]
        if not done.cancelled and done.suspensions < n:
            break
    sys.stdout.write(f"{name}: cancelled at {n - 1} suspensions\n")


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("name", CALLS)
def test_calls_of_a_consumer_in_a_group_can_be_cancelled_at_many_moments(name: str) -> None:
    """The ways to cancel take turns."""
    for n in one_in(4, range(MOMENTS), list(CALLS).index(name)):
        how = {"way": ("asyncio", "anyio")[n // 2 % 2], "moment": 0.0003 * 1.4**n}
        done = simulate(lambda w, how=how: once(w, CALLS[name], how), topics={"t": 1, "u": 1})  # type: ignore[misc]
        if not done.cancelled:
            break  # The call has ended before this moment, and all later ones.


async def read_for_ever(consumer: Consumer[Any, Any]) -> None:
    await consumer.start()
    while True:
        await consumer.poll(timeout=0.05)


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("how", ["closed", "cancelled and closed", "unsubscribed and closed"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_other_members_do_not_wait_for_a_closed_member(protocol: str, how: str) -> None:
    async def scenario(world: World, moment: float) -> None:
        options = {"group_id": "g", "group_protocol": protocol}
        first, second, third = (world.consumer("t", **options) for _ in range(3))
        reading = asyncio.create_task(read_for_ever(first))
        await world.cluster.until(lambda: len(first.assignment()) == 4)
        ended = asyncio.create_task(read_for_ever(second))
        await asyncio.sleep(moment)
        if how == "cancelled and closed":
            ended.cancel()
            await asyncio.sleep(0)
        elif how == "unsubscribed and closed":
            second.unsubscribe()
            await asyncio.sleep(0.004)
        began = world.now
        await second.close()
        assert world.now - began < 1
        await asyncio.wait([ended])
        also = asyncio.create_task(read_for_ever(third))
        await world.cluster.until(lambda: len(third.assignment()) == 2)
        await world.cluster.until(lambda: len(first.assignment()) == 2)
        assert world.now - began < 10
        for task in (reading, also):
            task.cancel()
        await asyncio.wait([reading, also])
        await asyncio.gather(first.close(), third.close())

    for n in one_in(6, range(MOMENTS), len(how + protocol)):
        weather = Weather(latency_s=(0.002, 0.006))
        simulate(lambda w, n=n: scenario(w, 0.03 + 0.005 * n), topics={"t": 4}, weather=weather)  # type: ignore[misc]


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
def test_start_can_be_cancelled_at_many_moments(way: str) -> None:
    async def scenario(world: World, moment: float) -> None:
        fill(world, COUNT)
        consumer = member(world)
        done = await interrupt(consumer.start(), way=way, moment=moment)
        if done.cancelled:
            assert consumer.state is State.NEW
            # The broker may still hold a JoinGroup request, which is abandoned with its connection.
        async with consumer:
            assert [r.offset for r in await consumer.poll(timeout=30)] == list(range(COUNT))

    for n in one_in(8, range(40), 4 * (way == "anyio")):
        simulate(lambda w, n=n: scenario(w, 0.001 * (n + 1)))  # type: ignore[misc]
