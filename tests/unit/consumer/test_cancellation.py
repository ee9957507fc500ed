"""Tests that no cancellation loses records, blocks a later call, or leaves a task or connection.

Each scenario runs once for n = 1, 2, ... and is cancelled at its n-th suspension, until it ends
before its n-th suspension. Cancellation by anyio is level-triggered: every further await in the
cancelled scope is cancelled, too.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import Consumer, State, TopicPartition

Read = Callable[[Consumer[Any, Any], list[int]], Coroutine[Any, Any, None]]
T0 = TopicPartition("t", 0)
COUNT = 60


class Driven:
    """An awaitable that runs a coroutine and calls `cancel` at its n-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], n: int) -> None:
        self.coroutine, self.n = coroutine, n
        self.suspensions = 0
        self.cancel: Callable[[], object] = lambda: None

    def __await__(self) -> Generator[Any, Any, None]:
        inner = self.coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                waits_for = next(inner) if error is None else inner.throw(error)
            except StopIteration:
                return
            self.suspensions += 1
            if self.suspensions == self.n:
                self.cancel()
            try:
                yield waits_for
                error = None
            except BaseException as thrown:
                error = thrown


async def in_a_task(driven: Driven) -> bool:
    async def run() -> None:
        await driven

    task = asyncio.create_task(run())
    driven.cancel = task.cancel
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


async def in_a_scope(driven: Driven) -> bool:
    with anyio.CancelScope() as scope:
        driven.cancel = scope.cancel
        await driven
    return scope.cancelled_caught


WAYS = {"asyncio": in_a_task, "anyio": in_a_scope}


def every_suspension(
    way: str, scenario: Callable[[World, Callable[..., Any]], Coroutine[Any, Any, None]]
) -> None:
    """Run a scenario once for each of its suspensions, and cancel it there."""
    counts: list[int] = []

    async def run(world: World) -> bool:
        cancelled = [False]

        async def cancelling(coroutine: Coroutine[Any, Any, None]) -> bool:
            driven = Driven(coroutine, len(counts) + 1)
            cancelled[0] = await WAYS[way](driven)
            counts.append(driven.suspensions)
            return cancelled[0]

        for _ in range(COUNT // 20):
            world.cluster.produce("t", [b"v"] * 10)
            world.cluster.produce("t", [b"v"] * 10)
        await scenario(world, cancelling)
        return cancelled[0]

    while simulate(run, seed=len(counts)):
        assert len(counts) < 500
    assert counts[-1] > 0
    sys.stdout.write(f"cancelled at each of {counts[-1]} suspensions\n")


async def rest(world: World, consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    """Read the remaining records and one more, and check that none is missing or repeated."""
    world.cluster.produce("t", [b"further"])
    async with asyncio.timeout(60):
        while not offsets or offsets[-1] < COUNT:
            offsets += [record.offset for record in await consumer.poll()]
    assert offsets == list(range(COUNT + 1))


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_start_leaves_nothing(way: str) -> None:
    async def scenario(world: World, cancelling: Callable[..., Any]) -> None:
        consumer = world.consumer("t")
        if await cancelling(consumer.start()):
            assert consumer.state is State.NEW
        async with consumer:
            await rest(world, consumer, [])

    every_suspension(way, scenario)


@pytest.mark.fault(35)
def test_a_start_cancelled_at_any_time_leaves_nothing() -> None:
    """The start can be cancelled at each half millisecond.

    It runs in a task of its own, so the test cannot count its suspensions.
    """
    moments = 0

    async def scenario(world: World) -> bool:
        world.cluster.produce("t", [b"v"] * COUNT)
        consumer = world.consumer("t")
        with anyio.move_on_after(moments * 0.0005) as scope:
            await consumer.start()
        if scope.cancelled_caught:
            assert consumer.state is State.NEW
        async with consumer:
            await rest(world, consumer, [])
        return scope.cancelled_caught

    while simulate(scenario, brokers=3):
        moments += 1
    assert moments > 10
    sys.stdout.write(f"cancelled at {moments} moments\n")


async def by_poll(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    while len(offsets) < COUNT:
        offsets += [record.offset for record in await consumer.poll(max_records=7)]


async def by_get(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    for _ in range(COUNT // 2):
        record = await consumer.get()
        assert record is not None
        offsets.append(record.offset)


async def by_iteration(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == COUNT:
            return


async def by_until_end(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for record in consumer.until_end():
        offsets.append(record.offset)


async def by_batches(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for records in consumer.batches(max_records=9, max_wait=0.1):
        offsets += [record.offset for record in records]
        if len(offsets) == COUNT:
            return


async def by_arrow(consumer: Consumer[Any, Any], offsets: list[int]) -> None:
    async for table in consumer.arrow_batches():
        offsets += table.column("offset").to_pylist()
        if len(offsets) == COUNT:
            return


READS: dict[str, Read] = {
    "poll": by_poll,
    "get": by_get,
    "iteration": by_iteration,
    "until_end": by_until_end,
    "batches": by_batches,
    "arrow": by_arrow,
}


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", READS)
def test_a_read_cancelled_at_any_suspension_loses_no_record(way: str, name: str) -> None:
    """The reads before and after the cancellation return every record exactly once."""
    if name == "arrow":
        pytest.importorskip("pyarrow")

    async def scenario(world: World, cancelling: Callable[..., Any]) -> None:
        async with world.consumer("t", max_partition_fetch_bytes=300) as consumer:
            offsets: list[int] = []
            await cancelling(READS[name](consumer, offsets))
            await rest(world, consumer, offsets)

    every_suspension(way, scenario)


async def ask(consumer: Consumer[Any, Any]) -> None:
    consumer.seek_to_end()
    assert await consumer.position(T0) == COUNT
    assert await consumer.end_offsets([T0]) == {T0: COUNT}
    assert await consumer.beginning_offsets([T0]) == {T0: 0}
    assert (await consumer.offsets_for_times({T0: 0}))[T0] is not None
    assert await consumer.lag() == {T0: 0}
    assert len(await consumer.partitions_for("t")) == 1
    assert "t" in await consumer.list_topics()


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", WAYS)
def test_cancelled_lookups_leave_nothing(way: str) -> None:
    async def scenario(world: World, cancelling: Callable[..., Any]) -> None:
        async with world.consumer("t") as consumer:
            await cancelling(ask(consumer))
            consumer.seek_to_beginning()
            await rest(world, consumer, [])

    every_suspension(way, scenario)


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reading", [False, True])
def test_a_cancelled_close_closes_the_consumer(way: str, reading: bool) -> None:
    """The consumer is closed in any case.

    The simulation checks that no task or connection is left.
    """

    async def scenario(world: World, cancelling: Callable[..., Any]) -> None:
        consumer = await world.consumer("t")
        offsets: list[int] = []
        await by_poll(consumer, offsets)
        if reading:
            waiting = asyncio.create_task(consumer.poll(timeout=100))
            await asyncio.sleep(0.1)
        await cancelling(consumer.close())
        assert consumer.state is State.CLOSED
        if reading:
            assert await waiting == []
        await consumer.close()

    every_suspension(way, scenario)


@pytest.mark.fault(35)
@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_block_closes_the_consumer(way: str) -> None:
    async def whole(world: World, offsets: list[int]) -> None:
        async with world.consumer("t") as consumer:
            await by_poll(consumer, offsets)

    async def scenario(world: World, cancelling: Callable[..., Any]) -> None:
        offsets: list[int] = []
        await cancelling(whole(world, offsets))
        assert offsets == list(range(len(offsets)))

    every_suspension(way, scenario)
