"""Clients of a real cluster that work in the background and record their results.

An idempotent producer writes the payloads of a ledger, and three consumers read them: one in a
classic group, one in a KIP-848 group, and one by assignment. A transactional producer writes to a
topic of its own.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from driver import Writer, partitions_of
from ledger import Ledger, Payload, unpack

from aiokclient import Consumer, Producer, TopicPartition, TransactionOutcome
from aiokclient.errors import AbortableError, ApplicationRecoverableError
from aiokclient.network.transport import Address, TcpConnector

NAME = "kafka.test"
PARTITIONS = 3
PATIENCE_S = 240.0


class Names(TcpConnector):
    """A connector for which one name leads to the addresses that the test sets."""

    def __init__(self, addresses: list[Address]) -> None:
        super().__init__()
        self.addresses = addresses

    async def resolve(self, host: str, port: int) -> list[Address]:
        if host == NAME:
            return list(self.addresses)
        return await super().resolve(host, port)


class Reader:
    """A consumer that reads in the background, and the records that it has read."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self.consumer = consumer
        self.records: list[Any] = []
        self.payloads: set[Payload] = set()
        self._more = asyncio.Event()

    async def run(self) -> None:
        async for record in self.consumer:
            self.records.append(record)
            self.payloads.add(unpack(bytes(record.value or b"")))
            self._more.set()

    def of(self, partition: int) -> list[Any]:
        """Return the records of a partition in the order in which they were read."""
        return [each for each in self.records if each.partition == partition]

    async def until(self, right: Callable[[], object]) -> None:
        """Wait for a condition, which is checked after each record."""
        async with asyncio.timeout(PATIENCE_S):
            while not right():
                self._more.clear()
                await self._more.wait()


class Transactions:
    """The transactions of a producer, each with one record for each partition of a topic."""

    def __init__(self, producer: Producer[Any, Any], topic: str) -> None:
        self.producer, self.topic = producer, topic
        self.all: list[Any] = []
        self.stopped = False
        self.ended = asyncio.Event()

    async def run(self) -> None:
        while not self.stopped:
            await self._attempt()
            self.ended.set()

    async def _attempt(self) -> None:
        transaction = self.producer.transaction()
        value = b"%d" % len(self.all)
        self.all.append(transaction)
        try:
            async with transaction:
                for partition in range(PARTITIONS):
                    transaction.send(self.topic, value, partition=partition)
                    await asyncio.sleep(0.01)
        except AbortableError:
            await asyncio.sleep(0.1)
        except ApplicationRecoverableError:
            await self._restart()

    async def _restart(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.producer.restart()
                except (AbortableError, ApplicationRecoverableError):
                    await asyncio.sleep(0.2)

    @property
    def committed(self) -> int:
        outcomes = [each.outcome for each in self.all]
        return outcomes.count(TransactionOutcome.COMMITTED)

    async def until(self, count: int) -> None:
        """Wait until this many transactions are committed."""
        async with asyncio.timeout(PATIENCE_S):
            while self.committed < count:
                self.ended.clear()
                await self.ended.wait()

    def check(self, found: list[Any]) -> None:
        """Check that the committed records agree with the outcome of each transaction."""
        counts = Counter((int(each.value), each.partition) for each in found)
        for number, transaction in enumerate(self.all):
            times = [counts.pop((number, partition), 0) for partition in range(PARTITIONS)]
            whole, absent = [1] * PARTITIONS, [0] * PARTITIONS
            allowed = {
                TransactionOutcome.COMMITTED: [whole],
                TransactionOutcome.ABORTED: [absent],
                TransactionOutcome.UNKNOWN: [whole, absent],
                None: [absent],  # The transaction did not begin.
            }
            assert times in allowed[transaction.outcome], (number, transaction.outcome, times)
        assert not counts


GROUPS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 500},
    "KIP-848": {"group_protocol": "consumer"},
}


