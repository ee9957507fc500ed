"""Every call about transactions is cancelled at each suspension.

Afterwards, readers of committed data see all or nothing of the transaction, as its outcome says,
and a next transaction commits. The tests print the number of suspensions of each call. Some cases
cancel a call twice, or with anyio: then a call that still waits for something after the first
cancellation is cancelled again. With `AIOKCLIENT_EXPLORE`, each way cancels at each suspension;
otherwise the ways take turns.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from interrupt import TWICE, Interrupted, interrupt
from thinned import IS_WHOLE, one_in
from world import World, simulate

from aiokclient import GroupMetadata, State, TopicPartition, TransactionOutcome
from aiokclient.errors import (
    ApplicationRecoverableError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aiokclient.patterns import transform
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome

TPS = [TopicPartition("t", partition) for partition in range(2)]
INPUT = TopicPartition("in", 0)
MEMBER = GroupMetadata("g")
FIRST, NEXT = [b"first 0", b"first 1"], [b"next 0", b"next 1"]
INPUTS = [b"input %d" % number for number in range(6)]
OPTIONS: dict[str, Any] = {"transactional_id": "t-1", "linger_ms": 5}
READER: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
WAYS = ("asyncio", TWICE, "anyio")
TURNS = "each way in turn"
TESTED_WAYS = WAYS if os.environ.get("AIOKCLIENT_EXPLORE") else (TURNS,)
LEVELS = (0, 2)


class Case(NamedTuple):
    """A test of one call: ``made`` prepares a producer, ``call`` uses it."""

    made: Callable[[World], Awaitable[Any]]
    call: Callable[[World, Any], Coroutine[Any, Any, Any]]
    outcomes: frozenset[TransactionOutcome | None]
    """The possible outcomes of the first transaction after a cancellation."""
    raises: type[KafkaError] | None = None
    """The class of the error that the call raises if it is not cancelled."""


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


async def unanswered(world: World) -> Any:
    """Return a producer with a commit that was applied, but whose response was lost."""
    producer = await sent(world)
    with world.cluster.drop(ApiKey.END_TXN, when="after"), pytest.raises(TransactionAbortableError):
        await producer.commit_transaction(timeout=0.5)
    assert producer.last_transaction.outcome is UNKNOWN
    return producer


async def beside_a_reader(world: World) -> Any:
    """Return a producer.

    Its `reader` is a consumer that owns all partitions and has read nothing.
    """
    world.cluster.produce("in", INPUTS)
    producer = await started(world)
    producer.reader = world.consumer("in", **READER)
    await producer.reader.start()
    while not producer.reader.assignment():
        assert not await producer.reader.poll(timeout=0.01, max_records=0)
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


async def refused_context(world: World, producer: Any) -> None:
    """Leave a transaction whose commit is refused, so that it is aborted."""
    with (
        contextlib.suppress(TransactionAbortableError),
        world.cluster.fail(ApiKey.END_TXN, TransactionAbortableError, times=1),
    ):
        await context(world, producer)


async def reading_context(world: World, producer: Any, fail: bool = False) -> None:
    async with producer.transaction() as tx:
        tx.add(producer.reader)
        records = await producer.reader.poll(timeout=10, max_records=1)
        assert [record.value for record in records] == INPUTS[:1]
        for tp, value in zip(TPS, FIRST, strict=True):
            tx.send("t", value, partition=tp.partition)
        if fail:
            raise ZeroDivisionError


async def failing_reading_context(world: World, producer: Any) -> None:
    with contextlib.suppress(ZeroDivisionError):
        await reading_context(world, producer, fail=True)


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
    "async with whose commit fails": Case(started, refused_context, frozenset({None, ABORTED})),
    "async with that reads": Case(
        beside_a_reader, reading_context, frozenset({None, ABORTED, COMMITTED})
    ),
    "async with that reads and fails": Case(
        beside_a_reader, failing_reading_context, frozenset({None, ABORTED})
    ),
    "abort after a commit without a response": Case(
        unanswered,
        on("abort_transaction"),
        frozenset({COMMITTED}),
        ApplicationRecoverableError,
    ),
    "restart after a commit without a response": Case(
        unanswered, on("restart"), frozenset({COMMITTED})
    ),
}
RESTARTED = {CASES["restart"], CASES["restart after a commit without a response"]}


# -- checks after the call


async def make_usable(producer: Any, case: Case) -> None:
    """Make the producer ready for a transaction, as a program does after a cancellation."""
    if producer.state is State.NEW:
        await producer.start()
    if case in RESTARTED:
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
    if hasattr(producer, "reader"):
        async with producer.reader as reader:
            (record,) = await reader.poll(timeout=10, max_records=1)
            assert record.offset == (1 if whole else 0)
    assert sorted(await read(world, *TPS)) == sorted([*FIRST, *NEXT] if whole else NEXT)
    assert await stored_offset(world) == (1 if whole else None)
    if interrupted.cancelled or case.raises is None:
        assert interrupted.error is None
    else:
        assert isinstance(interrupted.error, case.raises)
    return interrupted


def cancel_each(ways: str, run: Callable[[str, int, int], Interrupted], step: int = 1) -> int:
    """Run a call for each `step`-th of its suspensions, and return the number of all.

    The levels of transaction.version take turns, so that a way meets both of them. With the next
    way, each suspension has the other level, so that all of them are cancelled at both levels.
    """
    ended: set[int] = set()
    for n in itertools.count(1, step):
        way = WAYS[n % len(WAYS)] if ways == TURNS else ways
        level = LEVELS[(n + WAYS.index(way)) % 2]
        outcome = run(way, n, level)
        if outcome.suspensions < n:
            ended.add(level)
            if len(ended) == len(LEVELS):
                return outcome.suspensions
        else:
            assert outcome.cancelled, f"The cancellation at suspension {n} was lost."
    raise AssertionError


def run(case: Case, way: str, level: int, **when: Any) -> Interrupted:
    return simulate(
        lambda world: scenario(world, case, way, when),
        topics={"t": 2, "in": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.001, 0.01)),
    )


@pytest.mark.fault(35)
@pytest.mark.parametrize("ways", TESTED_WAYS)
@pytest.mark.parametrize("name", CASES)
def test_transactions_are_whole_after_a_cancellation_at_each_suspension(
    name: str, ways: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = cancel_each(ways, lambda way, n, level: run(CASES[name], way, level, suspension=n))
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {count} suspensions, each cancelled by {ways} ")
    assert count > 0


MOMENTS = 25


@pytest.mark.fault(35)
@pytest.mark.parametrize("first", LEVELS if os.environ.get("AIOKCLIENT_EXPLORE") else LEVELS[:1])
@pytest.mark.parametrize("name", CASES)
def test_transactions_are_whole_after_a_cancellation_at_many_moments(name: str, first: int) -> None:
    """Most of a commit and of an abort runs in a background task, between two suspensions.

    The ways to cancel take turns, and the levels, of which each meets both ways.
    """
    cancelled = 0
    for step in one_in(6, range(MOMENTS)):
        way = ("asyncio", "anyio")[step // 2 % 2]
        level = LEVELS[(step // 4 + LEVELS.index(first)) % 2]
        outcome = run(CASES[name], way, level, moment=0.1 * step / MOMENTS)
        if not outcome.cancelled:
            break  # The call has ended before this moment, and all later ones.
        cancelled += 1
    assert cancelled > 0


# -- transform


FAULTS: dict[str, type[KafkaError] | None] = {
    "without a fault": None,
    "and an abort": TransactionAbortableError,
    "and a restart": ProducerFencedError,
}


async def transformed(
    world: World, way: str, fault: type[KafkaError] | None, suspension: int
) -> Interrupted:
    """Cancel `transform` at a suspension, and process the remaining records with another call."""
    world.cluster.produce("in", INPUTS)
    seen = 0

    async def work() -> None:
        nonlocal seen
        async with (
            world.producer(**OPTIONS, transaction_timeout_ms=5000) as producer,
            world.consumer("in", **READER) as consumer,
            transform(consumer, producer, max_records=2) as stream,
        ):
            async for batch in stream:
                for record in batch:
                    batch.send("t", record.value, partition=0)
                    seen += 1
                if batch.records[-1].offset == len(INPUTS) - 1:
                    consumer.stop()

    with contextlib.ExitStack() as stack:
        if fault is not None:
            stack.enter_context(world.cluster.fail(ApiKey.END_TXN, fault, times=1))
        interrupted = await interrupt(work(), way=way, suspension=suspension)
    if await stored_offset(world) != len(INPUTS):
        await work()
    assert seen >= len(INPUTS)
    assert await read(world, TPS[0]) == INPUTS
    assert await stored_offset(world) == len(INPUTS)
    assert interrupted.error is None
    return interrupted


@pytest.mark.fault(35)
@pytest.mark.parametrize("ways", TESTED_WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_transform_counts_each_record_once_after_a_cancellation_at_many_suspensions(
    fault: str, ways: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = cancel_each(
        ways,
        lambda way, n, level: simulate(
            lambda world: transformed(world, way, FAULTS[fault], n),
            topics={"t": 2, "in": 1},
            transaction_version=level,
            weather=Weather(latency_s=(0.001, 0.01)),
        ),
        step=1 if IS_WHOLE else 5,
    )
    with capsys.disabled():
        sys.stdout.write(f"\ntransform {fault}: {count} suspensions, each cancelled by {ways} ")
    assert count > 10
