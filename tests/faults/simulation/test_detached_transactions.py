"""Transactions that another client ends, while responses are lost and coordinators move."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pickle
import random
from typing import Any

import pytest
from thinned import one_in
from two_clusters import EVERY_CLUSTER, EVERY_STRATEGY, in_two_clusters, replace_cluster
from world import World, simulate

from aiokclient import (
    Client,
    DetachedTransaction,
    GroupMetadata,
    Producer,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import (
    AbortableError,
    ApiTimeoutError,
    ApplicationRecoverableError,
    ClusterChangedError,
    CoordinatorLoadInProgressError,
    InvalidConfigurationError,
    KafkaError,
    NotCoordinatorError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownServerError,
)
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
PARTITION = TopicPartition("t", 0)
OPTIONS = {
    "default_api_timeout_ms": 3000,
    "request_timeout_ms": 1000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
LAST_EPOCH = 32766
LEVELS = pytest.mark.parametrize("level", [2, 1, 0])
COMMITS = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


async def written(world: World, **options: Any) -> DetachedTransaction:
    """Return the handle of a transaction with a record and an offset."""
    async with (
        world.producer(transactional_id="t-1", **{**OPTIONS, **options}) as producer,
        producer.transaction() as tx,
    ):
        tx.send("t", b"v")
        await tx.send_offsets({PARTITION: 7}, GroupMetadata("g"))
        return await tx.detach()


async def check_readers(world: World, outcome: TransactionOutcome) -> None:
    options = {"isolation_level": "read_committed", "group_id": "g"}
    async with world.consumer(**options) as consumer:
        stored = (await consumer.committed([PARTITION]))[PARTITION]
        consumer.assign([PARTITION])
        consumer.seek_to_beginning([PARTITION])
        values = [record.value async for record in consumer.until_end()]
    is_committed = outcome is COMMITTED
    assert values == ([b"v"] if is_committed else [])
    assert (stored is not None and stored.offset == 7) is is_committed


@pytest.mark.fault(50)
@LEVELS
@COMMITS
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "until the timeout"])
def test_end_transaction_finds_out_what_a_lost_response_said(
    level: int, commit: bool, when: str, times: int
) -> None:
    async def scenario(world: World) -> None:
        outcome = COMMITTED if commit else ABORTED
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            with world.cluster.drop(ApiKey.END_TXN, when=when, times=times) as fault:
                if times == 1:
                    assert await client.end_transaction(handle, commit) is outcome
                else:
                    with pytest.raises(ApiTimeoutError, match="Call end_transaction"):
                        await client.end_transaction(handle, commit)
            assert fault.hits
            assert await client.end_transaction(handle, commit) is outcome
            assert await client.end_transaction(handle, not commit) is outcome
        await check_readers(world, outcome)

    simulate(scenario, transaction_version=level)


@LEVELS
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_opposite_end_after_a_lost_response_tells_what_happened(level: int, when: str) -> None:
    """A program whose commit got no response may abort.

    The abort returns what became of the commit.
    """

    async def scenario(world: World) -> None:
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            with world.cluster.drop(ApiKey.END_TXN, when=when), pytest.raises(ApiTimeoutError):
                await client.end_transaction(handle, timeout=2.5)
            outcome = await client.end_transaction(handle, commit=False)
        assert outcome is (COMMITTED if when == "after" else ABORTED)
        await check_readers(world, outcome)

    simulate(scenario, transaction_version=level)


@LEVELS
@COMMITS
def test_end_transaction_waits_for_the_markers_of_the_first_end(level: int, commit: bool) -> None:
    async def scenario(world: World) -> None:
        outcome = COMMITTED if commit else ABORTED
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            with world.cluster.hold_markers("t-1"):
                assert await client.end_transaction(handle, commit) is outcome
                again = asyncio.create_task(client.end_transaction(handle, not commit))
                await asyncio.sleep(1.0)
                assert not again.done()
            assert await again is outcome

    simulate(scenario, transaction_version=level)


@LEVELS
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (NotCoordinatorError, None),
        (CoordinatorLoadInProgressError, None),
        (TransactionalIdAuthorizationError, InvalidConfigurationError),
        (TransactionAbortableError, AbortableError),
        (UnknownServerError, ApplicationRecoverableError),
    ],
)
def test_end_transaction_never_ends_a_transaction_otherwise_than_it_was_asked_to(
    level: int, error: type[KafkaError], raised: type[KafkaError] | None
) -> None:
    async def scenario(world: World) -> None:
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            with world.cluster.fail(ApiKey.END_TXN, error, times=2):
                for _ in range(0 if raised is None else 2):
                    with pytest.raises(raised or Exception):
                        await client.end_transaction(handle)
                if raised is None:
                    assert await client.end_transaction(handle) is COMMITTED
            assert await client.end_transaction(handle) is COMMITTED
        sent = [request.message.committed for request in world.requests(ApiKey.END_TXN)]
        assert sent == [True] * len(sent)
        await check_readers(world, COMMITTED)

    simulate(scenario, transaction_version=level)


@LEVELS
def test_end_transaction_after_the_coordinator_has_moved(level: int) -> None:
    async def scenario(world: World) -> None:
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            for _ in range(3):
                world.cluster.move_coordinator("t-1")
                assert await client.end_transaction(handle) is COMMITTED
        await check_readers(world, COMMITTED)

    simulate(scenario, brokers=3, transaction_version=level)


@LEVELS
@COMMITS
def test_end_transaction_after_the_timeout_of_the_transaction(level: int, commit: bool) -> None:
    async def scenario(world: World) -> None:
        handle = await written(world)
        world.cluster.time_out_transaction("t-1")
        async with world.client(**OPTIONS) as client:
            if level == 2:
                assert await client.end_transaction(handle, commit) is ABORTED
            else:
                with pytest.raises(ApplicationRecoverableError, match="longer than its timeout"):
                    await client.end_transaction(handle, commit)
        await check_readers(world, ABORTED)

    simulate(scenario, transaction_version=level)


@COMMITS
def test_end_transaction_can_be_repeated_after_the_last_epoch_of_a_producer_id(
    commit: bool,
) -> None:
    """When a producer id has used its last epoch, the next transaction gets another producer id."""

    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", **OPTIONS):
            pass
        world.cluster.set_producer_epoch("t-1", LAST_EPOCH - 1)
        handle = await written(world)
        assert handle.epoch == LAST_EPOCH
        outcome = COMMITTED if commit else ABORTED
        async with world.client(**OPTIONS) as client:
            for _ in range(2):
                assert await client.end_transaction(handle, commit) is outcome
            assert await client.end_transaction(handle, not commit) is outcome
        assert world.cluster.transactions["t-1"].producer_id != handle.producer_id
        await check_readers(world, outcome)

    simulate(scenario)


@LEVELS
@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_a_cancelled_end_can_be_repeated(level: int, seed: int) -> None:
    async def scenario(world: World) -> None:
        handle = await written(world)
        async with world.client(**OPTIONS) as client:
            with world.cluster.delay(ApiKey.END_TXN, 0.05, times=2):
                task = asyncio.create_task(client.end_transaction(handle))
                await asyncio.sleep(random.Random(seed).uniform(0.0, 0.12))
                task.cancel()
                await asyncio.wait([task])
            assert await client.end_transaction(handle) is COMMITTED
        await check_readers(world, COMMITTED)

    simulate(scenario, transaction_version=level, seed=seed)


@LEVELS
@COMMITS
def test_two_processes_that_disagree_get_the_same_outcome(level: int, commit: bool) -> None:
    async def scenario(world: World) -> None:
        handle = await written(world)
        async with world.client(**OPTIONS) as one, world.client(**OPTIONS) as other:
            found = await asyncio.gather(
                one.end_transaction(handle, commit), other.end_transaction(handle, not commit)
            )
        assert len({*found}) == 1
        await check_readers(world, found[0])

    simulate(scenario, transaction_version=level)


@LEVELS
def test_a_cancelled_detach_leaves_the_transaction_open(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", **OPTIONS) as producer:
            async with producer.transaction() as tx:
                with world.cluster.delay(ApiKey.PRODUCE, 0.5, times=1):
                    tx.send("t", b"v")
                    task = asyncio.create_task(tx.detach())
                    await asyncio.sleep(0.1)
                    task.cancel()
                    await asyncio.wait([task])
                assert task.cancelled()
                tx.send("t", b"w")
            assert tx.outcome is COMMITTED
        assert [record.value for record in world.cluster.records("t")] == [b"v", b"w"]

    simulate(scenario, transaction_version=level)


@LEVELS
@pytest.mark.parametrize("how", ["restart", "close"])
def test_a_detach_ends_when_the_producer_is_restarted_or_closed(level: int, how: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", **OPTIONS) as producer:
            await producer.begin_transaction()
            tx = producer.last_transaction
            assert tx is not None
            with world.cluster.delay(ApiKey.PRODUCE, 0.5, times=1):
                tx.send("t", b"v")
                task = asyncio.create_task(tx.detach())
                await asyncio.sleep(0.1)
                await getattr(producer, how)()
                with pytest.raises(Exception, match=r"restarted|closed|aborted"):
                    await task
            assert tx.outcome is ABORTED
        await check_readers(world, ABORTED)

    simulate(scenario, transaction_version=level)


@EVERY_CLUSTER
@EVERY_STRATEGY
@COMMITS
@pytest.mark.parametrize("known", ["new client", "old client", "during the call"])
def test_end_transaction_in_another_cluster_leaves_its_transactions_alone(
    limits: dict[Any, Any], strategy: str, commit: bool, known: str
) -> None:
    """A program in the new cluster has a transaction with the same id, producer id, and epoch."""

    async def work(world: World, options: dict[str, Any]) -> None:
        async with Producer(**options, transactional_id="t-1") as writer:
            await writer.begin_transaction()
            assert writer.last_transaction is not None
            await writer.send("t", b"old", partition=0)
            handle = pickle.loads(pickle.dumps(await writer.last_transaction.detach()))
        former = handle.cluster_id
        async with contextlib.AsyncExitStack() as stack:
            client = Client(**options)
            call = None
            if known != "new client":
                await stack.enter_async_context(client)
            if known == "during the call":
                with world.cluster.drop(ApiKey.END_TXN, when="before"):
                    call = asyncio.create_task(client.end_transaction(handle, commit))
                    await asyncio.sleep(0.1)
                    assert replace_cluster(world) == former
            else:
                assert replace_cluster(world) == former
            other = Producer(**options, transactional_id="t-1")
            producer = await stack.enter_async_context(other)
            await producer.begin_transaction()
            await producer.send("t", b"new", partition=0)
            theirs = producer._require_transactions("transaction()").status.identity
            assert (handle.producer_id, handle.epoch) == theirs
            if known == "new client":
                await stack.enter_async_context(client)
            for _ in range(2):
                with pytest.raises(ClusterChangedError, match="its own cluster") as raised:
                    await (call or client.end_transaction(handle, commit))
                assert raised.value.old_cluster_id == former
                assert raised.value.new_cluster_id == world.cluster.cluster_id
                call = None
            await producer.commit_transaction()
        assert [bytes(each.value) for each in world.cluster.records("t", 0)] == [b"new"]

    in_two_clusters(work, limits, strategy)


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_handle_that_was_pickled_without_its_cluster_can_be_used(is_empty: bool) -> None:
    """An earlier version pickled five fields."""

    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1") as producer, producer.transaction() as tx:
            if not is_empty:
                tx.send("t", b"v")
            handle = await tx.detach()
        assert handle.cluster_id == world.cluster.cluster_id
        reduced: Any = handle.__reduce_ex__(2)
        made, arguments, state = reduced[:3]
        old = made(*arguments)
        old.__setstate__(state[:5])
        assert old == dataclasses.replace(handle, cluster_id=None)
        assert pickle.loads(pickle.dumps(old)) == old
        assert pickle.loads(pickle.dumps(handle)) == handle
        async with world.client() as client:
            assert await client.end_transaction(old) is COMMITTED

    simulate(scenario)


def test_end_of_an_empty_transaction_in_another_cluster_raises() -> None:
    async def scenario(world: World) -> None:
        handle = DetachedTransaction("t-1", 1, 0, is_empty=True, cluster_id="another")
        async with world.client() as client:
            with pytest.raises(ClusterChangedError):
                await client.end_transaction(handle)

    simulate(scenario)
