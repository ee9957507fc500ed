"""Commits in progress: the operation that a caller waits for, and when a commit needs a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Delivery, Producer, TopicPartition, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ClosedError,
    CoordinatorLoadInProgressError,
    KafkaError,
    TransactionAbortableError,
)
from aiokclient.producer.transaction.ending import Operation
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.loop import VirtualLoop

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
TASK = "transaction commit"
PARTITION = TopicPartition("t", 1)


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def works() -> None:
    await asyncio.sleep(1)


def fails(error: BaseException) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        await asyncio.sleep(1)
        raise error

    return work


def test_result_returns_when_the_work_has_ended() -> None:
    async def main() -> None:
        operation = Operation()
        assert not operation.over
        operation.require_running()
        running = asyncio.ensure_future(operation.run(works))
        for _ in range(2):
            await operation.result(5)
        assert operation.over
        assert not operation.abandoned
        assert not operation._waiters
        assert asyncio.get_running_loop().time() == 1
        await running

    in_virtual_time(main)


def test_result_raises_an_error_of_the_work_and_the_task_does_not() -> None:
    async def main() -> None:
        operation, error = Operation(), KafkaError("no")
        running = asyncio.ensure_future(operation.run(fails(error)))
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await operation.result(5)
            assert caught.value is error
        await running
        with pytest.raises(KafkaError):
            operation.require_running()

    in_virtual_time(main)


def test_result_and_task_raise_a_bug_of_the_work() -> None:
    async def main() -> None:
        operation, bug = Operation(), ZeroDivisionError()
        running = asyncio.ensure_future(operation.run(fails(bug)))
        with pytest.raises(ZeroDivisionError):
            await operation.result(5)
        with pytest.raises(ZeroDivisionError):
            await running

    in_virtual_time(main)


def test_result_raises_when_the_task_is_cancelled_because_the_producer_closes() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(ClosedError, match="The producer was closed"):
            await operation.result(5)
        with pytest.raises(asyncio.CancelledError):
            await running

    in_virtual_time(main)


def test_work_of_an_operation_that_is_over_does_not_run() -> None:
    async def main() -> None:
        operation = Operation()
        operation.cancel(KafkaError("changed"))
        await operation.run(fails(ZeroDivisionError()))
        assert asyncio.get_running_loop().time() == 0
        with pytest.raises(KafkaError, match="changed"):
            operation.require_running()

    in_virtual_time(main)


def test_cancel_stops_the_work_where_it_is_and_gives_its_error_to_the_caller() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        await asyncio.sleep(0.5)
        operation.cancel(KafkaError("changed"))
        with pytest.raises(KafkaError, match="changed"):
            await operation.result(5)
        await running
        assert asyncio.get_running_loop().time() == 0.5

    in_virtual_time(main)


def test_only_the_first_end_counts() -> None:
    async def main() -> None:
        operation = Operation()
        operation.end(None)
        operation.end(KafkaError("late"))
        await operation.result(5)
        operation.require_running()
        operation = Operation()
        operation.end(KafkaError("first"))
        operation.end(None)
        with pytest.raises(KafkaError, match="first"):
            await operation.result(5)

    in_virtual_time(main)


def test_an_error_that_nobody_reads_is_not_logged() -> None:
    messages: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: messages.append(what))
        Operation().end(KafkaError("no"))
        await asyncio.sleep(1)

    in_virtual_time(main)
    assert messages == []


def test_wait_returns_whether_the_operation_has_ended_in_time() -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        assert not await operation.wait(0.5)
        assert asyncio.get_running_loop().time() == 0.5
        assert await operation.wait(5)
        assert await operation.wait(5)
        assert asyncio.get_running_loop().time() == 1
        await running

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("shielded_s", "abandoned", "at_s"), [(0.25, True, 0.75), (2.0, False, 1.0)]
)
def test_a_cancelled_caller_waits_for_a_limited_time(
    shielded_s: float, abandoned: bool, at_s: float
) -> None:
    async def main() -> None:
        operation = Operation()
        running = asyncio.ensure_future(operation.run(works))
        caller = asyncio.ensure_future(operation.result(shielded_s))
        other = asyncio.ensure_future(operation.result(shielded_s))
        await asyncio.sleep(0.5)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert asyncio.get_running_loop().time() == at_s
        assert operation.abandoned is abandoned
        await other
        await running
        assert not operation._waiters
        assert asyncio.get_running_loop().time() == 1

    in_virtual_time(main)


def run(scenario: Any, level: int = 2) -> None:
    simulate(scenario, topics={"t": 2}, transaction_version=level)


def spawned(producer: Producer[Any, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each background task that the producer starts."""
    names: list[str] = []
    spawn = producer._supervisor.spawn

    def record(*work: Any, name: str) -> None:
        names.append(name)
        spawn(*work, name=name)

    monkeypatch.setattr(producer._supervisor, "spawn", record)
    return names


