"""Transactions of one producer in the simulation, and the records that readers must see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import GroupMetadata, Producer, TopicPartition, TransactionOutcome
from aiokclient.clock import SystemClock
from aiokclient.errors import AbortableError, ApplicationRecoverableError
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
OPTIONS: dict[str, Any] = {"transactional_id": "t-1", "linger_ms": 0, "retry_backoff_ms": 20}
PARTITIONS = range(3)
TOPICS = {"t": len(PARTITIONS)}
SLOW = Weather(latency_s=(0.005, 0.02))
MEMBER = GroupMetadata("g")
OFFSET = TopicPartition("in", 0)


class SetClock(SystemClock):
    """A clock with the monotonic time that a test sets."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now

    def monotonic(self) -> float:
        return self.now


class Run:
    """Transactions of one producer, with the values of those that were committed."""

    def __init__(self, world: World, producer: Producer[Any, Any]) -> None:
        self.world, self.producer = world, producer
        self.expected: dict[int, list[bytes]] = {partition: [] for partition in PARTITIONS}
        self.offset: int | None = None
        self.errors: list[Exception] = []
        self._number = 0

    async def transaction(
        self, within: Callable[[], object] = lambda: None, *, offsets: bool = False
    ) -> TransactionOutcome:
        """Run a transaction of several batches. Call `within` when about half of it is written."""
        self._number += 1
        values = [b"%d-%d" % (self._number, index) for index in range(30)]
        tx = self.producer.transaction()
        try:
            async with tx:
                for index, value in enumerate(values):
                    tx.send("t", value, partition=index % len(PARTITIONS))
                    if index == 15:
                        await self.producer.flush()
                        within()
                    if index % 6 == 0:
                        await asyncio.sleep(0.005)
                if offsets:
                    await tx.send_offsets({OFFSET: self._number}, MEMBER)
        except AbortableError as error:
            self.errors.append(error)
        except ApplicationRecoverableError as error:
            self.errors.append(error)
            await self.producer.restart()
        assert tx.outcome in (COMMITTED, ABORTED), repr(self.errors)
        if tx.outcome is COMMITTED:
            for index, value in enumerate(values):
                self.expected[index % len(PARTITIONS)].append(value)
            self.offset = self._number if offsets else self.offset
        return tx.outcome

    async def check(self) -> None:
        """Check that readers see the committed transactions, once and in order."""
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with self.world.consumer(isolation_level="read_committed", **options) as consumer:
            tps = [TopicPartition("t", partition) for partition in PARTITIONS]
            stored = (await consumer.committed([OFFSET]))[OFFSET]
            consumer.assign(tps)
            consumer.seek_to_beginning(tps)
            records = [record async for record in consumer.until_end()]
        seen: dict[int, list[bytes]] = {partition: [] for partition in PARTITIONS}
        for record in records:
            assert record.value is not None
            seen[record.partition].append(record.value)
        assert seen == self.expected
        assert (None if stored is None else stored.offset) == self.offset


def run(scenario: Callable[[World], Any], level: int, **options: Any) -> None:
    simulate(
        scenario,
        topics={**TOPICS, "in": 1},
        transaction_version=level,
        weather=SLOW,
        **options,
    )


levels = pytest.mark.parametrize("level", [0, 2])
