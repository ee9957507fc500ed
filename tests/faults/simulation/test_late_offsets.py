"""A TxnOffsetCommit that arrives late belongs to its own transaction, and to no later one.

The caller of a request with offsets is cancelled while the request is held back. Then the
transaction is aborted, and the next one commits before the request is released. At levels 0 and 1
of `transaction.version`, a transaction has the epoch of the one before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from world import World, simulate

from aiokclient import GroupMetadata, TopicPartition, TransactionOutcome
from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED, _ = TransactionOutcome
LATE, NEXT, MEMBER = TopicPartition("in", 0), TopicPartition("in", 1), GroupMetadata("g")
OPTIONS: dict[str, Any] = {
    "transactional_id": "t-1",
    "default_api_timeout_ms": 10_000,
    "close_timeout_ms": 2_000,
    "transaction_timeout_ms": 20_000,
}
HELD_S = 3.0


async def cancel_offsets(world: World, producer: Any) -> None:
    """Cancel a call while its request is held back by the broker."""
    await producer.begin_transaction()
    await producer.send("t", b"aborted", partition=0)
    call = asyncio.create_task(producer.send_offsets_to_transaction({LATE: 7}, MEMBER))
    await world.cluster.until(lambda: world.requests(ApiKey.TXN_OFFSET_COMMIT), 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def commit_next(producer: Any) -> Any:
    async with producer.transaction() as tx:
        await tx.send("t", b"committed", partition=0)
        await tx.send_offsets({NEXT: 1}, MEMBER)
    return tx


async def check(world: World, *offsets: TopicPartition) -> None:
    await asyncio.sleep(2 * HELD_S)
    assert set(world.cluster.committed("g")) == set(offsets)


@pytest.mark.fault(35)
@pytest.mark.parametrize("how", ["abort", "abort in the background", "restart"])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_late_offsets_are_not_committed_after_their_transaction(level: int, how: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as producer:
            with world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, HELD_S, when="before", times=1):
                await cancel_offsets(world, producer)
                if how == "restart":
                    await producer.restart()
                else:
                    await producer.abort_transaction(0.1 if "background" in how else None)
                tx = await commit_next(producer)
            assert tx.outcome is COMMITTED
            await check(world, NEXT)

    simulate(scenario, topics={"t": 1, "in": 2}, transaction_version=level)


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 1])
def test_an_abort_waits_for_offsets_whose_caller_was_cancelled(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as producer:
            with world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, HELD_S, when="before", times=1):
                await cancel_offsets(world, producer)
                (sent,) = world.requests(ApiKey.TXN_OFFSET_COMMIT)
                await producer.abort_transaction()
            (ended,) = world.requests(ApiKey.END_TXN)
            assert ended.at >= sent.at + HELD_S
            await commit_next(producer)
            await check(world, NEXT)

    simulate(scenario, topics={"t": 1, "in": 2}, transaction_version=level)


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 1])
def test_an_abort_waits_for_the_offsets_of_a_commit_that_was_given_up(level: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("in", [b"1"], partition=0)
        options = {**OPTIONS, "transaction_timeout_ms": 1_000}
        async with (
            world.producer(**options) as producer,
            world.consumer("in", group_id="g", enable_auto_commit=False) as consumer,
        ):
            await producer.begin_transaction()
            tx = producer.last_transaction
            assert tx is not None
            tx.add(consumer)
            await consumer.get(timeout=30)
            tx.send("t", b"aborted", partition=0)
            with world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, HELD_S, when="before", times=1):
                commit = asyncio.create_task(producer.commit_transaction())
                await world.cluster.until(lambda: world.requests(ApiKey.TXN_OFFSET_COMMIT), 10)
                (sent,) = world.requests(ApiKey.TXN_OFFSET_COMMIT)
                commit.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await commit
                with contextlib.suppress(KafkaError):
                    await producer.abort_transaction()
            (ended,) = world.requests(ApiKey.END_TXN)
            assert ended.at >= sent.at + HELD_S
            assert tx.outcome is ABORTED
            assert not world.cluster.committed("g")

    simulate(scenario, topics={"t": 1, "in": 1}, transaction_version=level)


@pytest.mark.fault(35)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_whose_offsets_had_no_response_leaves_its_epoch(level: int) -> None:
    """The request is sent again after its time, and the first one may still arrive."""

    async def scenario(world: World) -> None:
        async with world.producer(request_timeout_ms=1_000, **OPTIONS) as producer:
            with world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, HELD_S, when="before", times=1):
                async with producer.transaction() as tx:
                    await tx.send("t", b"1", partition=0)
                    await tx.send_offsets({LATE: 1}, MEMBER)
                async with producer.transaction() as tx:
                    await tx.send("t", b"2", partition=0)
                    await tx.send_offsets({LATE: 2}, MEMBER)
                    await asyncio.sleep(HELD_S)
            assert world.cluster.committed("g")[LATE].offset == 2
            epochs = [r.message.producer_epoch for r in world.requests(ApiKey.END_TXN)]
            assert epochs == [0, 1]

    simulate(scenario, topics={"t": 1, "in": 1}, transaction_version=level)
