"""The level of transaction.version is lowered and raised while transactions are open.

A cluster that is downgraded refuses some requests of an open transaction, see
`docs/transactions.md`. Whatever the program sees, no record of an aborted transaction becomes
visible, and no epoch is used again before the markers of its last transaction are written.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
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


class Changes:
    """A program of transactions, and the level before each of its steps."""

    def __init__(self, world: World, levels: list[int], moved: bool, held: bool) -> None:
        self.world, self.levels, self.moved, self.held = world, levels, moved, held
        self.producer = world.producer(**OPTIONS)
        self.written: list[tuple[Any, bytes]] = []
        self.level = 2

    def step(self) -> None:
        level = self.levels.pop(0) if self.levels else self.level
        if level != self.level:
            self.level = level
            self.world.cluster.set_transaction_version(level)
            if self.moved:
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
        if self.held:
            self.hold_markers()
        await (producer.abort_transaction if abort else producer.commit_transaction)()
        self.step()

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


async def scenario(world: World, levels: list[int], ends: str, moved: bool, held: bool) -> None:
    program = Changes(world, levels, moved, held)
    await program.producer.start()
    for number, end in enumerate(ends):
        await program.attempt(b"%d" % number, abort=end == "a")
    program.levels = []
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


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("ends", ["ac", "ca"])
def test_transactions_stay_whole_when_the_level_changes_at_any_step(
    ends: str, moved: bool, held: bool
) -> None:
    for lowered in range(STEPS * TRANSACTIONS):
        for raised in range(lowered + 1, STEPS * TRANSACTIONS + 1):
            levels = [2] * lowered + [0] * (raised - lowered)
            levels += [2] * (STEPS * TRANSACTIONS - raised)
            weather = Weather(latency_s=(0.001, 0.01))
            try:
                simulate(
                    lambda world: scenario(world, levels, ends, moved, held),  # noqa: B023
                    brokers=2,
                    topics={"t": 1, "in": 1},
                    transaction_version=2,
                    weather=weather,
                )
            except BaseException as error:
                error.add_note(f"lowered before step {lowered}, raised before step {raised}")
                raise


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
