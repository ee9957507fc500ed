"""Commits whose responses are lost: the outcomes for the program, and the records for readers.

Each fault lasts until the producer sends its first abort, so that the commit ends without a
response. An abort, a restart, or the end of `async with` then finds out what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Coordinator, GroupMetadata, Producer, TopicPartition, TransactionOutcome
from aiokclient.errors import AbortableError, ApplicationRecoverableError, KafkaError
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import EndTxnRequest
from aiokclient.testing.broker.faults import Fault

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome

OPTIONS = {
    "transactional_id": "t-1",
    "default_api_timeout_ms": 3000,
    "request_timeout_ms": 1000,
    "close_timeout_ms": 2000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
TPS = [TopicPartition("t", partition) for partition in range(2)]
MEMBER = GroupMetadata("g")
LATE_S = 10.0
FIRST, NEXT = [b"first 0", b"first 1"], [b"next 0", b"next 1"]


class LostCommit:
    """A fault that affects all commits until the producer sends its first abort."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._ends = False
        self.fault = self._inject(world)

    def _inject(self, world: World) -> Fault:
        cluster, api = world.cluster, ApiKey.END_TXN
        if self._name == "applied":
            return cluster.drop(api, when="after", where=self._matches)
        if self._name == "applied and answered late":
            return cluster.delay(api, LATE_S, when="after", where=self._matches)
        return cluster.drop(api, when="before", where=self._matches)

    def _matches(self, request: Any) -> bool:
        if not request.committed and not self._ends:
            self._ends = True
            if self._name == "after the timeout":
                self._world.cluster.time_out_transaction("t-1")
        return not self._ends


OUTCOMES = {
    ("applied", 0): COMMITTED,
    ("applied", 2): COMMITTED,
    ("applied and answered late", 0): COMMITTED,
    ("applied and answered late", 2): COMMITTED,
    ("not applied", 0): ABORTED,
    ("not applied", 2): ABORTED,
    ("after the timeout", 0): UNKNOWN,
    # At level 2, an abort by the coordinator looks like an abort by the producer.
    ("after the timeout", 2): ABORTED,
}
"""The outcome that an abort or a restart finds after each fault, at each level."""


async def write(world: World, producer: Producer[Any, Any], values: list[bytes]) -> None:
    """Write a record to each partition, and an offset."""
    for tp, value in zip(TPS, values, strict=True):
        producer.send("t", value, partition=tp.partition)
    await producer.send_offsets_to_transaction({TPS[0]: 7}, MEMBER)


async def commit_next(world: World, producer: Producer[Any, Any]) -> None:
    async with producer.transaction() as tx:
        for tp, value in zip(TPS, NEXT, strict=True):
            tx.send("t", value, partition=tp.partition)
    assert tx.outcome is COMMITTED


async def check_readers(world: World, outcome: TransactionOutcome) -> None:
    """Check that the next transaction is visible, and the first one as a whole or not at all."""
    async with world.consumer(isolation_level="read_committed", group_id="g") as consumer:
        stored = (await consumer.committed([TPS[0]]))[TPS[0]]
        consumer.assign(TPS)
        consumer.seek_to_beginning(TPS)
        values = [record.value async for record in consumer.until_end()]
    was_committed = outcome is COMMITTED
    assert sorted(values) == sorted([*FIRST, *NEXT] if was_committed else NEXT)
    assert (stored is not None and stored.offset == 7) is was_committed


def run(scenario: Callable[[World], Any], level: int) -> None:
    simulate(scenario, topics={"t": 2}, transaction_version=level)


def last_outcome(producer: Producer[Any, Any]) -> TransactionOutcome | None:
    assert producer.last_transaction is not None
    return producer.last_transaction.outcome


async def lose_commit(world: World, producer: Producer[Any, Any], fault: Fault) -> None:
    """Commit a transaction, which ends without a response because of the fault."""
    await producer.begin_transaction()
    await write(world, producer, FIRST)
    with pytest.raises(AbortableError):
        await producer.commit_transaction()
    assert fault.hits > 0
    assert last_outcome(producer) is UNKNOWN


@pytest.mark.fault(50)
@pytest.mark.parametrize(("name", "level"), OUTCOMES)
def test_an_abort_finds_out_what_happened_to_a_commit(name: str, level: int) -> None:
    async def scenario(world: World) -> None:
        outcome = OUTCOMES[name, level]
        async with world.producer(**OPTIONS) as producer:
            with LostCommit(world, name).fault as fault:
                await lose_commit(world, producer, fault)
                if outcome is ABORTED:
                    await producer.abort_transaction()
                else:
                    with pytest.raises(ApplicationRecoverableError):
                        await producer.abort_transaction()
            assert last_outcome(producer) is outcome
            if outcome is not ABORTED:
                with pytest.raises(ApplicationRecoverableError):
                    await producer.begin_transaction()
                await producer.restart()
            assert last_outcome(producer) is outcome
            await commit_next(world, producer)
        await check_readers(world, outcome)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize(("name", "level"), OUTCOMES)