async def warmed_up(world: World, **options: Any) -> Producer[Any, Any]:
    """Return a connected producer that knows the topic, and has just read transaction.version."""
    producer = world.producer(transactional_id="t-1", **options)
    await producer.start()
    async with producer.transaction() as tx:
        for partition in range(2):
            tx.send("t", b"first", partition=partition)
    return producer


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("records", [0, 1, 2, 500])
def test_a_commit_starts_no_task_when_nothing_fails(
    records: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            names = spawned(producer, monkeypatch)
            async with producer.transaction() as tx:
                deliveries = [tx.send("t", b"v" * 1000, partition=n % 2) for n in range(records)]
            assert TASK not in names
            assert tx.outcome is COMMITTED
            assert all(delivery.done() for delivery in deliveries)

    run(scenario, level)


def test_a_commit_continues_in_a_task_when_the_coordinator_refuses_endtxn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            names = spawned(producer, monkeypatch)
            error = CoordinatorLoadInProgressError
            with world.cluster.fail(ApiKey.END_TXN, error, times=2) as fault:
                async with producer.transaction() as tx:
                    tx.send("t", b"value")
            assert fault.hits == 2
            assert names.count(TASK) == 1
            assert tx.outcome is COMMITTED

    run(scenario)


def test_a_commit_waits_for_callbacks_of_its_deliveries() -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            called: list[Delivery] = []
            async with producer.transaction() as tx:
                delivery = tx.send("t", b"value")
                delivery.add_done_callback(called.append)
            assert called == [delivery]
            assert tx.outcome is COMMITTED

    run(scenario)


def test_a_commit_raises_at_its_timeout_when_the_records_are_not_acknowledged() -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            with world.cluster.delay(ApiKey.PRODUCE, 5.0, when="before"):
                await producer.begin_transaction()
                producer.send("t", b"value")
                began = asyncio.get_running_loop().time()
                with pytest.raises(TransactionAbortableError, match=r"within 1\.0 s"):
                    await producer.commit_transaction(timeout=1.0)
                took_s = asyncio.get_running_loop().time() - began
                assert took_s == pytest.approx(1.0, abs=0.1)
                await producer.abort_transaction()
            assert producer.last_transaction is not None
            assert producer.last_transaction.outcome is ABORTED

    run(scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_a_response_after_the_deadline_does_not_decide_the_commit(level: int) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            with world.cluster.delay(ApiKey.END_TXN, 3.0, when="after", times=1):
                await producer.begin_transaction()
                producer.send("t", b"value")
                with pytest.raises(AbortableError):
                    await producer.commit_transaction(timeout=1.0)
                last = producer.last_transaction
                assert last is not None
                assert last.outcome is UNKNOWN
                await asyncio.sleep(5.0)  # The response arrives after the call has raised.
            assert last.outcome is UNKNOWN
            with pytest.raises(ApplicationRecoverableError, match="had been committed"):
                await producer.abort_transaction()
            assert last.outcome is COMMITTED
            await producer.restart()

    run(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_does_not_wait_for_the_linger_time_of_its_records(level: int) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world, linger_ms=60_000) as producer:
            began = world.now
            async with producer.transaction() as tx:
                tx.send("t", b"value", partition=0)
                tx.send("t", b"value", partition=1)
            assert tx.outcome is COMMITTED
            assert world.now - began < 1

    run(scenario, level)


def test_a_commit_ends_at_the_time_limit_of_its_end_and_not_at_that_of_its_records() -> None:
    async def scenario(world: World) -> None:
        limits = {"default_api_timeout_ms": 5_000, "delivery_timeout_ms": 60_000}
        async with await warmed_up(world, **limits) as producer:
            with world.cluster.delay(ApiKey.END_TXN, 20.0, when="after", times=1):
                await producer.begin_transaction()
                await producer.send("t", b"value")
                began = world.now
                with pytest.raises(AbortableError, match=r"within 5\.0 s"):
                    await producer.commit_transaction()
                assert world.now - began == pytest.approx(5.0, abs=0.1)
            last = producer.last_transaction
            assert last is not None
            assert last.outcome is UNKNOWN
            await asyncio.sleep(20.0)
            with pytest.raises(ApplicationRecoverableError, match="had been committed"):
                await producer.abort_transaction()
            await producer.restart()

    run(scenario)


@pytest.mark.parametrize("timeout", [0.0, 1.0])
def test_a_commit_raises_when_the_producer_closes_before_the_records_are_acknowledged(
    timeout: float,
) -> None:
    async def scenario(world: World) -> None:
        producer = await warmed_up(world)
        with world.cluster.delay(ApiKey.PRODUCE, 500.0, when="before"):
            await producer.begin_transaction()
            producer.send("t", b"value")
            commit = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(0.1)
            began = world.now
            await producer.close(timeout)
            with pytest.raises(KafkaError):
                await asyncio.wait_for(commit, 1.0)
            assert world.now - began < timeout + 1

    run(scenario)


def test_a_record_that_a_restart_has_dropped_says_what_to_do_with_it() -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world, linger_ms=60_000) as producer:
            await producer.begin_transaction()
            delivery = producer.send("t", b"value")
            await producer.restart()
            with pytest.raises(
                TransactionAbortableError, match="the producer was restarted"
            ) as caught:
                await delivery
            assert caught.value.hint == "Send the record again in a new transaction."

    run(scenario)


def test_a_commit_is_continued_by_one_task_when_its_records_fail_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world, linger_ms=0) as producer:
            names = spawned(producer, monkeypatch)
            await producer.begin_transaction()
            with world.cluster.delay(ApiKey.PRODUCE, 2.0, when="after", times=1):
                producer.send("t", b"late", partition=0)
                await asyncio.sleep(0.1)
                with world.cluster.fail(ApiKey.PRODUCE, TransactionAbortableError, times=1):
                    producer.send("t", b"refused", partition=1)
                    with pytest.raises(AbortableError):
                        await producer.commit_transaction()
                    await asyncio.sleep(5)
            assert names.count(TASK) <= 1
            await producer.abort_transaction()
            async with producer.transaction() as tx:
                tx.send("t", b"value")
            assert tx.outcome is COMMITTED
            assert names.count(TASK) <= 1

    run(scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_ends_at_its_own_timeout_when_an_earlier_one_had_another(
    level: int,
) -> None:
    """One timer serves all commits: it is set again when it was set for an earlier time."""

    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            for timeout in (30.0, 2.0):
                await producer.begin_transaction()
                await producer.send("t", b"value")
                await producer.commit_transaction(timeout=timeout)
            with world.cluster.delay(ApiKey.PRODUCE, 60.0, when="before", times=1):
                await producer.begin_transaction()
                producer.send("t", b"value")
                began = world.now
                with pytest.raises(AbortableError):
                    await producer.commit_transaction(timeout=4.0)
                assert world.now - began == pytest.approx(4.0, abs=0.1)
                await producer.abort_transaction(timeout=1.0)

    run(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_succeeds_when_the_connection_to_the_coordinator_was_lost(level: int) -> None:
    async def scenario(world: World) -> None:
        async with await warmed_up(world) as producer:
            for _ in range(3):
                await producer.begin_transaction()
                await producer.send("t", b"value")
                world.cluster.disconnect()
                await asyncio.sleep(0.1)
                began = world.now
                await producer.commit_transaction()
                assert world.now - began < 2
                assert producer.last_transaction is not None
                assert producer.last_transaction.outcome is COMMITTED

    run(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_waits_for_the_offsets_of_its_consumers(level: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1", b"2"], partition=1)
        consumer = world.consumer(
            group_id="g", enable_auto_commit=False, auto_offset_reset="earliest"
        )
        async with await warmed_up(world, linger_ms=0) as producer, consumer:
            consumer.assign([PARTITION])
            for records in (0, 1, 0):
                async with producer.transaction() as tx:
                    tx.add(consumer)
                    while not (read := await consumer.poll(timeout=5.0)):
                        pass
                    for _ in range(records):
                        tx.send("t", b"value", partition=0)
                assert tx.outcome is COMMITTED
                stored = world.cluster.committed("g")[PARTITION]
                assert stored.offset > read[-1].offset
                world.cluster.produce("t", [b"3"], partition=1)

    run(scenario, level)
