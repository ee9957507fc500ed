"""Faults of a transactional producer: readers see each committed transaction, and no other.

Each test runs transactions one after the other while a fault occurs, and handles errors as a
program does, with three `except` clauses: abort, restart, or raise.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from transaction_runs import MEMBER, OFFSET, OPTIONS, PARTITIONS, Run, levels, run
from world import World

from aiokclient import TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
)
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome


@pytest.mark.fault(7)
@levels
@pytest.mark.parametrize("in_flight", [True, False])
def test_a_fenced_producer_writes_nothing_more(in_flight: bool, level: int) -> None:
    """A second producer takes over while the first one's records are in flight or written."""

    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as first, world.producer(**OPTIONS) as second:
            # The start of the second producer has fenced the first one, so the first one must
            # restart.
            await first.restart()
            await first.begin_transaction()
            sent = [first.send("t", b"lost %d" % n, partition=n % 3) for n in range(30)]
            if not in_flight:
                await first.flush()
            await second.restart()
            following = Run(world, second)
            assert await following.transaction(offsets=True) is COMMITTED
            with pytest.raises(ApplicationRecoverableError):
                await first.commit_transaction()
            assert all(delivery.done() for delivery in sent)
            length = sum(len(world.cluster.records("t", partition)) for partition in PARTITIONS)
            for refused in (
                first.begin_transaction,
                first.commit_transaction,
                first.abort_transaction,
                lambda: first.send_offsets_to_transaction({OFFSET: 99}, MEMBER),
            ):
                with pytest.raises(ApplicationRecoverableError):
                    await refused()
            with pytest.raises(ApplicationRecoverableError):
                first.send("t", b"lost", partition=0)
            await asyncio.sleep(5)
            now = sum(len(world.cluster.records("t", partition)) for partition in PARTITIONS)
            assert now == length
            assert await following.transaction(offsets=True) is COMMITTED
            await following.check()

    run(scenario, level)


@pytest.mark.fault(8, 9)
@levels
@pytest.mark.parametrize("error", [OutOfOrderSequenceError, UnknownProducerIdError])
def test_a_refused_sequence_aborts_only_its_transaction(error: Any, level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as producer:
            work = Run(world, producer)
            outcomes = []
            for number in range(12):
                refused = lambda: world.cluster.fail(ApiKey.PRODUCE, error, times=1)  # noqa: E731
                within = refused if number % 4 == 2 else lambda: None
                outcomes.append(await work.transaction(within))
            assert outcomes == [ABORTED if n % 4 == 2 else COMMITTED for n in range(12)]
            assert all(isinstance(error, AbortableError) for error in work.errors)
            assert len(work.errors) == 3
            await work.check()

    run(scenario, level)


@pytest.mark.fault(9)
@levels
@pytest.mark.parametrize("amid", [True, False])
def test_transactions_continue_after_the_broker_forgot_the_producer(amid: bool, level: int) -> None:
    async def scenario(world: World) -> None:
        def forget() -> None:
            for partition in PARTITIONS:
                world.cluster.forget_producers("t", partition)

        async with world.producer(**OPTIONS) as producer:
            work = Run(world, producer)
            for number in range(8):
                forgets = number % 2 == 1
                if forgets and not amid:
                    forget()
                outcome = await work.transaction(forget if forgets and amid else lambda: None)
                assert outcome is COMMITTED or forgets
            assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, level)


@pytest.mark.fault(10)
@levels
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_transaction_of_which_batches_expire_while_they_are_written_is_aborted(
    codec: str, level: int
) -> None:
    """The memory of an expired batch is not reused while the connection still refers to it."""

    async def scenario(world: World) -> None:
        options = {**OPTIONS, "delivery_timeout_ms": 2_000, "request_timeout_ms": 1_900}
        async with world.producer(compression_type=codec, **options) as producer:
            work = Run(world, producer)
            assert await work.transaction() is COMMITTED
            leader = world.address(world.cluster.leader("t", 0))

            def part() -> None:
                world.network.part({"client"}, {leader})
                asyncio.get_running_loop().call_later(4, world.network.heal)

            assert await work.transaction(part) is ABORTED
            assert len(work.errors) == 1
            for _ in range(3):
                assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, level, brokers=3)