def test_a_restart_finds_out_what_happened_to_a_commit(name: str, level: int) -> None:
    async def scenario(world: World) -> None:
        outcome = OUTCOMES[name, level]
        async with world.producer(**OPTIONS) as producer:
            with LostCommit(world, name).fault as fault:
                await lose_commit(world, producer, fault)
                await producer.restart()
            assert last_outcome(producer) is outcome
            await commit_next(world, producer)
        await check_readers(world, outcome)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize(("name", "level"), OUTCOMES)
def test_the_end_of_async_with_finds_out_what_happened_to_a_commit(name: str, level: int) -> None:
    """The end raises nothing if the commit was applied, and otherwise the most severe error."""

    async def scenario(world: World) -> None:
        outcome = OUTCOMES[name, level]
        async with world.producer(**OPTIONS) as producer:
            error: KafkaError | None = None
            with LostCommit(world, name).fault as fault:
                try:
                    async with producer.transaction() as tx:
                        await write(world, producer, FIRST)
                except KafkaError as raised:
                    error = raised
                assert fault.hits > 0
            assert tx.outcome is outcome
            expected = {COMMITTED: type(None), ABORTED: AbortableError}
            assert isinstance(error, expected.get(outcome, ApplicationRecoverableError))
            if outcome is UNKNOWN:
                await producer.restart()
                assert tx.outcome is UNKNOWN
            await commit_next(world, producer)
        await check_readers(world, outcome)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("then", ["begin", "abort", "restart"])
def test_an_abort_without_a_response_continues_in_the_background(
    then: str, applied: bool, level: int
) -> None:
    """The abort of `async with` ends in time, with an unknown outcome that is found out later."""

    async def scenario(world: World) -> None:
        outcome = COMMITTED if applied else ABORTED
        async with world.producer(**OPTIONS) as producer:
            tx = producer.transaction()
            where = (lambda request: request.committed) if applied else None
            lost = world.cluster.drop(
                ApiKey.END_TXN, when="after" if applied else "before", where=where
            )
            silent = world.cluster.drop(
                ApiKey.END_TXN, when="before", where=lambda request: not request.committed
            )

            async def body() -> None:
                async with tx:
                    await write(world, producer, FIRST)

            began = world.now
            with pytest.raises(AbortableError):
                await body()
            assert world.now - began < 6
            assert tx.outcome is UNKNOWN
            heal = asyncio.get_running_loop().call_later(
                1, lambda: (lost.remove(), silent.remove())
            )
            if then == "abort":
                await producer.abort_transaction()
            elif then == "restart":
                await producer.restart()
            await commit_next(world, producer)
            heal.cancel()
            assert tx.outcome is outcome
        await check_readers(world, outcome)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_with_a_lost_response_is_repeated(times: int, when: Any, level: int) -> None:
    """A response that is lost once is no error: the same commit is sent again."""

    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as producer:
            with world.cluster.drop(ApiKey.END_TXN, when=when, times=times) as fault:
                async with producer.transaction() as tx:
                    await write(world, producer, FIRST)
                assert fault.hits == times
            assert tx.outcome is COMMITTED
            await commit_next(world, producer)
        await check_readers(world, COMMITTED)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("style", ["calls", "context"])
def test_a_commit_that_comes_after_the_timeout_is_not_applied(style: str, level: int) -> None:
    """The coordinator has ended the transaction, so only a restart makes the producer usable."""

    async def scenario(world: World) -> None:
        async with world.producer(**OPTIONS) as producer:
            tx = producer.transaction()

            async def use() -> None:
                async with tx:
                    await write(world, producer, FIRST)
                    await producer.flush()
                    world.cluster.time_out_transaction("t-1")
                    if style == "calls":
                        await producer.commit_transaction()

            with pytest.raises(ApplicationRecoverableError):
                await use()
            assert tx.outcome is UNKNOWN
            for refused in (producer.abort_transaction, producer.begin_transaction):
                with pytest.raises(ApplicationRecoverableError):
                    await refused()
            await producer.restart()
            assert tx.outcome is OUTCOMES["after the timeout", level]
            await commit_next(world, producer)
        await check_readers(world, ABORTED)

    run(scenario, level)


@pytest.mark.fault(50)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("leave", ["abort", "restart"])
def test_a_commit_that_arrives_late_does_not_end_the_next_transaction(
    leave: str, level: int
) -> None:
    """The network delivers the lost commit when the next transaction is already open."""

    async def scenario(world: World) -> None:
        late: list[EndTxnRequest] = []

        def keep(request: EndTxnRequest) -> bool:
            late.append(request)
            return request.committed

        async with world.producer(**OPTIONS) as producer, world.client() as client:
            with world.cluster.drop(ApiKey.END_TXN, when="before", where=keep) as fault:
                await lose_commit(world, producer, fault)
            await (producer.abort_transaction() if leave == "abort" else producer.restart())
            async with producer.transaction() as tx:
                tx.send("t", NEXT[0], partition=0)
                await producer.flush()
                with pytest.raises(ApplicationRecoverableError):
                    await client._cluster.request(
                        late[0],
                        to=Coordinator("transaction", "t-1"),
                        highest=lambda: 5 if level == 2 else 4,
                    )
                assert world.cluster.transactions["t-1"].state == "Ongoing"
                tx.send("t", NEXT[1], partition=1)
            assert tx.outcome is COMMITTED
        await check_readers(world, ABORTED)

    run(scenario, level)
