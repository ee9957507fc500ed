"""All pairs of public calls of a transactional producer, at every await of the first one.

Each test prepares a producer, makes a first call, and makes a second call in another task while the
first one is suspended. In turns, nothing is cancelled, or the first call, or the second one. Each
call must end as a call may end: normally, by its cancellation, or by an error in one of the
categories of transactions, or by IllegalStateError. Afterwards the transactions are whole, as their
outcomes say, and the three clauses of the documentation lead to a committed transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from interrupt import watched
from thinned import in_turns, one_in
from world import World, simulate

from aiokclient import GroupMetadata, State, TopicPartition, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
TPS = [TopicPartition("t", partition) for partition in range(2)]
INPUT = TopicPartition("in", 0)
MEMBER = GroupMetadata("g")
FIRST = [b"first 0", b"first 1"]
OPTIONS: dict[str, Any] = {
    "transactional_id": "t-1",
    "linger_ms": 5,
    "transaction_timeout_ms": 20_000,
    "default_api_timeout_ms": 5_000,
    "close_timeout_ms": 2_000,
}
ALLOWED = (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    IllegalStateError,
    ClosedError,
)


class Program:
    """A producer with its transactions and what they sent."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producer = world.producer(**OPTIONS)
        self.written: list[tuple[Any, list[bytes]]] = []
        """The transactions, with the values that they sent."""

    def send(self, tx: Any, values: list[bytes]) -> None:
        self.written.append((tx, values))
        for tp, value in zip(TPS, values, strict=True):
            tx.send("t", value, partition=tp.partition)

    def new_values(self) -> list[bytes]:
        return [b"%d %d" % (len(self.written), n) for n in range(2)]

    # -- states

    @classmethod
    async def in_state(cls, world: World, state: str) -> Program:
        """Return a program whose producer is in one of the `STATES`."""
        program = cls(world)
        await STATES[state](program)
        return program

    async def start(self) -> None:
        await self.producer.start()

    async def begin(self) -> None:
        await self.start()
        await self.producer.begin_transaction()
        self.send(self.producer.last_transaction, FIRST)
        await self.producer.send_offsets_to_transaction({INPUT: 1}, MEMBER)

    async def begin_abort(self) -> None:
        await self.begin()
        await self.producer.abort_transaction(timeout=0.0)

    async def lose_answer(self) -> None:
        """Commit, and lose the response."""
        await self.begin()
        with (
            self.world.cluster.drop(ApiKey.END_TXN, when="after"),
            pytest.raises(TransactionAbortableError),
        ):
            await self.producer.commit_transaction(timeout=0.5)

    async def detach(self) -> None:
        await self.begin()
        assert self.producer.last_transaction is not None
        await self.producer.last_transaction.detach()

    async def fail(self) -> None:
        await self.begin()
        with (
            self.world.cluster.fail(ApiKey.END_TXN, ProducerFencedError, times=1),
            pytest.raises(ApplicationRecoverableError),
        ):
            await self.producer.commit_transaction()

    # -- calls

    async def write_block(self) -> None:
        async with self.producer.transaction() as tx:
            self.send(tx, self.new_values())

    async def restart_and_write(self) -> None:
        await self.producer.restart()
        await self.write_block()

    async def detach_again(self) -> None:
        tx = self.producer.last_transaction
        if tx is not None:
            await tx.detach()

    # -- afterwards

    async def finish(self) -> None:
        """Check that the producer can go on, and all that the program has written."""
        await self.recover()
        await self.producer.close()
        await self.check()

    async def recover(self) -> None:
        """Commit a transaction by the three clauses, with a new producer if this one is closed."""
        if self.producer.state is State.CLOSED:
            self.producer = self.world.producer(**OPTIONS)
            await self.producer.start()
        for _ in range(4):
            try:
                try:
                    async with self.producer.transaction() as tx:
                        self.send(tx, self.new_values())
                except AbortableError:
                    await self.producer.abort_transaction()
                except IllegalStateError:  # A transaction is still open, or is detached.
                    await self.abort_or_restart()
                else:
                    assert tx.outcome is COMMITTED
                    return
            except ApplicationRecoverableError:
                await self.restart()
        raise AssertionError("No transaction was committed.")

    async def abort_or_restart(self) -> None:
        try:
            await self.producer.abort_transaction()
        except IllegalStateError:
            await self.restart()

    async def restart(self) -> None:
        while True:
            try:
                await self.producer.restart()
            except AbortableError:
                continue
            return

    async def check(self) -> None:
        async with self.world.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(TPS)
            seen = [record.value async for record in consumer.until_end()]
        for tx, values in self.written:
            count = sum(value in values for value in seen)
            whole = {COMMITTED: (2,), ABORTED: (0,), UNKNOWN: (0, 2), None: (0, 2)}[tx.outcome]
            assert count in whole, f"{values} {tx.outcome}: {seen}"
        stored = self.world.cluster.committed("g").get(INPUT)
        assert (stored is not None) == (FIRST[0] in seen)


STATES: dict[str, Callable[[Program], Awaitable[None]]] = {
    "ready": Program.start,
    "in a transaction": Program.begin,
    "aborting": Program.begin_abort,
    "without an answer": Program.lose_answer,
    "detached": Program.detach,
    "failed": Program.fail,
}
CALLS: dict[str, Callable[[Program], Coroutine[Any, Any, Any]]] = {
    "begin": lambda program: program.producer.begin_transaction(),
    "send offsets": lambda program: program.producer.send_offsets_to_transaction(
        {INPUT: 1}, MEMBER
    ),
    "commit": lambda program: program.producer.commit_transaction(),
    "abort": lambda program: program.producer.abort_transaction(),
    "restart": lambda program: program.producer.restart(),
    "detach": Program.detach_again,
    "flush": lambda program: program.producer.flush(),
    "close": lambda program: program.producer.close(),
    "async with": Program.write_block,
    "restart, async with": Program.restart_and_write,
}
CANCELLED = ("none", "first", "second")


