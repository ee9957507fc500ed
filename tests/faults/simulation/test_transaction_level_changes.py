"""The level of transaction.version is lowered and raised while transactions are open.

A cluster that is downgraded refuses some requests of an open transaction, see
`docs/transactions.md`. Whatever the program sees, no record of an aborted transaction becomes
visible, and no epoch is used again before the markers of its last transaction are written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from thinned import IS_WHOLE, one_in
from world import World, simulate

from aiokclient import GroupMetadata, TopicPartition, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
TP, INPUT, MEMBER = TopicPartition("t", 0), TopicPartition("in", 0), GroupMetadata("g")
OPTIONS: dict[str, Any] = {
    "transactional_id": "t-1",
    "default_api_timeout_ms": 5_000,
    "close_timeout_ms": 2_000,
    "transaction_timeout_ms": 8_000,
    "retry_backoff_max_ms": 200,
}
STEPS = 6
"""The steps of a transaction before each of which the level may change."""
TRANSACTIONS = 2
HELD_S = 0.3


class Schedule(NamedTuple):
    """The steps and faults of a run."""

    first: int
    """The level at the start."""
    levels: list[int]
    """The level before each step."""
    ends: str
    """The end of each transaction: "a" for an abort, "c" for a commit."""
    moved: bool = False
    """Whether the coordinator moves when the level changes."""
    held: bool = False
    """Whether the markers of each transaction are written late."""
    cancel_s: float | None = None
    """The seconds after which each end is cancelled."""


class Changes:
    """A program of transactions, and the level before each of its steps."""

    def __init__(self, world: World, schedule: Schedule) -> None:
        self.world, self.schedule = world, schedule
        self.levels = list(schedule.levels)
        self.producer = world.producer(**OPTIONS)
        self.written: list[tuple[Any, bytes]] = []
        self.level = schedule.first

    def step(self) -> None:
        level = self.levels.pop(0) if self.levels else self.level
        if level != self.level:
            self.level = level
            self.world.cluster.set_transaction_version(level)
            if self.schedule.moved:
                # The connection to the next coordinator announces the level.
                self.world.cluster.move_coordinator("t-1")

    def hold_markers(self) -> None:
        """Write no markers for a moment."""
        stack = contextlib.ExitStack()
        stack.enter_context(self.world.cluster.hold_markers("t-1"))
        asyncio.get_running_loop().call_later(HELD_S, stack.close)

    async def transaction(self, value: bytes, abort: bool) -> None:
        producer = self.producer
        self.step()
        await producer.begin_transaction()
        tx = producer.last_transaction
        assert tx is not None
        self.written.append((tx, value))
        self.step()
        await tx.send("t", value, partition=0)
        self.step()
        await tx.send_offsets({INPUT: len(self.written)}, MEMBER)
        self.step()
        tx.send("t", value, partition=0)
        if abort:
            await producer.flush()
        self.step()
        if self.schedule.held:
            self.hold_markers()
        await self.end(abort)
        self.step()

    async def end(self, abort: bool) -> None:
        """End the transaction. A call that is cancelled is repeated as an abort."""
        producer, cancel_s = self.producer, self.schedule.cancel_s
        task = asyncio.create_task(
            producer.abort_transaction() if abort else producer.commit_transaction()
        )
        if cancel_s is not None:
            await asyncio.wait([task], timeout=cancel_s)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                with contextlib.suppress(IllegalStateError):
                    await producer.abort_transaction()
                return
        await task

    async def attempt(self, value: bytes, abort: bool) -> None:
        """Make a transaction, and handle its errors by the three clauses."""
        try:
            try:
                await self.transaction(value, abort)
            except (AbortableError, InvalidConfigurationError):
                # A request may be refused at the lower level, although the level is higher again.
                await self.producer.abort_transaction()
        except ApplicationRecoverableError:
            await self.restart()

    async def restart(self) -> None:
        for _ in range(10):
            with contextlib.suppress(AbortableError, ApplicationRecoverableError):
                await self.producer.restart()
                return
            # After a downgrade, only another coordinator, or an upgrade, permits a restart.
            self.levels, self.level = [], 2
            self.world.cluster.set_transaction_version(2)
            self.world.cluster.move_coordinator("t-1")
        raise AssertionError("No restart succeeded.")

    async def check(self) -> None:
        async with self.world.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([TP])
            seen = [record.value async for record in consumer.until_end()]
        for tx, value in self.written:
            count = {COMMITTED: (2,), ABORTED: (0,), UNKNOWN: (0, 2)}[tx.outcome]
            assert seen.count(value) in count, f"{value!r}, {tx.outcome}: {seen}"


async def scenario(world: World, schedule: Schedule) -> None:
    program = Changes(world, schedule)
    await program.producer.start()
    for number, end in enumerate(schedule.ends):
        await program.attempt(b"%d" % number, abort=end == "a")
    program.levels = []
    program.schedule = schedule._replace(cancel_s=None)
    for _ in range(5):
        with contextlib.suppress(IllegalStateError):
            await program.attempt(b"last %d" % len(program.written), abort=False)
        if program.written[-1][0].outcome is COMMITTED:
            break
    else:
        raise AssertionError("No transaction was committed.")
    await program.producer.close()
    await asyncio.sleep(1)  # The markers are written.
    await program.check()


def run(schedule: Schedule) -> None:
    try:
        simulate(
            lambda world: scenario(world, schedule),
            brokers=2,
            topics={"t": 1, "in": 1},
            transaction_version=schedule.first,
            weather=Weather(latency_s=(0.001, 0.01)),
        )
    except BaseException as error:
        error.add_note(str(schedule))
        raise


def changes(first: int, second: int, third: int) -> Iterator[list[int]]:
    """Return the levels before each step, for all steps before which two changes may happen."""
    count = STEPS * TRANSACTIONS
    for one in range(count):
        for two in range(one + 1, count + 1):
            yield [first] * one + [second] * (two - one) + [third] * (count - two)


@pytest.mark.parametrize("turn", range(4) if os.environ.get("AIOKCLIENT_EXPLORE") else [0])
@pytest.mark.parametrize("ends", ["ac", "ca"])
def test_transactions_stay_whole_when_the_level_changes_at_any_step(ends: str, turn: int) -> None:
    """Late markers and moved coordinators take turns, and meet the other ends two turns later."""
    first = turn + 2 * (ends == "ca")
    for number, levels in one_in(9, list(enumerate(changes(2, 0, 2), first)), first):
        held, moved = number % 2 == 1, number // 2 % 2 == 1
        run(Schedule(2, levels, ends, moved, held))


LEVELS = [
    (first, second, third)
    for first in range(3)
    for second in range(3)
    for third in range(3)
    if first != second != third
]
CANCELLED_S = [None, 0.0, 0.004, 0.015, 0.05]


def schedules(first: int, second: int, third: int) -> Iterator[Schedule]:
    """Return all schedules with these levels."""
    for levels in changes(first, second, third):
        for ends in ("aa", "ac", "ca", "cc"):
            for moved in (False, True):
                for held in (False, True):
                    for cancel_s in CANCELLED_S:
                        yield Schedule(first, levels, ends, moved, held, cancel_s)


@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_transactions_stay_whole_when_levels_change_and_ends_are_cancelled(
    levels: tuple[int, int, int],
) -> None:
    """Search all schedules, of which a normal run takes a few of each kind.

    `make sim` takes one in ten of them, and `make sim SEEDS=20000` all, in an hour.
    """
    seeds = int(os.environ.get("AIOKCLIENT_SIM_SEEDS") or 0)
    every = max(20_000 // seeds, 1) if seeds else 397 if IS_WHOLE else 1597
    for schedule in list(schedules(*levels))[::every]:
        run(schedule)


# -- the new epoch of the first transaction after an upgrade


async def upgraded(world: World) -> Any:
    """Return a producer whose next transaction is the first one at level 2."""
    producer = await world.producer(**OPTIONS)
    async with producer.transaction() as tx:
        tx.send("t", b"old", partition=0)
    world.cluster.set_transaction_version(2)
    world.cluster.move_coordinator("t-1")
    await asyncio.sleep(11)  # The level is read again.
    async with producer.transaction() as tx:
        tx.send("t", b"old", partition=0)
    return producer


def test_a_begin_can_be_repeated_after_it_was_cancelled_while_it_took_a_new_epoch() -> None:
    async def scenario(world: World) -> None:
        producer = await upgraded(world)
        with world.cluster.delay(ApiKey.INIT_PRODUCER_ID, 3, times=1) as delayed:
            begin = asyncio.ensure_future(producer.begin_transaction())
            await asyncio.sleep(0.5)
            assert delayed.hits == 1
            begin.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begin
        async with producer.transaction() as tx:
            tx.send("t", b"new", partition=0)
        assert tx.outcome is COMMITTED
        await producer.close()

    simulate(scenario, brokers=2, topics={"t": 1}, transaction_version=1)


def test_a_begin_that_is_fenced_while_it_takes_a_new_epoch_requires_a_restart() -> None:
    async def scenario(world: World) -> None:
        producer = await upgraded(world)
        with world.cluster.fail(ApiKey.INIT_PRODUCER_ID, ProducerFencedError, times=1):
            with pytest.raises(ApplicationRecoverableError):
                await producer.begin_transaction()
            with pytest.raises(ApplicationRecoverableError):
                await producer.begin_transaction()
        await producer.restart()
        async with producer.transaction() as tx:
            tx.send("t", b"new", partition=0)
        assert tx.outcome is COMMITTED
        await producer.close()

    simulate(scenario, brokers=2, topics={"t": 1}, transaction_version=1)
