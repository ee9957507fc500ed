"""Errors of calls about transactions that could be in none of the three categories."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from two_clusters import replace_cluster
from world import World, simulate

from aiokclient import TransactionOutcome
from aiokclient.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    SerializationError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
OPTIONS: dict[str, Any] = {
    "transactional_id": "t-1",
    "default_api_timeout_ms": 5_000,
    "request_timeout_ms": 2_000,
}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "refusal",
    [
        None,
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        ConcurrentTransactionsError,
    ],
)
def test_a_begin_on_another_cluster_raises_abortable_when_its_coordinator_gives_no_id(
    refusal: type[KafkaError] | None, level: int
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS, metadata_max_age_ms=1_000) as producer:
            async with producer.transaction() as tx:
                await tx.send("t", b"old", partition=0)
            former = replace_cluster(world)
            while producer._cluster.metadata.cluster_id == former:
                await producer.partitions_for("t")
                await asyncio.sleep(0.5)
            fault = (
                world.cluster.delay(ApiKey.INIT_PRODUCER_ID, 60.0, when="before")
                if refusal is None
                else world.cluster.fail(ApiKey.INIT_PRODUCER_ID, refusal)
            )
            with fault:
                for _ in range(2):
                    with pytest.raises(TransactionAbortableError) as caught:
                        await producer.begin_transaction()
                    assert caught.value.__cause__ is not None
                    await producer.abort_transaction()
            world.cluster.disconnect()
            await producer.begin_transaction()
            await producer.send("t", b"new", partition=0)
            await producer.commit_transaction()
        assert [record.value for record in world.cluster.records("t")] == [b"new"]

    simulate(scenario, brokers=1, topics={"t": 3}, transaction_version=level)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_raises_abortable_when_a_partitioner_fails_later(level: int) -> None:
    """The topic is not known at the send, so that the partitioner is called after it."""

    def partitioner(*arguments: Any) -> int:
        raise LookupError

    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS, partitioner=partitioner) as producer:
            await producer.begin_transaction()
            delivery = producer.send("t", b"lost", key=b"k")
            with pytest.raises(TransactionAbortableError, match="partitioner") as caught:
                await producer.commit_transaction()
            cause = caught.value.__cause__
            assert isinstance(cause, SerializationError)
            assert isinstance(cause.__cause__, LookupError)
            with pytest.raises(SerializationError):
                await delivery
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send("t", b"kept", partition=0)
            await producer.commit_transaction()

    simulate(scenario, transaction_version=level)
