"""Every call about transactions is cancelled at each suspension.

Afterwards, readers of committed data see all or nothing of the transaction, as its outcome says,
and a next transaction commits. The tests print the number of suspensions of each call.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from interrupt import Interrupted, interrupt
from world import World, simulate

from aiokclient import GroupMetadata, State, TopicPartition, TransactionOutcome
from aiokclient.errors import ApplicationRecoverableError, IllegalStateError, KafkaError
from aiokclient.patterns import transform
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome

TPS = [TopicPartition("t", partition) for partition in range(2)]
INPUT = TopicPartition("in", 0)
MEMBER = GroupMetadata("g")
FIRST, NEXT = [b"first 0", b"first 1"], [b"next 0", b"next 1"]
INPUTS = [b"input %d" % number for number in range(6)]
OPTIONS: dict[str, Any] = {"transactional_id": "t-1", "linger_ms": 5}


class Case(NamedTuple):
    """A test of one call: ``made`` prepares a producer, ``call`` uses it."""

    made: Callable[[World], Awaitable[Any]]
    call: Callable[[World, Any], Coroutine[Any, Any, Any]]
    outcomes: frozenset[TransactionOutcome | None]
    """The outcomes of the first transaction that a cancellation may lead to."""


# -- prepared producers


async def new(world: World) -> Any:
    return world.producer(**OPTIONS)


async def started(world: World) -> Any:
    producer = await new(world)
    await producer.start()
    return producer


async def begun(world: World) -> Any:
    """Return a producer with an open transaction, of which one record is written."""
    producer = await started(world)
    await producer.begin_transaction()
    await producer.send("t", FIRST[0], partition=0)
    producer.send("t", FIRST[1], partition=1)
    return producer


async def sent(world: World) -> Any:
    """Return a producer with an open transaction of records and an offset."""
    producer = await begun(world)
    await producer.send_offsets_to_transaction({INPUT: 1}, MEMBER)
    return producer


async def aborting(world: World) -> Any:
    """Return a producer with an abort in progress."""
    producer = await sent(world)
    await producer.abort_transaction(timeout=0.0)
    return producer


# -- calls under test


async def context(world: World, producer: Any) -> None:
    async with producer.transaction() as tx:
        for tp, value in zip(TPS, FIRST, strict=True):
            tx.send("t", value, partition=tp.partition)
        await tx.send_offsets({INPUT: 1}, MEMBER)


async def failing_context(world: World, producer: Any) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with producer.transaction() as tx:
            await tx.send("t", FIRST[0], partition=0)
            tx.send("t", FIRST[1], partition=1)
            await tx.send_offsets({INPUT: 1}, MEMBER)
            raise ZeroDivisionError


def on(method: str, *arguments: Any) -> Callable[[World, Any], Coroutine[Any, Any, Any]]:
    return lambda world, made: getattr(made, method)(*arguments)


CASES = {
    "Producer.start": Case(new, on("start"), frozenset({None})),
    "begin_transaction": Case(aborting, on("begin_transaction"), frozenset({ABORTED})),
    "send_offsets_to_transaction": Case(
        begun, on("send_offsets_to_transaction", {INPUT: 1}, MEMBER), frozenset({ABORTED})
    ),
    "commit_transaction": Case(sent, on("commit_transaction"), frozenset({COMMITTED})),
    "abort_transaction": Case(sent, on("abort_transaction"), frozenset({ABORTED})),
    "restart": Case(sent, on("restart"), frozenset({ABORTED})),
    "async with transaction()": Case(started, context, frozenset({None, ABORTED, COMMITTED})),
    "async with that fails": Case(started, failing_context, frozenset({None, ABORTED})),
}


# -- checks after the call


async def make_usable(producer: Any, case: Case) -> None:
    """Make the producer ready for a transaction, as a program does after a cancellation."""
    if producer.state is State.NEW:
        await producer.start()
    if case is CASES["restart"]:
        await producer.restart()
    try:
        await producer.abort_transaction()
    except IllegalStateError:
        pass  # No transaction is open.
    except ApplicationRecoverableError:
        await producer.restart()


async def read(world: World, *tps: TopicPartition) -> list[bytes]:
    async with world.consumer(isolation_level="read_committed") as consumer:
        consumer.assign(tps)
        return [record.value async for record in consumer.until_end()]


async def stored_offset(world: World) -> int | None:
    async with world.consumer(group_id="g") as consumer:
        found = (await consumer.committed([INPUT]))[INPUT]
        return None if found is None else found.offset


async def commits_next(producer: Any) -> None:
    async with producer.transaction() as tx:
        for tp, value in zip(TPS, NEXT, strict=True):
            tx.send("t", value, partition=tp.partition)
    assert tx.outcome is COMMITTED


async def scenario(world: World, case: Case, way: str, when: dict[str, Any]) -> Interrupted:
    producer = await case.made(world)
    interrupted = await interrupt(case.call(world, producer), way=way, **when)
    if case is CASES["commit_transaction"]:
        assert producer.last_transaction.outcome is COMMITTED
    await make_usable(producer, case)
    first = producer.last_transaction
    outcome = None if first is None else first.outcome
    if interrupted.cancelled:
        assert outcome in case.outcomes
    await commits_next(producer)
    await producer.close()
    whole = outcome is COMMITTED
    assert sorted(await read(world, *TPS)) == sorted([*FIRST, *NEXT] if whole else NEXT)
    assert await stored_offset(world) == (1 if whole else None)
    assert interrupted.error is None
    return interrupted


def run(case: Case, way: str, level: int, **when: Any) -> Interrupted:
    return simulate(
        lambda world: scenario(world, case, way, when),
        topics={"t": 2, "in": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.001, 0.01)),
    )


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_transactions_are_whole_after_a_cancellation_at_each_suspension(
    name: str, way: str, level: int, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0
    for n in range(1, 1_000):
        outcome = run(CASES[name], way, level, suspension=n)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            break
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {most} suspensions, each cancelled by {way} at level {level} ")
    assert most > 0


MOMENTS = 25


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_transactions_are_whole_after_a_cancellation_at_many_moments(
    name: str, way: str, level: int
) -> None:
    """Most of a commit and of an abort runs in a background task, between two suspensions."""
    cancelled = 0
    for step in range(MOMENTS):
        outcome = run(CASES[name], way, level, moment=0.1 * step / MOMENTS)
        cancelled += outcome.cancelled
    assert cancelled > 0


# -- transform


async def transformed(world: World, way: str, suspension: int) -> Interrupted:
    """Cancel `transform` at a suspension, and process what is left with another one."""
    if not world.cluster.records("in"):
        world.cluster.produce("in", INPUTS)
    seen = 0

    async def work() -> None:
        nonlocal seen
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with (
            world.producer(**OPTIONS) as producer,
            world.consumer("in", **options) as consumer,
            transform(consumer, producer, max_records=2) as stream,
        ):
            async for batch in stream:
                for record in batch:
                    batch.send("t", record.value, partition=0)
                    seen += 1
                if batch.records[-1].offset == len(INPUTS) - 1:
                    consumer.stop()

    interrupted = await interrupt(work(), way=way, suspension=suspension)
    if await stored_offset(world) != len(INPUTS):
        await work()
    assert seen >= len(INPUTS)
    assert await read(world, TPS[0]) == INPUTS
    assert await stored_offset(world) == len(INPUTS)
    assert interrupted.error is None or not isinstance(interrupted.error, KafkaError)
    return interrupted


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
def test_transform_counts_each_record_once_after_a_cancellation_at_each_suspension(
    way: str, level: int, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0
    for n in range(1, 1_000):
        outcome = simulate(
            lambda world, n=n: transformed(world, way, n),
            topics={"t": 2, "in": 1},
            transaction_version=level,
            weather=Weather(latency_s=(0.001, 0.01)),
        )
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            break
    with capsys.disabled():
        sys.stdout.write(f"\ntransform: {most} suspensions, each cancelled by {way} at {level} ")
    assert most > 10