class AtWork:
    """The clients.

    They write the payloads of the ledger to `topic`, and transactions to `tx_topic`.
    """

    def __init__(self, topic: str, tx_topic: str, options: Mapping[str, Any]) -> None:
        self.topic, self.tx_topic, self.options = topic, tx_topic, options
        self.ledger = Ledger()
        self.groups = {kind: f"g-{uuid.uuid4().hex[:8]}" for kind in GROUPS}
        self.transactional_id = f"x-{uuid.uuid4().hex[:8]}"
        self.readers: dict[str, Reader] = {}
        self.clients: dict[str, Any] = {}
        self._writing: list[asyncio.Task[None]] = []

    async def _open(self, stack: AsyncExitStack) -> None:
        name = self.transactional_id
        patient: dict[str, Any] = {"delivery_timeout_ms": int(PATIENCE_S * 1000)}
        self.clients["producer"] = Producer(**self.options, **patient, linger_ms=1)
        self.clients["transactional producer"] = Producer(**self.options, transactional_id=name)
        reading = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200, **self.options}
        for kind, more in GROUPS.items():
            consumer = Consumer[Any, Any](
                self.topic, group_id=self.groups[kind], **{**reading, **more}
            )
            self.clients[kind] = consumer
        self.clients["assigned"] = Consumer[Any, Any](**reading)
        for client in self.clients.values():
            await stack.enter_async_context(client)
        self.clients["assigned"].assign(self.tps())
        self.readers = {kind: Reader(self.clients[kind]) for kind in (*GROUPS, "assigned")}
        wanted = partitions_of({self.topic: PARTITIONS})
        self.writer = Writer(self.clients["producer"], self.ledger, wanted, pause=0.005)
        self.transactions = Transactions(self.clients["transactional producer"], self.tx_topic)

    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(*each) for each in partitions_of({self.topic: PARTITIONS})]

    async def stop_writing(self) -> None:
        """Stop both producers, and wait for the outcomes of all sent records."""
        self.writer.stopped = self.transactions.stopped = True
        await asyncio.gather(*self._writing)
        await self.clients["producer"].flush()

    async def progress(self, count: int = 150) -> None:
        """Wait until each client has done more of its work."""
        async with asyncio.timeout(PATIENCE_S):
            await self.ledger.until(len(self.ledger.acknowledged) + count)
            await self.transactions.until(self.transactions.committed + 5)
        for reader in self.readers.values():
            await reader.until(partial(_has_read, reader, len(reader.records) + count // 2))

    async def read_all(self) -> None:
        """Wait until each consumer has read all payloads that were acknowledged."""
        await self.read({*self.ledger.acknowledged})

    async def read(self, payloads: set[Payload]) -> None:
        """Wait until each consumer has read these payloads."""
        for reader in self.readers.values():
            await reader.until(partial(payloads.issubset, reader.payloads))


def _has_read(reader: Reader, count: int) -> bool:
    return len(reader.records) >= count


@asynccontextmanager
async def at_work(topic: str, tx_topic: str, **options: Any) -> AsyncIterator[AtWork]:
    """Open the clients, and let them work within the block.

    If a client fails, the block is cancelled.
    """
    work = AtWork(topic, tx_topic, options)
    async with AsyncExitStack() as stack:
        await work._open(stack)
        async with asyncio.TaskGroup() as group:
            run = group.create_task
            work._writing = [run(work.writer.run()), run(work.transactions.run())]
            for reader in work.readers.values():
                run(reader.run())
            yield work
            await work.stop_writing()
            for reader in work.readers.values():
                reader.consumer.stop()


async def read_log(bootstrap: str, topic: str, **options: Any) -> dict[int, list[Any]]:
    """Return the records of a topic, by partition."""
    async with Consumer[Any, Any](
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options
    ) as consumer:
        consumer.assign([TopicPartition(*each) for each in partitions_of({topic: PARTITIONS})])
        found: dict[int, list[Any]] = {partition: [] for partition in range(PARTITIONS)}
        async for record in consumer.until_end():
            found[record.partition].append(record)
    return found
