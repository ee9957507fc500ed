"""Transactions on a cluster that is downgraded, on older brokers, and with a busy coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from transaction_runs import MEMBER, OFFSET, OPTIONS, Run, levels, run
from world import World

from aiokclient import Producer, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    OutOfOrderSequenceError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
QUICK: dict[str, Any] = {
    **OPTIONS,
    "default_api_timeout_ms": 5_000,
    "close_timeout_ms": 2_000,
    "transaction_timeout_ms": 8_000,
}
LONGEST_S = 8.0
"""The longer of the two timeouts that limit an abort, in seconds."""


async def add_record(producer: Producer[Any, Any]) -> None:
    await producer.send("t", b"lost", partition=0)


async def add_offset(producer: Producer[Any, Any]) -> None:
    await producer.send_offsets_to_transaction({OFFSET: 99}, MEMBER)


first_requests = pytest.mark.parametrize("add", [add_record, add_offset])


@first_requests
@pytest.mark.parametrize("connected", [True, False])
def test_a_downgrade_between_transactions_ends_in_a_restart(add: Any, connected: bool) -> None:
    """After the downgrade, the first request of level 2 is refused and blocks the id."""

    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            assert await work.transaction(offsets=True) is COMMITTED
            await asyncio.sleep(1)
            world.cluster.set_transaction_version(0)
            if not connected:
                world.cluster.disconnect()
                await asyncio.sleep(1)
            await producer.begin_transaction()
            began = world.now
            with pytest.raises(ApplicationRecoverableError, match=r"transaction\.version"):
                await add(producer)
            assert world.now - began < 2
            assert producer.last_transaction is not None
            assert producer.last_transaction.outcome is ABORTED
            for refused in (
                producer.begin_transaction,
                producer.commit_transaction,
                producer.abort_transaction,
            ):
                with pytest.raises(ApplicationRecoverableError):
                    await refused()
            for _ in range(2):
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


@first_requests
def test_a_restart_waits_for_the_coordinator_to_move_after_a_downgrade(add: Any) -> None:
    """If the restart sent InitProducerId earlier, the new coordinator would block the id, too."""

    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            assert await work.transaction(offsets=True) is COMMITTED
            await asyncio.sleep(1)
            world.cluster.set_transaction_version(0)
            await producer.begin_transaction()
            with pytest.raises(ApplicationRecoverableError):
                await add(producer)
            restarting = asyncio.create_task(producer.restart())
            await asyncio.sleep(2)
            assert not restarting.done()
            world.cluster.move_coordinator("t-1")
            await restarting
            assert await work.transaction(offsets=True) is COMMITTED
            await work.check()

    run(scenario, 2, brokers=3)


@first_requests
def test_a_producer_that_was_fenced_after_a_downgrade_can_be_restarted(add: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            assert await work.transaction(offsets=True) is COMMITTED
            await asyncio.sleep(1)
            world.cluster.set_transaction_version(0)
            await producer.begin_transaction()
            with pytest.raises(ApplicationRecoverableError):
                await add(producer)
            # Another instance takes over at level 2 and at another coordinator.
            world.cluster.set_transaction_version(2)
            world.cluster.move_coordinator("t-1")
            async with world.producer(**QUICK) as other:
                work.producer = other
                assert await work.transaction(offsets=True) is COMMITTED
            await producer.restart()
            work.producer = producer
            assert await work.transaction(offsets=True) is COMMITTED
            await work.check()

    run(scenario, 2, brokers=3)


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT])
def test_a_refused_transaction_continues_at_level_0_where_the_coordinator_allows_it(
    api: ApiKey,
) -> None:
    """The application does not notice the downgrade."""

    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            assert await work.transaction(offsets=True) is COMMITTED
            await asyncio.sleep(1)
            began = world.now

            async def downgrade() -> None:
                await world.cluster.until(lambda: bool(world.requests(api, since=began)))
                world.cluster.set_transaction_version(0)

            downgrading = asyncio.create_task(downgrade())
            with world.cluster.fail(api, UnsupportedVersionError, times=1):
                async with producer.transaction() as tx:
                    if api == ApiKey.TXN_OFFSET_COMMIT:
                        await tx.send_offsets({OFFSET: 7}, MEMBER)
                        work.offset = 7
                    tx.send("t", b"rescued", partition=0)
            await downgrading
            added = world.requests(ApiKey.ADD_PARTITIONS_TO_TXN, since=began)
            assert added, "The transaction must continue with the requests of level 0."
            assert tx.outcome is COMMITTED
            work.expected[0].append(b"rescued")
            await asyncio.sleep(1)
            assert await work.transaction(offsets=True) is COMMITTED
            await producer.restart()
            assert await work.transaction(offsets=True) is COMMITTED
            await work.check()

    run(scenario, 2)


@levels
def test_a_refused_version_is_reported_when_there_was_no_downgrade(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            assert await work.transaction() is COMMITTED
            with world.cluster.fail(ApiKey.PRODUCE, UnsupportedVersionError, times=1):
                await producer.begin_transaction()
                with pytest.raises(InvalidConfigurationError, match="UNSUPPORTED_VERSION"):
                    await add_record(producer)
            await producer.abort_transaction()
            assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, level)


def test_refused_batches_are_released_when_the_next_transaction_begins() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            for _ in range(3):
                assert await work.transaction() is COMMITTED
                with world.cluster.fail(ApiKey.PRODUCE, UnsupportedVersionError, times=1):
                    await producer.begin_transaction()
                    with pytest.raises(InvalidConfigurationError):
                        await add_record(producer)
                await producer.abort_transaction()
            assert producer._engine is not None
            assert producer._engine.transactions is not None
            batches = producer._engine.transactions.batches
            assert len(batches._rechecked) == 1
            assert await work.transaction() is COMMITTED
            assert not batches._rechecked
            await work.check()

    run(scenario, 2)


@levels
@pytest.mark.parametrize("leave", ["calls", "context"])
def test_an_abort_that_stays_refused_ends_the_producer(leave: str, level: int) -> None:
    """The coordinator cannot complete the previous transaction, and refuses each attempt."""

    async def scenario(world: World) -> None:
        options = {**QUICK, "delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000}
        async with world.producer(**options) as producer:
            work = Run(world, producer)
            with world.cluster.hold_markers("t-1"):
                assert await work.transaction() is COMMITTED
                if leave == "calls":
                    await producer.begin_transaction()
                    with pytest.raises(AbortableError):
                        await add_record(producer)
                    began = world.now
                    await producer.abort_transaction(timeout=1.0)
                else:
                    with pytest.raises(AbortableError):
                        async with producer.transaction() as tx:
                            tx.send("t", b"lost", partition=0)
                    began = world.now - QUICK["close_timeout_ms"] / 1000
                assert producer.last_transaction is not None
                assert producer.last_transaction.outcome is UNKNOWN
                with pytest.raises(AbortableError):
                    await producer.begin_transaction()
                with pytest.raises(ApplicationRecoverableError, match="CONCURRENT_TRANSACTIONS"):
                    await producer.begin_transaction()
                assert LONGEST_S - 1 < world.now - began < LONGEST_S + 2
                sent = len(world.requests(ApiKey.END_TXN))
                await asyncio.sleep(60)
                assert len(world.requests(ApiKey.END_TXN)) == sent
                with pytest.raises(AbortableError):
                    await producer.restart()
            await producer.restart()
            assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, level)


@levels
def test_an_abort_that_is_answered_as_abortable_without_end_ends_the_producer(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**QUICK) as producer:
            work = Run(world, producer)
            await producer.begin_transaction()
            await add_record(producer)
            with world.cluster.fail(ApiKey.END_TXN, TransactionAbortableError):
                await producer.abort_transaction(timeout=1.0)
                await asyncio.sleep(LONGEST_S + 1)
                with pytest.raises(ApplicationRecoverableError, match="TRANSACTION_ABORTABLE"):
                    await producer.begin_transaction()
            await producer.restart()
            assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, level)


def test_an_abort_waits_as_long_as_the_coordinator_cannot_be_reached() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**{**QUICK, "request_timeout_ms": 2_000}) as producer:
            work = Run(world, producer)
            await producer.begin_transaction()
            await add_record(producer)
            coordinator = world.cluster.coordinator("t-1")
            world.network.part({"client"}, {world.address(coordinator)})
            await producer.abort_transaction(timeout=1.0)
            await asyncio.sleep(LONGEST_S * 4)
            world.network.heal()
            assert await work.transaction() is COMMITTED
            await work.check()

    run(scenario, 2)


# -- brokers before Kafka 2.5


@pytest.mark.parametrize("last", [0, 1, 2])
def test_old_brokers_increase_the_epoch_after_an_abort(last: int) -> None:
    """Before version 3 of InitProducerId, the request has no producer id and epoch (KIP-360)."""

    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.INIT_PRODUCER_ID: (0, last)})
        async with world.producer(**OPTIONS) as producer:
            work = Run(world, producer)
            epochs = []
            for number in range(6):
                refused = number % 2 == 1
                within = lambda: world.cluster.fail(  # noqa: E731
                    ApiKey.PRODUCE, OutOfOrderSequenceError, times=1
                )
                outcome = await work.transaction(within if refused else lambda: None, offsets=True)
                assert outcome is (ABORTED if refused else COMMITTED)
                epochs.append(world.cluster.transactions["t-1"].producer_epoch)
            assert epochs == [0, 1, 1, 2, 2, 3]
            sent = world.requests(ApiKey.INIT_PRODUCER_ID)
            assert {each.version for each in sent} == {last}
            await work.check()

    run(scenario, 0)


def test_an_old_broker_fences_the_producer_that_does_not_know_of_another() -> None:
    """The broker does not check the old epoch, so the abort must detect the newer producer."""

    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.INIT_PRODUCER_ID: (0, 2)})
        async with world.producer(**OPTIONS) as first:
            await first.begin_transaction()
            refused = world.cluster.fail(ApiKey.PRODUCE, OutOfOrderSequenceError, times=1)
            with refused, pytest.raises(AbortableError):
                await add_record(first)
            async with world.producer(**OPTIONS) as second:
                work = Run(world, second)
                with pytest.raises(ApplicationRecoverableError):
                    await first.abort_transaction()
                assert await work.transaction() is COMMITTED
                await work.check()

    run(scenario, 0)
