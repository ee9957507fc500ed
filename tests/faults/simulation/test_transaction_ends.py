"""Ends of transactions while their records, offsets, or aborts fail at the same time.

After each such end, readers of committed data see all or nothing of the transaction, and the next
transaction is committed at the first attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from world import World, simulate

from aiokclient import GroupMetadata, Producer, TopicPartition, TransactionOutcome, transform
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    GroupAuthorizationError,
    IllegalStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownServerError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
TP, INPUT = TopicPartition("t", 0), TopicPartition("in", 0)
MEMBER = GroupMetadata("g")
levels = pytest.mark.parametrize("level", [0, 2])


class BodyError(Exception):
    """An error of the application."""


def run(
    scenario: Callable[[World, Producer[Any, Any]], Coroutine[Any, Any, None]], level: int
) -> None:
    """Run a scenario with a transactional producer, whose records are b"lost" unless committed."""

    async def main(world: World) -> None:
        options = {"transactional_id": "t-1", "retry_backoff_max_ms": 100}
        async with world.producer(**options, default_api_timeout_ms=10_000) as producer:
            await scenario(world, producer)
            async with producer.transaction() as tx:
                tx.send("t", b"next", partition=0)
            assert tx.outcome is COMMITTED
        async with world.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([TP])
            values = [record.value async for record in consumer.until_end()]
            assert values == [*[b"kept"] * values.count(b"kept"), b"next"]

    simulate(
        main,
        topics={"t": 1, "in": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.05, 0.05)),
    )


def stored(world: World) -> int | None:
    found = world.cluster.committed("g").get(INPUT)
    return None if found is None else found.offset


@levels
def test_an_abort_ends_when_a_record_in_flight_is_refused_during_it(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with (
            world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError),
            contextlib.suppress(BodyError),
        ):
            async with producer.transaction() as tx:
                tx.send("t", b"lost", partition=0)
                await world.cluster.until(lambda: world.requests(ApiKey.PRODUCE), 5)
                raise BodyError
        assert tx.outcome is ABORTED

    run(scenario, level)


@levels
def test_an_abort_raises_the_fatal_error_of_a_record_in_flight(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with world.cluster.fail(ApiKey.PRODUCE, UnknownServerError):
            await producer.begin_transaction()
            producer.send("t", b"lost", partition=0)
            await world.cluster.until(lambda: world.requests(ApiKey.PRODUCE), 5)
            with pytest.raises(ApplicationRecoverableError):
                await producer.abort_transaction()
        with pytest.raises(ApplicationRecoverableError):
            await producer.begin_transaction()
        await producer.restart()

    run(scenario, level)


@levels
def test_a_record_that_an_abort_drops_between_two_attempts_leaves_no_gap(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        async with producer.transaction() as tx:
            tx.send("t", b"kept", partition=0)
        with (
            world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError),
            contextlib.suppress(BodyError),
        ):
            async with producer.transaction() as tx:
                tx.send("t", b"lost", partition=0)
                await asyncio.sleep(1)
                raise BodyError
        assert tx.outcome is ABORTED

    run(scenario, level)


@levels
@pytest.mark.parametrize("refusal", [None, GroupAuthorizationError])
def test_a_commit_waits_for_offsets_that_are_being_sent(
    refusal: type[KafkaError] | None, level: int
) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with contextlib.ExitStack() as stack:
            # The coordinator of the group responds later than the coordinator of the transaction.
            stack.enter_context(world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, 1.0))
            expected: Any = contextlib.nullcontext()
            if refusal is not None:
                stack.enter_context(world.cluster.fail(ApiKey.TXN_OFFSET_COMMIT, refusal))
                expected = pytest.raises(refusal)
            with expected:
                async with producer.transaction() as tx:
                    tx.send("t", b"lost" if refusal else b"kept", partition=0)
                    sending = asyncio.create_task(tx.send_offsets({INPUT: 1}, MEMBER))
                    await asyncio.sleep(0)
            await asyncio.wait([sending])
        assert isinstance(sending.exception(), refusal or type(None))
        assert tx.outcome is (ABORTED if refusal else COMMITTED)
        assert stored(world) == (None if refusal else 1)

    run(scenario, level)


@levels
def test_offsets_that_are_being_sent_at_an_abort_are_in_no_later_transaction(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with world.cluster.delay(ApiKey.TXN_OFFSET_COMMIT, 1.0), contextlib.suppress(BodyError):
            async with producer.transaction() as tx:
                sending = asyncio.create_task(tx.send_offsets({INPUT: 1}, MEMBER))
                await asyncio.sleep(0)
                raise BodyError
        assert tx.outcome is ABORTED
        async with producer.transaction() as tx:
            tx.send("t", b"kept", partition=0)
        await asyncio.wait([sending])
        sending.exception()
        assert stored(world) is None

    run(scenario, level)


@levels
def test_offsets_that_are_being_sent_at_a_restart_are_in_no_later_transaction(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with world.cluster.fail(ApiKey.TXN_OFFSET_COMMIT, NotCoordinatorError):
            await producer.begin_transaction()
            sending = asyncio.create_task(producer.send_offsets_to_transaction({INPUT: 1}, MEMBER))
            await asyncio.sleep(1)
            await producer.restart()
        async with producer.transaction() as tx:
            tx.send("t", b"kept", partition=0)
            await asyncio.wait([sending])
        # At levels 0 and 1, the coordinator may first refuse the epoch.
        assert isinstance(sending.exception(), AbortableError | ApplicationRecoverableError)
        assert stored(world) is None

    run(scenario, level)


@levels
def test_an_abort_asks_again_when_the_repeated_commit_is_to_be_aborted(level: int) -> None:
    """The abort finds out the outcome of a commit by sending it again."""

    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        await producer.begin_transaction()
        producer.send("t", b"kept", partition=0)
        with (
            world.cluster.drop(ApiKey.END_TXN, when="after"),
            pytest.raises(TransactionAbortableError),
        ):
            await producer.commit_transaction(timeout=1.0)
        with (
            world.cluster.fail(
                ApiKey.END_TXN,
                TransactionAbortableError,
                times=1,
                where=lambda message: message.committed,
            ),
            pytest.raises(ApplicationRecoverableError, match="had been committed") as caught,
        ):
            await producer.abort_transaction()
        # The work is done, so no sentence of the error may ask for it again.
        said = str(caught.value).removesuffix(f" help: {caught.value.help}")
        assert said.endswith("Do not repeat its work.")
        assert "Then repeat" not in str(caught.value)
        assert producer.last_transaction.outcome is COMMITTED
        await producer.restart()

    run(scenario, level)


def test_a_transaction_after_an_upgrade_is_not_ended_by_the_markers_of_the_one_before() -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with world.cluster.hold_markers():
            async with producer.transaction() as tx:
                tx.send("t", b"kept", partition=0)
                await asyncio.sleep(11)  # The producer reads the level again only after a while.
                world.cluster.set_transaction_version(2)
            following = asyncio.create_task(lose(producer))
            await asyncio.sleep(3)
        await following

    async def lose(producer: Producer[Any, Any]) -> None:
        with contextlib.suppress(BodyError):
            async with producer.transaction() as tx:
                tx.send("t", b"lost", partition=0)
                await asyncio.sleep(5)
                raise BodyError

    run(scenario, level=0)


@pytest.mark.parametrize("level", [0, 1])
def test_a_transaction_after_an_abortable_error_has_a_new_epoch(level: int) -> None:
    """What the failed transaction has in flight must not become a part of the next one (KIP-360).

    All its records are acknowledged, so that their sequences are no reason for a new epoch.
    """

    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        async def abort(*, after_error: bool) -> int:
            await producer.begin_transaction()
            await producer.send("t", b"lost", partition=0)
            with contextlib.ExitStack() as faults:
                if after_error:
                    api, error = ApiKey.TXN_OFFSET_COMMIT, TransactionAbortableError
                    faults.enter_context(world.cluster.fail(api, error, times=1))
                    faults.enter_context(pytest.raises(AbortableError))
                await producer.send_offsets_to_transaction({INPUT: 1}, MEMBER)
            await producer.abort_transaction()
            return len(world.requests(ApiKey.INIT_PRODUCER_ID))

        assert await abort(after_error=False) == 1
        assert await abort(after_error=True) == 2
        assert await abort(after_error=False) == 2
        assert await abort(after_error=True) == 3

    run(scenario, level)


LATER = ["at once", "after another begin", "in another transaction", "after another commit"]


async def restart_elsewhere(producer: Producer[Any, Any], then: str) -> Any:
    """Restart the producer in another task, and perhaps use it. Return its open transaction."""

    async def other() -> Any:
        await producer.restart()
        if then == "at once":
            return None
        await producer.begin_transaction()
        tx = producer.last_transaction
        assert tx is not None
        if then != "after another begin":
            await tx.send("t", b"kept", partition=0)
        if then == "after another commit":
            await producer.commit_transaction()
            return None
        return tx

    return await asyncio.create_task(other())


@levels
@pytest.mark.parametrize("then", LATER)
@pytest.mark.parametrize("work", ["nothing", "acknowledged", "pending", "offsets"])
def test_a_block_raises_after_another_task_has_restarted_the_producer(
    work: str, then: str, level: int
) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with pytest.raises(TransactionAbortableError, match="Repeat its work"):  # noqa: PT012 - the end of the block raises
            async with producer.transaction() as tx:
                if work in ("acknowledged", "pending"):
                    delivery = tx.send("t", b"lost", partition=0)
                    if work == "acknowledged":
                        await delivery
                elif work == "offsets":
                    await tx.send_offsets({INPUT: 1}, MEMBER)
                other = await restart_elsewhere(producer, then)
        assert tx.outcome is ABORTED
        if other is not None:
            # The transaction of the other task is still open, and can be committed.
            await producer.commit_transaction()
            assert other.outcome is COMMITTED
        assert stored(world) is None

    run(scenario, level)


@levels
def test_a_block_raises_after_a_commit_in_it_was_given_up(level: int) -> None:
    async def main(world: World) -> None:
        options = {"transactional_id": "t-1", "transaction_timeout_ms": 1_000}
        async with world.producer(**options) as producer:
            with pytest.raises(TransactionAbortableError):  # noqa: PT012 - the end of the block raises
                async with producer.transaction() as tx:
                    with world.cluster.delay(ApiKey.METADATA, 5.0, when="before"):
                        tx.send("t", b"lost", partition=0)
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.1):
                                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"next", partition=0)
            assert tx.outcome is ABORTED

    simulate(main, transaction_version=level)


@levels
@pytest.mark.parametrize("end", ["commit", "abort", "abort without an answer"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_block_whose_body_ended_the_transaction_does_not_raise(
    restarted: bool, end: str, level: int
) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        async with producer.transaction() as tx:
            await tx.send("t", b"kept" if end == "commit" else b"lost", partition=0)
            if end == "commit":
                await producer.commit_transaction()
            else:
                await producer.abort_transaction(None if end == "abort" else 0.01)
            if restarted:
                await restart_elsewhere(producer, "after another commit")
        assert tx.outcome is (COMMITTED if end == "commit" else ABORTED) or not restarted

    run(scenario, level)


@levels
@pytest.mark.parametrize("begun", [False, True])
def test_a_block_raises_after_a_restart_that_could_not_find_out_its_outcome(
    begun: bool, level: int
) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        with pytest.raises(TransactionAbortableError, match="is not known"):  # noqa: PT012 - the end of the block raises
            async with producer.transaction() as tx:
                await tx.send("t", b"lost", partition=0)
                with (
                    world.cluster.drop(ApiKey.END_TXN, when="before"),
                    contextlib.suppress(KafkaError),
                ):
                    await producer.commit_transaction(timeout=0.5)
                with world.cluster.drop(ApiKey.END_TXN, when="before"):
                    await restart_elsewhere(producer, "at once")
                if begun:
                    await restart_elsewhere(producer, "after another commit")
        assert tx.outcome is UNKNOWN

    run(scenario, level)


@levels
def test_transform_does_not_commit_the_transaction_of_another_task(level: int) -> None:
    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        world.cluster.produce("in", [b"1"], partition=0)
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with world.consumer("in", **options) as consumer:
            with pytest.raises(IllegalStateError):  # noqa: PT012 - the loop raises
                async with transform(consumer, producer) as stream:
                    async for batch in stream:
                        await batch.send("t", b"lost", partition=0)
                        other = await restart_elsewhere(producer, "after another begin")
            assert other.outcome is None
            await producer.abort_transaction()
            async with transform(consumer, producer) as stream:
                batch = await anext(stream)
                batch.send("t", b"kept", partition=0)
                consumer.stop()
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
        assert [record.value for record in batch] == [b"1"]
        assert stored(world) == 1

    run(scenario, level)


def test_an_added_consumer_is_kept_until_the_end_of_its_transaction() -> None:
    """Otherwise, another consumer could have its `id()`, and `add` would take it for this one."""

    async def scenario(world: World, producer: Producer[Any, Any]) -> None:
        consumer = world.consumer("in", group_id="g", enable_auto_commit=False)
        await consumer.start()
        await producer.begin_transaction()
        assert producer.last_transaction is not None
        producer.last_transaction.add(consumer)
        producer.last_transaction.add(consumer)
        await consumer.close()
        reference = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert reference() is not None
        await producer.commit_transaction()
        gc.collect()
        assert reference() is None

    run(scenario, 2)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("error", [BodyError, asyncio.CancelledError])
def test_an_error_of_the_body_propagates_although_the_abort_at_the_close_is_refused(
    error: type[BaseException], shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(world: World) -> None:
        options = {"transactional_id": "t-1"}
        async with world.client() as client:
            parts = {"client": client} if shared else world.options()
            async with Producer[Any, Any](**parts, **options) as producer:
                await producer.begin_transaction()
                await producer.send("t", b"lost", partition=0)
                raise error

    async def scenario(world: World) -> None:
        with (
            world.cluster.fail(ApiKey.END_TXN, ProducerFencedError, times=1),
            pytest.raises(error),
        ):
            await write(world)

    simulate(scenario)
    failed = [each for each in caplog.records if getattr(each, "event", "") == "close_failed"]
    assert len(failed) == 1
    assert "PRODUCER_FENCED" in failed[0].getMessage()
