"""A member that uses this library's consumer, in this process or in a separate one."""

import asyncio
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import KafkaError

from .events import now

WAYS = ("iterate", "batches", "poll", "tracked")
"""The ways to read."""


class OurMember:
    """A member that reads until the command to leave arrives, and reports its events.

    After `hold`, it keeps the next record in progress until `go`, and then commits only that
    record.
    """

    def __init__(self, spec: Mapping[str, Any], tell: Callable[..., None]) -> None:
        self.tell, self.rng, self.work_s = tell, random.Random(spec["seed"]), spec["work"]
        self.topic: str = spec["topic"]
        self.how: str = spec["how"]
        self.leaving = False
        self.holding = False
        self.go = asyncio.Event()
        self.consumer: Consumer[Any, Any] = Consumer(self.topic, listener=self, **spec["options"])

    async def run(self) -> None:
        """Run the member from start to end."""
        try:
            async with self.consumer:
                self.tell("started")
                await self.read()
        except asyncio.CancelledError:
            self.tell("left")
            raise
        except Exception:
            self.tell("failed", traceback.format_exc())
        else:
            self.tell("left")

    async def read(self) -> None:
        try:
            await getattr(self, self.how)()
        except BaseException:
            self.tell("dropped")
            raise

    def order(self, what: str) -> None:
        """Execute a command of the test: leave, hold, or go."""
        if what == "leave":
            self.leaving = True
            self.consumer.stop()
        elif what == "hold":
            self.holding = True
        else:
            self.go.set()

    # -- the listener

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        self.tell("assigned", numbers(tps), self.consumer.group_metadata().generation_id)

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        self.tell("revoked", numbers(tps))

    def on_lost(self, tps: Sequence[TopicPartition]) -> None:
        self.tell("lost", numbers(tps))

    # -- ways to read

    async def iterate(self) -> None:
        asked = now()
        async for record in self.consumer:
            await self.take([record], asked)
            asked = now()

    async def batches(self) -> None:
        asked = now()
        async for records in self.consumer.batches(max_records=20):
            await self.take(records, asked)
            asked = now()

    async def poll(self) -> None:
        while not self.leaving:
            asked = now()
            await self.take(await self.consumer.poll(timeout=5.0, max_records=20), asked)

    async def tracked(self) -> None:
        async def handle(record: Any) -> None:
            await self.work(record)
            self.consumer.done(record)

        asked = now()
        async with asyncio.TaskGroup() as handlers:
            async for record in self.consumer.tracked(max_outstanding=20):
                self.report_delivered(asked, [record])
                handlers.create_task(handle(record))
                asked = now()

    # -- processing of records

    def report_delivered(self, asked: float, records: Sequence[Any]) -> None:
        self.tell("delivered", asked, [(record.partition, record.offset) for record in records])

    async def take(self, records: Sequence[Any], asked: float) -> None:
        if records:
            self.report_delivered(asked, records)
        for record in records:
            await self.work(record)

    async def work(self, record: Any) -> None:
        held, self.holding = self.holding, False
        if held:
            self.tell("holding", record.partition, record.offset)
            await self.go.wait()
            self.go.clear()
        elif self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.uniform(0, 2 * self.work_s))
        self.tell("done", record.partition, record.offset)
        # With `tracked`, handlers run concurrently, so only the consumer commits offsets.
        if held or (self.how != "tracked" and self.rng.random() < 0.02):
            await self.commit(record)

    async def commit(self, record: Any) -> None:
        asked, error = now(), None
        try:
            await self.consumer.commit(record)
        except KafkaError as failure:
            error = failure.name or type(failure).__name__
        self.tell("commit", asked, record.partition, record.offset + 1, error)


def numbers(tps: Sequence[TopicPartition]) -> list[int]:
    return sorted(tp.partition for tp in tps)
