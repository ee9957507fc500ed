"""Readers while a producer dies within a transaction, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from raw_transactions import RawTransaction
from world import World, simulate

from aiokclient import Client, TopicPartition
from aiokclient.errors import ApplicationRecoverableError
from aiokclient.protocol import ApiKey

TP = TopicPartition("t", 0)
DEAD, NEXT = [b"dead 1", b"dead 2"], [b"next 1", b"next 2", b"next 3"]
TIMEOUT_S = 30.0


async def left_open(world: World, client: Client) -> RawTransaction:
    """Return a transaction with records and offsets, of a producer that sends nothing more."""
    transaction = RawTransaction(client, "t-1", transaction_timeout_ms=int(TIMEOUT_S * 1000))
    await transaction.begin()
    await transaction.produce(TP, *DEAD)
    await transaction.commit_offsets("g", {TP: 1})
    return transaction


class Readers:
    """A consumer without a group, and a member of the group whose offsets the transaction has."""

    def __init__(self, world: World) -> None:
        options: Any = {"isolation_level": "read_committed"}
        self.free = world.consumer("t", **options)
        self.member = world.consumer("t", group_id="g", enable_auto_commit=False, **options)
        self.tasks: list[asyncio.Task[list[bytes]]] = []

    async def start(self) -> None:
        for consumer in (self.free, self.member):
            await consumer.start()
            self.tasks.append(asyncio.create_task(self._read(consumer)))

    async def _read(self, consumer: Any) -> list[bytes]:
        values: list[bytes] = []
        while len(values) < len(NEXT):
            values += [record.value for record in await consumer.poll(timeout=600)]
        return values

    def waiting(self) -> bool:
        return not any(task.done() for task in self.tasks)

    async def close(self) -> None:
        for consumer in (self.free, self.member):
            await consumer.close()


@pytest.mark.fault(51)
@pytest.mark.parametrize("markers_s", [0.0, 20.0])
def test_readers_wait_for_the_markers_of_the_transaction_that_was_taken_over(
    markers_s: float,
) -> None:
    """The takeover waits until the dead producer's transaction has ended, with its markers."""

    async def scenario(world: World) -> None:
        readers = Readers(world)
        async with world.client() as client:
            dead = await left_open(world, client)
            await readers.start()
            began = world.now
            with world.cluster.hold_markers("t-1"):
                next_one = RawTransaction(client, "t-1")
                taking_over = asyncio.create_task(next_one.begin())
                await asyncio.sleep(markers_s)
                assert readers.waiting()
            await taking_over
            assert world.now - began < TIMEOUT_S
            attempts = len(world.requests(ApiKey.INIT_PRODUCER_ID, since=began))
            assert attempts > (10 if markers_s else 1)
            await next_one.produce(TP, *NEXT)
            await asyncio.sleep(1)
            assert readers.waiting()
            for refused in (dead.produce(TP, b"late"), dead.end(commit=True)):
                with pytest.raises(ApplicationRecoverableError):
                    await refused
            await next_one.end(commit=True)
            assert [await task for task in readers.tasks] == [NEXT, NEXT]
        await readers.close()

    simulate(scenario)


@pytest.mark.fault(51)
def test_readers_continue_when_the_coordinator_ends_the_transaction() -> None:
    """Without a takeover, the transaction is aborted after its timeout, and not before."""

    async def scenario(world: World) -> None:
        readers = Readers(world)
        async with world.client() as client:
            began = world.now
            await left_open(world, client)
        await readers.start()
        world.cluster.produce("t", NEXT)
        await asyncio.sleep(began + TIMEOUT_S - world.now - 1)
        assert readers.waiting()
        assert [await task for task in readers.tasks] == [NEXT, NEXT]
        assert world.now - began > TIMEOUT_S - 0.1
        await readers.close()

    simulate(scenario)


@pytest.mark.fault(51)
def test_readers_continue_after_the_coordinator_moved_within_the_transaction() -> None:
    """The next coordinator continues the timeout of the dead producer's transaction."""

    async def scenario(world: World) -> None:
        readers = Readers(world)
        async with world.client() as client:
            began = world.now
            await left_open(world, client)
        await readers.start()
        world.cluster.produce("t", NEXT)
        for _ in range(3):
            await asyncio.sleep(TIMEOUT_S / 5)
            world.cluster.move_coordinator("t-1")
            world.cluster.move_coordinator("g")
        assert readers.waiting()
        assert [await task for task in readers.tasks] == [NEXT, NEXT]
        assert TIMEOUT_S - 0.1 < world.now - began < 3 * TIMEOUT_S
        await readers.close()

    simulate(scenario, brokers=3)
