"""Handlers of a share group in a simulation, and what must hold for them in spite of faults.

Each record is accepted at least once. No two handlers hold a record that both may believe to be
locked for them: the lock of the earlier one was lost, or its deadline has passed. A record whose
acceptance was confirmed is not delivered again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

from world import World

from aiokclient import Admin, ShareConsumer, State
from aiokclient.admin import ConfigResource
from aiokclient.background import Wakeup
from aiokclient.errors import AcknowledgeError, ApiTimeoutError, KafkaError, LockLostError

GROUP = "g"
Key = tuple[str, int, int]


def key_of(record: Any) -> Key:
    return record.topic, record.partition, record.offset


class ShareWork:
    """A share group of one topic "t", its consumers, and their handlers."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.options = {"request_timeout_ms": 4000, "default_api_timeout_ms": 8000, **options}
        self.delivered: list[Any] = []
        self.accepted: set[Key] = set()
        self.confirmed: set[Key] = set()
        self.errors: list[KafkaError] = []
        self.moved_at = -math.inf
        """The time at which a leader was moved last."""
        self.held: dict[Key, Any] = {}
        self._progress = Wakeup()
        self._consumers: list[ShareConsumer[Any, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def create_group(self, *, lock_ms: int = 15_000, **others: str) -> None:
        """Create the group. Each `_` in the names of other configurations stands for a dot."""
        resource = ConfigResource.group(GROUP)
        configs = {"share.record.lock.duration.ms": str(lock_ms)}
        configs.update((name.replace("_", "."), value) for name, value in others.items())
        async with Admin(**self.world.options()) as admin:
            await admin.create_share_group(GROUP, ["t"], start="earliest")
            (await admin.alter_configs({resource: configs})).raise_for_errors()

    def new_consumer(self, **options: Any) -> ShareConsumer[Any, Any]:
        """Return a new consumer of the group, whose losses and refusals are collected."""
        consumer: ShareConsumer[Any, Any] = ShareConsumer(
            "t",
            group_id=GROUP,
            on_acknowledge_error=self.errors.append,
            **self.world.options(**{**self.options, **options}),
        )
        self._consumers.append(consumer)
        return consumer

    async def start(self, members: int, *, handle_s: float = 0.05, outstanding: int = 5) -> None:
        """Start members, whose handlers take a while for each record."""
        for _ in range(members):
            consumer = self.new_consumer()
            await consumer.start()
            work = self._run(consumer, handle_s, outstanding)
            task = asyncio.create_task(work)
            task.add_done_callback(lambda _: self._progress.set())
            self._tasks.append(task)

    async def _run(
        self, consumer: ShareConsumer[Any, Any], handle_s: float, outstanding: int
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for record in consumer.tracked(outstanding):
                tasks.create_task(self.handle(consumer, record, handle_s))

    async def handle(self, consumer: ShareConsumer[Any, Any], record: Any, seconds: float) -> None:
        """Handle a record, and check that no other handler holds it."""
        self.take(record)
        ended = False
        async with consumer.processing(record, on_lost="return"):
            await asyncio.sleep(seconds)
            ended = True
        self.drop(record)
        if not ended or record.lock_lost:
            return
        self.accepted.add(key_of(record))
        self._progress.set()
        with contextlib.suppress(ApiTimeoutError):  # After the process was suspended.
            outcomes = await consumer.commit(record, 60.0, return_exceptions=True)
            if outcomes[record] is None:
                self.confirmed.add(key_of(record))

    def take(self, record: Any) -> None:
        """Check that the record is held by nobody else, and not finished."""
        key = key_of(record)
        other = self.held.get(key)
        # A leader move ends locks, and a member learns of it within a second.
        if self.world.now > self.moved_at + 1.0:
            assert key not in self.confirmed, f"{key} was delivered again after a confirmation"
            assert other is None or other.lock_lost or other.lock_deadline <= self.world.now, (
                f"{key} is held twice"
            )
        self.held[key] = record
        self.delivered.append(record)

    def drop(self, record: Any) -> None:
        """Record that a handler holds the record no longer."""
        if self.held.get(key_of(record)) is record:
            del self.held[key_of(record)]

    async def wait_for(self, count: int, *, seconds: float) -> None:
        """Wait until this number of records was accepted."""
        async with asyncio.timeout(seconds):
            while len(self.accepted) < count:
                await self._progress.wait()
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def wait_until_done(self, count: int, *, seconds: float) -> None:
        """Wait until this number of records was accepted, and the group has no lag."""
        async with asyncio.timeout(seconds):
            await self.wait_for(count, seconds=seconds)
            for _ in range(1000):
                if await self.is_finished():
                    break
                await asyncio.sleep(0.5)

    async def is_finished(self) -> bool:
        """Return whether the brokers have no unfinished records of the group."""
        try:
            lags = await self._consumers[0].lag(2.0)
        except KafkaError:
            return False
        return set(lags.values()) == {0}

    async def close(self) -> None:
        """Stop all members, and check that they were running and that losses are truthful."""
        for consumer in self._consumers:
            assert consumer.state is not State.FAILED, consumer.health()
            consumer.stop()
        for task in self._tasks:
            await task
        for consumer in self._consumers:
            await consumer.close()
        for error in self.errors:
            assert isinstance(error, LockLostError | AcknowledgeError), error
