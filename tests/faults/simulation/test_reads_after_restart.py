"""Records that a program reads in a transaction which another task has just ended.

A restart or a close by another task aborts the transaction, and its consumers go back. But the
program may still be reading: what it receives then belongs to no transaction, and the program
repeats its work. So the consumers go back again when it notices the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from group_world import fill, member
from world import World, simulate

from aiokclient import Consumer, TopicPartition, Transaction, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ClosedError,
    IllegalStateError,
    TransactionAbortableError,
)
from aiokclient.protocol import ApiKey

T0, OUT = TopicPartition("t", 0), TopicPartition("out", 0)
OWN = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
TOPICS = {"t": 1, "out": 1}
RECORDS = 10


Body = Callable[[Transaction], Coroutine[Any, Any, None]]


class BodyError(Exception):
    """An error of the program."""


class Program:
    """A loop with one consumer, whose producer another task restarts or closes."""

    def __init__(self, world: World, consumer: Consumer[Any, Any]) -> None:
        self.world, self.consumer = world, consumer
        self.producer = world.producer(transactional_id="tx")

    async def read_beside(self, end: Coroutine[Any, Any, None]) -> list[Any]:
        """Return the records of a poll during which another task has ended the transaction."""
        poll = asyncio.create_task(self.consumer.poll(timeout=30, max_records=4))
        await asyncio.sleep(0.5)
        await end
        fill(self.world, RECORDS)
        records = await poll
        assert records
        return records

    async def write_block(self, read: Coroutine[Any, Any, Any], work: Body) -> None:
        """Read in a transaction, and do the rest of its work."""
        async with self.producer.transaction() as tx:
            tx.add(self.consumer)
            await read
            await work(tx)

    async def copy_all(self) -> None:
        """Copy what the consumer delivers, in transactions of three records."""
        while True:
            async with self.producer.transaction() as tx:
                tx.add(self.consumer)
                records = await self.consumer.poll(timeout=3, max_records=3)
                for record in records:
                    tx.send("out", record.value, partition=0)
            if not records:
                return

    async def check(self) -> None:
        async with self.world.consumer(isolation_level="read_committed") as reader:
            reader.assign([OUT])
            copied = [record.value async for record in reader.until_end()]
        assert copied == [record.value for record in self.world.cluster.records("t")]
        assert self.world.cluster.committed("g")[T0].offset == RECORDS


@contextlib.asynccontextmanager
async def program(world: World, *, records: int = RECORDS) -> AsyncIterator[Program]:
    async with member(world, **OWN) as consumer:
        made = Program(world, consumer)
        await made.producer.start()
        fill(world, records)
        try:
            yield made
        finally:
            await made.producer.close()
        await made.check()


async def leave(_: Transaction) -> None:
    """End the body normally."""


async def fail(_: Transaction) -> None:
    raise BodyError


async def send(tx: Transaction) -> None:
    tx.send("out", b"too late", partition=0)


BODIES: dict[str, tuple[Body, type[Exception]]] = {
    "leave": (leave, TransactionAbortableError),
    "fail": (fail, BodyError),
    "send": (send, IllegalStateError),
}


@pytest.mark.parametrize("body", BODIES)
def test_records_read_after_a_restart_of_another_task_are_delivered_again(body: str) -> None:
    work, expected = BODIES[body]

    async def scenario(world: World) -> None:
        async with program(world, records=0) as it:
            with pytest.raises(expected):
                await it.write_block(it.read_beside(it.producer.restart()), work)
            assert it.producer.last_transaction is not None
            assert it.producer.last_transaction.outcome is TransactionOutcome.ABORTED
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("body", BODIES)
def test_records_read_after_a_close_by_another_task_are_delivered_again(body: str) -> None:
    work, _ = BODIES[body]

    async def scenario(world: World) -> None:
        async with program(world, records=0) as it:
            with pytest.raises((ClosedError, BodyError, IllegalStateError)):
                await it.write_block(it.read_beside(it.producer.close()), work)
            it.producer = world.producer(transactional_id="tx")
            await it.producer.start()
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


def test_an_abort_takes_back_what_was_read_after_a_restart_of_another_task() -> None:
    async def scenario(world: World) -> None:
        async with program(world, records=0) as it:
            await it.producer.begin_transaction()
            tx = it.producer.last_transaction
            assert tx is not None
            tx.add(it.consumer)
            delivery = tx.send("out", b"dropped", partition=0)
            with world.cluster.delay(ApiKey.PRODUCE, 2.0, times=1):
                await it.read_beside(it.producer.restart())
            with pytest.raises(AbortableError):
                await delivery
            await it.producer.abort_transaction()
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


def test_a_consumer_in_a_later_transaction_is_not_taken_back() -> None:
    """Another task restarts the producer, and copies the records itself."""

    async def scenario(world: World) -> None:
        async with program(world) as it:
            with pytest.raises(TransactionAbortableError):
                await it.write_block(it.producer.restart(), lambda _: it.copy_all())
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


def test_records_read_after_an_own_abort_are_kept() -> None:
    async def scenario(world: World) -> None:
        async with program(world) as it:
            async with it.producer.transaction() as tx:
                tx.add(it.consumer)
                await it.consumer.poll(max_records=4)
                await it.producer.abort_transaction()
                kept = await it.consumer.poll(timeout=3, max_records=4)
            await it.producer.begin_transaction()
            tx = it.producer.last_transaction  # type: ignore[assignment]
            tx.add(it.consumer)
            for record in kept:
                tx.send("out", record.value, partition=0)
            await it.producer.commit_transaction()
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


# -- two producers


def test_a_consumer_is_not_in_two_open_transactions() -> None:
    """The second one would commit offsets of records whose results the first one may abort."""

    async def scenario(world: World) -> None:
        async with program(world) as it, world.producer(transactional_id="other") as other:

            async def add_again(_: Transaction) -> None:
                async with other.transaction() as second:
                    with pytest.raises(IllegalStateError, match="another producer"):
                        second.add(it.consumer)
                raise BodyError

            with pytest.raises(BodyError):
                await it.write_block(it.consumer.poll(max_records=4), add_again)
            async with other.transaction() as second:
                second.add(it.consumer)
                for record in await it.consumer.poll(max_records=4):
                    second.send("out", record.value, partition=0)
            await it.copy_all()

    simulate(scenario, topics=TOPICS)


def test_a_consumer_of_an_unknown_commit_can_be_added_once_its_producer_is_closed() -> None:
    async def scenario(world: World) -> None:
        async with program(world) as it, world.producer(transactional_id="other") as other:
            await it.producer.begin_transaction()
            tx = it.producer.last_transaction
            assert tx is not None
            tx.add(it.consumer)
            for record in await it.consumer.poll(max_records=4):
                tx.send("out", record.value, partition=0)
            with (
                world.cluster.drop(ApiKey.END_TXN, when="after"),
                pytest.raises(TransactionAbortableError),
            ):
                await it.producer.commit_transaction(timeout=1)
            async with other.transaction() as second:
                with pytest.raises(IllegalStateError, match="restart or close its producer"):
                    second.add(it.consumer)
            await it.producer.close()
            it.producer = other
            await it.copy_all()

    simulate(scenario, topics=TOPICS)
