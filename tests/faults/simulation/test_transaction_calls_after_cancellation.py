"""Public calls after a call about transactions that was cancelled.

A program handles errors with three `except` clauses, in one of the styles below. After a
cancellation, its next calls must raise an error that these clauses handle, and its next transaction
must be committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from interrupt import interrupt
from thinned import one_in
from world import World, simulate

from aiokclient import GroupMetadata, Producer, State, TopicPartition, TransactionOutcome, transform
from aiokclient.errors import AbortableError, ApplicationRecoverableError, IllegalStateError
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
INPUT = TopicPartition("in", 0)
MEMBER = GroupMetadata("g")
OPTIONS: dict[str, Any] = {"transactional_id": "t-1", "linger_ms": 5}

Made = Callable[[Producer[Any, Any]], Awaitable[object]]


async def ready(producer: Producer[Any, Any]) -> None:
    await producer.start()


async def opened(producer: Producer[Any, Any]) -> None:
    await producer.start()
    await producer.begin_transaction()
    producer.send("t", b"first", partition=0)
    await producer.send_offsets_to_transaction({INPUT: 1}, MEMBER)


async def unanswered(producer: Producer[Any, Any]) -> None:
    """Begin a transaction, and a commit of it that ends by its timeout, without a response."""
    await opened(producer)
    with pytest.raises(AbortableError):
        await producer.commit_transaction(timeout=0.2)


CANCELLED: dict[str, tuple[Made, str]] = {
    "start": (lambda producer: asyncio.sleep(0), "start"),
    "restart": (ready, "restart"),
    "restart in a transaction": (opened, "restart"),
    "restart after a commit without an answer": (unanswered, "restart"),
    "commit": (opened, "commit_transaction"),
    "abort": (opened, "abort_transaction"),
    "abort after a commit without an answer": (unanswered, "abort_transaction"),
}
FOLLOWING: dict[str, Made] = {
    "nothing": lambda producer: asyncio.sleep(0),
    "begin": lambda producer: producer.begin_transaction(),
    "send": lambda producer: producer.send_and_wait("t", b"after", partition=0),
    "send offsets": lambda producer: producer.send_offsets_to_transaction({INPUT: 2}, MEMBER),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "restart": lambda producer: producer.restart(),
    "flush": lambda producer: producer.flush(),
}


async def in_calls(producer: Producer[Any, Any]) -> None:
    """Commit a transaction with separate calls and three clauses."""
    for _ in range(3):
        try:
            try:
                await producer.begin_transaction()
                producer.send("t", b"next", partition=0)
                await producer.commit_transaction()
            except AbortableError:
                await producer.abort_transaction()
            else:
                return
        except ApplicationRecoverableError:
            await producer.restart()
    raise AssertionError("The transaction was not committed.")


async def in_context(producer: Producer[Any, Any]) -> None:
    """Commit a transaction with `async with` and three clauses."""
    for _ in range(3):
        try:
            try:
                async with producer.transaction() as tx:
                    tx.send("t", b"next", partition=0)
            except AbortableError:
                await producer.abort_transaction()
            else:
                return
        except ApplicationRecoverableError:
            await producer.restart()
    raise AssertionError("The transaction was not committed.")


async def in_transform(world: World, producer: Producer[Any, Any]) -> None:
    """Commit a transaction with `transform`."""
    world.cluster.produce("more", [b"next"])
    consumer = world.consumer("more", group_id="other", enable_auto_commit=False)
    async with consumer, transform(consumer, producer) as stream:
        async for batch in stream:
            for record in batch:
                batch.send("t", record.value, partition=0)
            consumer.stop()


def state_of(producer: Producer[Any, Any]) -> str:
    """Return the state of the transaction manager."""
    engine = producer._engine
    assert engine is not None
    assert engine.transactions is not None
    return engine.transactions.status.state.name


async def scenario(world: World, case: str, following: str, style: str, n: int) -> bool:
    made, name = CANCELLED[case]
    producer = world.producer(**OPTIONS)
    fault: Any = contextlib.nullcontext()
    if made is unanswered:
        fault = world.cluster.drop(ApiKey.END_TXN, when="after")
    with fault:
        await made(producer)
    done = await interrupt(getattr(producer, name)(), way="asyncio", suspension=n)
    if producer.state is State.NEW:
        await producer.start()
    if state_of(producer) == "UNINITIALIZED" and following not in ("nothing", "restart", "flush"):
        with pytest.raises(ApplicationRecoverableError, match=r"restart\(\)"):
            await FOLLOWING[following](producer)
    else:
        # IllegalStateError means a call in the wrong order. The clauses handle all other errors.
        with contextlib.suppress(AbortableError, ApplicationRecoverableError, IllegalStateError):
            await FOLLOWING[following](producer)
    if state_of(producer) in ("IN_TRANSACTION", "ABORTABLE_ERROR"):
        # The transaction has not ended. Abort it, as the application would do.
        try:
            await producer.abort_transaction()
        except ApplicationRecoverableError:
            await producer.restart()
    if style == "transform":
        await in_transform(world, producer)
    else:
        await (in_calls if style == "calls" else in_context)(producer)
    assert producer.last_transaction is not None
    assert producer.last_transaction.outcome is COMMITTED
    await producer.close()
    async with world.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        values = [record.value async for record in consumer.until_end()]
    assert values[-1] == b"next"
    assert values.count(b"next") == 1
    assert values.count(b"first") <= 1
    return done.cancelled


def run(work: Callable[[World], Any], level: int) -> Any:
    return simulate(
        work,
        topics={"t": 1, "in": 1, "more": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.001, 0.01)),
    )


STYLES = ("calls", "context", "transform")
# The eight following calls and the three styles take turns, so that each style meets each call.
TURNS = list(zip(itertools.product(CANCELLED, FOLLOWING), itertools.cycle(STYLES), strict=False))
EACH = list(itertools.product(itertools.product(CANCELLED, FOLLOWING), STYLES))


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("case", "following", "style"),
    [(*calls, style) for calls, style in (EACH if os.environ.get("AIOKCLIENT_EXPLORE") else TURNS)],
)
def test_three_clauses_suffice_after_a_cancelled_call(
    case: str, following: str, style: str
) -> None:
    cancelled = 0
    for n in one_in(5, range(1, 200)):
        # The call is cancelled at its n-th suspension, and each n is tested at only one level of
        # transaction.version, because the call suspends at nearly the same points at both levels.
        level = 2 * (n % 2)
        if not run(lambda world, n=n: scenario(world, case, following, style, n), level):
            break
        cancelled += 1
    assert cancelled > 0


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("style", ["calls", "context"])
def test_the_next_begin_waits_for_a_commit_that_continues_after_its_cancellation(
    style: str, level: int
) -> None:
    """A commit is shielded from cancellation for at most `transaction_timeout_ms`."""

    async def scenario(world: World) -> None:
        options = {**OPTIONS, "transaction_timeout_ms": 1_000, "request_timeout_ms": 60_000}
        async with world.producer(**options) as producer:
            await opened(producer)
            await producer.flush()
            with world.cluster.delay(ApiKey.END_TXN, 5.0, when="after"):
                committing = asyncio.create_task(producer.commit_transaction())
                await asyncio.sleep(0.1)
                committing.cancel()
                await asyncio.wait([committing])
                assert committing.cancelled()
                with pytest.raises(IllegalStateError):
                    await producer.commit_transaction()
                if style == "calls":
                    # Nothing is aborted while the commit may still succeed.
                    await producer.abort_transaction(timeout=0.1)
                first = producer.last_transaction
                assert first is not None
                await (in_calls if style == "calls" else in_context)(producer)
            assert first.outcome is COMMITTED
            assert world.cluster.committed("g")[INPUT].offset == 1

    run(scenario, level)
