"""For how long a coordinator may refuse to end a transaction, and when its level is read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from transaction_runs import MEMBER, OFFSET, SetClock
from world import World, simulate

from aiokclient import TransactionOutcome
from aiokclient.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFailedError,
    UnknownProducerIdError,
)
from aiokclient.producer.transaction.requests import (
    Patience,
    blocked,
    first_error,
    raise_if_blocked,
)
from aiokclient.producer.transaction.status import CurrentTransaction
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aiokclient.types import TopicPartition

UNENDED = (ConcurrentTransactionsError, TransactionAbortableError, UnknownProducerIdError)


@pytest.mark.parametrize("error", UNENDED)
def test_patience_ends_when_the_coordinator_has_refused_to_end_for_the_whole_time(
    error: type[KafkaError],
) -> None:
    clock = SetClock(100.0)
    patience = Patience(60.0, clock)
    for now in (100.0, 130.0, 159.9):
        clock.now = now
        patience.handle_error(error(api="EndTxn", broker=1))
    clock.now = 160.0
    with pytest.raises(TransactionFailedError, match=r"For 60\.0 s, the coordinator") as caught:
        patience.handle_error(error(api="EndTxn", broker=1))
    assert (caught.value.api, caught.value.broker) == ("EndTxn", 1)
    assert isinstance(caught.value.__cause__, error)


def test_patience_begins_again_after_another_error() -> None:
    clock = SetClock(100.0)
    patience = Patience(60.0, clock)
    patience.handle_error(ConcurrentTransactionsError())
    clock.now = 159.0
    patience.handle_error(CoordinatorLoadInProgressError())
    clock.now = 200.0
    patience.handle_error(ConcurrentTransactionsError())
    clock.now = 259.9
    patience.handle_error(TransactionAbortableError())
    clock.now = 260.0
    with pytest.raises(TransactionFailedError):
        patience.handle_error(ConcurrentTransactionsError())


@pytest.mark.parametrize(
    ("refused", "error", "is_blocked"),
    [
        (True, ConcurrentTransactionsError, True),
        (True, ProducerFencedError, False),
        (False, ConcurrentTransactionsError, False),
    ],
)
def test_a_busy_coordinator_is_blocked_only_after_it_has_refused_a_higher_level(
    refused: bool, error: type[KafkaError], is_blocked: bool
) -> None:
    transaction = CurrentTransaction(0, 1.0)
    if refused:
        transaction.mark_refused("group")
    if not is_blocked:
        raise_if_blocked(transaction, error())
        return
    with pytest.raises(TransactionFailedError, match=r"transaction\.version"):
        raise_if_blocked(transaction, error())


def test_the_error_of_a_blocked_coordinator_has_its_partition_and_cause() -> None:
    tp = TopicPartition("t", 3)
    cause = ConcurrentTransactionsError(api="Produce", broker=2, topic_partition=tp)
    error = blocked(cause)
    assert (error.api, error.broker, error.topic_partition) == ("Produce", 2, tp)
    assert error.__cause__ is cause


def test_the_first_error_of_a_partition_is_that_of_the_response() -> None:
    def response(*codes: int) -> AddPartitionsToTxnResponse:
        parts = [
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            for number, code in enumerate(codes)
        ]
        topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=parts)]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    assert first_error(AddPartitionsToTxnResponse()) is None
    assert first_error(response(0, 0)) is None
    error = first_error(response(0, 29, 3))
    assert error is not None
    assert (error.code, error.api) == (29, "AddPartitionsToTxn")
    assert error.topic_partition == TopicPartition("t", 1)


@pytest.mark.parametrize("level", [0, 2])
def test_the_level_is_read_again_ten_seconds_after_it_was_read(level: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:

            async def commit_at(time_s: float) -> int:
                """Commit at this time after the start. Return how often the level was read."""
                await asyncio.sleep(started + time_s - world.now)
                began = world.now
                async with producer.transaction() as tx:
                    tx.send("t", b"v", partition=0)
                return len(world.requests(ApiKey.API_VERSIONS, since=began))

            started = world.now
            await commit_at(0.5)
            reads = [await commit_at(time_s) for time_s in (9.5, 10.5, 12.0, 20.0, 21.0, 22.0)]
            assert reads == [0, 1, 0, 0, 1, 0]

    simulate(scenario, topics={"t": 1}, transaction_version=level)


def test_options_of_times_are_milliseconds() -> None:
    async def scenario(world: World) -> None:
        options: Any = {"transaction_timeout_ms": 7_000, "default_api_timeout_ms": 9_000}
        async with world.producer(transactional_id="t-1", **options) as producer:
            assert producer._engine is not None
            assert producer._engine.transactions is not None
            requests = producer._engine.transactions.requests
            patience = requests.new_patience()
            patience.handle_error(ConcurrentTransactionsError())
            await asyncio.sleep(8.9)
            patience.handle_error(ConcurrentTransactionsError())
            await asyncio.sleep(0.1001)
            with pytest.raises(TransactionFailedError):
                patience.handle_error(ConcurrentTransactionsError())

    simulate(scenario, topics={"t": 1})


@pytest.mark.parametrize(("level", "added"), [(0, 1), (2, 0)])
def test_a_group_is_added_to_each_transaction_once(level: int, added: int) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1") as producer:
            for offset in range(3):
                began = world.now
                async with producer.transaction() as tx:
                    for _ in range(2):
                        await tx.send_offsets({OFFSET: offset}, MEMBER)
                assert tx.outcome is TransactionOutcome.COMMITTED
                assert len(world.requests(ApiKey.ADD_OFFSETS_TO_TXN, since=began)) == added
                await asyncio.sleep(1)
                assert world.cluster.committed(MEMBER.group_id)[OFFSET].offset == offset

    simulate(scenario, topics={"t": 2, "in": 1}, transaction_version=level)