async def scenario(
    world: World, state: str, first: str, second: str, *, suspension: int, cancelled: str
) -> bool:
    """Return whether the first call was suspended so often that the second one was made."""
    program = await Program.in_state(world, state)
    loop = asyncio.get_running_loop()
    tasks: dict[str, asyncio.Task[Any]] = {}
    count = 0

    def suspended() -> None:
        nonlocal count
        count += 1
        if count == suspension:
            loop.call_soon(make_second)

    def make_second() -> None:
        tasks["second"] = loop.create_task(CALLS[second](program))
        if cancelled in tasks:
            # The second call is suspended for the first time before this.
            loop.call_soon(tasks[cancelled].cancel)

    async def make_first() -> None:
        await watched(CALLS[first](program), suspended)

    tasks["first"] = loop.create_task(make_first())
    await asyncio.wait([tasks["first"]])
    if "second" not in tasks and count >= suspension:
        await asyncio.sleep(0)
    made = "second" in tasks
    ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
    for name, end in zip(tasks, ends, strict=True):
        if isinstance(end, asyncio.CancelledError):
            assert cancelled == name
        else:
            assert end is None or not isinstance(end, BaseException) or isinstance(end, ALLOWED)
    assert program.producer.state is not State.FAILED
    await program.finish()
    return made


def run(level: int, work: Callable[[World], Any]) -> Any:
    return simulate(
        work,
        topics={"t": 2, "in": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.001, 0.01)),
    )


@pytest.mark.fault(35)
@pytest.mark.parametrize(("state", "first", "second"), in_turns(4, STATES, CALLS, CALLS))
def test_two_calls_at_once_end_as_calls_may_end(state: str, first: str, second: str) -> None:
    offset = list(CALLS).index(first) + list(CALLS).index(second)
    for n in one_in(4, range(1, 100), offset):
        # Each suspension is tested at one level, with one of the cancellations.
        level, cancelled = 2 * ((n + offset) // 3 % 2), CANCELLED[(n + offset) % 3]
        work = functools.partial(
            scenario, state=state, first=first, second=second, suspension=n, cancelled=cancelled
        )
        try:
            if not run(level, work):
                break
        except BaseException as error:
            error.add_note(f"at suspension {n}, level {level}, cancelled: {cancelled}")
            raise


# -- restarts


@contextlib.asynccontextmanager
async def restarting(program: Program, *, takes_s: float = 1.0) -> Any:
    """Restart the producer in another task, and yield the task."""
    with program.world.cluster.delay(ApiKey.INIT_PRODUCER_ID, takes_s, when="before"):
        task = asyncio.create_task(program.producer.restart())
        await asyncio.sleep(0.1)
        yield task
        with contextlib.suppress(asyncio.CancelledError, *ALLOWED):
            await task


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("call", ["begin", "send offsets", "commit", "abort", "async with"])
@pytest.mark.parametrize("state", STATES)
def test_calls_during_a_restart_raise_illegal_state(state: str, call: str, level: int) -> None:
    async def scenario(world: World) -> None:
        program = await Program.in_state(world, state)
        async with restarting(program):
            with pytest.raises(IllegalStateError, match="while the producer is restarting"):
                await CALLS[call](program)
        await program.finish()

    run(level, scenario)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("state", STATES)
def test_a_second_restart_ends_as_the_first_does(state: str, level: int) -> None:
    async def scenario(world: World) -> None:
        program = await Program.in_state(world, state)
        async with restarting(program) as first:
            second = asyncio.create_task(program.producer.restart())
            await asyncio.wait([first, second])
            assert second.result() is first.result() is None
        assert program.producer.metrics()["producer.transaction.restarts"] == 1
        async with restarting(program, takes_s=20.0) as first:
            second = asyncio.create_task(program.producer.restart())
            await asyncio.wait([first, second])
            assert isinstance(first.exception(), TransactionAbortableError)
            assert isinstance(second.exception(), TransactionAbortableError)
        await program.finish()

    run(level, scenario)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("state", STATES)
def test_a_second_restart_restarts_if_the_first_is_cancelled(state: str, level: int) -> None:
    async def scenario(world: World) -> None:
        program = await Program.in_state(world, state)
        async with restarting(program) as first:
            second = asyncio.create_task(program.producer.restart())
            await asyncio.sleep(0.1)
            first.cancel()
            await second
            assert first.cancelled()
            await program.write_block()
        await program.finish()

    run(level, scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_close_waits_for_a_restart_within_its_bound(level: int) -> None:
    async def scenario(world: World) -> None:
        program = Program(world)
        await program.begin()
        async with restarting(program) as restart:
            await program.producer.close()
            assert restart.done()
            assert restart.exception() is None
        program = Program(world)
        await program.start()
        async with restarting(program, takes_s=20.0) as restart:
            began = world.now
            await program.producer.close(1.0)
            assert 0.9 < world.now - began < 1.5

    run(level, scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_an_abort_ends_well_if_a_restart_aborts_its_transaction(level: int) -> None:
    async def scenario(world: World) -> None:
        program = Program(world)
        await program.begin()
        with world.cluster.delay(ApiKey.END_TXN, 2.0, when="before"):
            abort = asyncio.create_task(program.producer.abort_transaction())
            await asyncio.sleep(0.1)
            await program.producer.restart()
            await abort
        assert program.written[0][0].outcome is ABORTED
        await program.finish()

    run(level, scenario)