@pytest.mark.fault(51)
@levels
@pytest.mark.parametrize("markers_s", [0.0, 20.0])
def test_another_instance_takes_over_an_open_transaction(markers_s: float, level: int) -> None:
    """The start of the next instance waits as long as it gets CONCURRENT_TRANSACTIONS."""

    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as dead:
            await dead.begin_transaction()
            await dead.send("t", b"lost", partition=0)
            await dead.send_offsets_to_transaction({OFFSET: 99}, MEMBER)
            async with world.producer(**OPTIONS) as following:
                work = Run(world, following)
                assert await work.transaction(offsets=True) is COMMITTED
                await work.check()
            third, began = world.producer(**OPTIONS), world.now
            await dead.restart()
            await dead.begin_transaction()
            await dead.send("t", b"lost", partition=0)
            with world.cluster.hold_markers("t-1"):
                starting = asyncio.create_task(third.start())
                await asyncio.sleep(markers_s)
                assert not starting.done()
            await starting
            assert world.now - began < markers_s + 2
            work.producer = third
            assert await work.transaction(offsets=True) is COMMITTED
            await third.close()
            with pytest.raises(ApplicationRecoverableError):
                await dead.commit_transaction()
            await work.check()

    run(scenario, level)


@pytest.mark.parametrize(("old", "new"), [(0, 1), (0, 2), (1, 2), (1, 0)])
@pytest.mark.parametrize("amid", [True, False])
def test_no_transaction_notices_an_upgrade(amid: bool, old: int, new: int) -> None:
    """The level of transaction.version changes within a transaction, or between two of them."""

    async def scenario(world: World) -> None:
        def change() -> None:
            world.cluster.set_transaction_version(new)

        async with world.producer(**OPTIONS) as producer:
            work = Run(world, producer)
            for number in range(8):
                if number == 3 and not amid:
                    change()
                within = change if number == 3 and amid else lambda: None
                assert await work.transaction(within, offsets=True) is COMMITTED
                await asyncio.sleep(4)
            if new == 2:
                added = world.requests(ApiKey.ADD_PARTITIONS_TO_TXN)
                assert added[-1].at < world.now - 5, "The producer must use the new level."
            await work.check()

    run(scenario, old)


@pytest.mark.parametrize("leave", ["commit", "abort"])
def test_a_downgrade_to_level_0_within_a_transaction_requires_a_restart(leave: str) -> None:
    """The coordinator cannot store the end of the transaction.

    After that, it refuses the transactional id until another broker becomes its coordinator.
    """

    async def scenario(world: World) -> None:
        options = {**OPTIONS, "default_api_timeout_ms": 5_000, "close_timeout_ms": 2_000}
        async with world.producer(**options) as producer:
            work = Run(world, producer)
            assert await work.transaction(offsets=True) is COMMITTED
            await producer.begin_transaction()
            await producer.send("t", b"lost", partition=0)
            world.cluster.set_transaction_version(0)
            end = producer.commit_transaction if leave == "commit" else producer.abort_transaction
            began = world.now
            with pytest.raises(ApplicationRecoverableError, match=r"transaction\.version"):
                await end()
            assert world.now - began < 1
            for refused in (producer.begin_transaction, producer.abort_transaction):
                with pytest.raises(ApplicationRecoverableError):
                    await refused()
            began = world.now
            with pytest.raises(AbortableError):
                await producer.restart()
            assert world.now - began < 6
            world.cluster.move_coordinator("t-1")
            await producer.restart()
            for _ in range(3):
                assert await work.transaction(offsets=True) is COMMITTED
            await work.check()

    run(scenario, 2, brokers=3)
