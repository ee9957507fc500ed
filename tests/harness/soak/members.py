"""The members of the groups, which join, leave, and are replaced during a soak.

The members of two groups process the plain topic, one group with the classic protocol and one with
that of KIP-848. Those of a third group copy it in transactions, exactly once.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from aiokclient import Consumer, Producer, TopicPartition, transform

from .checks import COPIES, PLAIN
from .entries import Assigned, Delivered, Entry, Lost, Processed, Revoked, Trouble
from .workload import CALL_S, FETCH_BYTES, Workload

WAYS = ("iterate", "batches", "poll", "tracked")
LEAVE_S = 60.0
"""Seconds within which a member that was told to leave has left."""
SESSION_MS = 6_000
COPY_S = 0.05
"""Seconds for which records are collected for one transaction."""
GROUP_OPTIONS: dict[str, dict[str, Any]] = {
    "classic": {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
        "auto_commit_interval_ms": 500,
    },
    "kip848": {"group_protocol": "consumer", "auto_commit_interval_ms": 500},
    "transform": {
        "group_protocol": "classic",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    },
}


class Member:
    """One member, which is also the listener of its consumer."""

    def __init__(self, workload: Workload, group: str, name: str, way: str) -> None:
        self.group, self.name, self._way = group, name, way
        self._workload, self._note = workload, workload.note
        options = workload.client_options(
            name,
            group_id=group,
            auto_offset_reset="earliest",
            fetch_max_bytes=FETCH_BYTES,
            max_poll_interval_ms=60_000,
            **GROUP_OPTIONS[group],
        )
        workload.limits[name] = ("consumer.buffer.bytes", 2 * 3 * FETCH_BYTES)
        self._consumer: Consumer[Any, Any] = Consumer(PLAIN, listener=self, **options)
        self.leaving = False
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Read until the member is told to leave, and leave."""
        async with self._workload.opened(self.name, self._consumer):
            self.started.set()
            await getattr(self, self._way)()

    def leave(self) -> None:
        """Let the member leave after the records that it is processing. Synchronous."""
        self.leaving = True
        self._consumer.stop()

    # -- the listener

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        self._note(Assigned(self.group, self.name, tuple(tps)))

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        self._note(Revoked(self.group, self.name, tuple(tps)))

    def on_lost(self, tps: Sequence[TopicPartition]) -> None:
        self._note(Lost(self.group, self.name, tuple(tps)))

    # -- ways to read

    async def iterate(self) -> None:
        async for record in self._consumer:
            self._deliver([record])
            await self._process(record)

    async def batches(self) -> None:
        async for records in self._consumer.batches(max_records=20):
            self._deliver(records)
            for record in records:
                await self._process(record)

    async def poll(self) -> None:
        while not self.leaving:
            call = self._consumer.poll(timeout=2.0, max_records=20)
            records = await self._workload.bounded(f"poll() of {self.name}", 2.0, call)
            self._deliver(records)
            for record in records:
                await self._process(record)

    async def tracked(self) -> None:
        async def handle(record: Any) -> None:
            await self._process(record)
            self._consumer.done(record)

        async with asyncio.TaskGroup() as handlers:
            async for record in self._consumer.tracked(max_outstanding=20):
                self._deliver([record])
                handlers.create_task(handle(record))

    def _deliver(self, records: Sequence[Any]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            self._note(Delivered(self.group, self.name, tp, record.offset))

    async def _process(self, record: Any) -> None:
        # Handlers that take time overlap with rebalances.
        await asyncio.sleep(0.01 if record.offset % 10 == 0 else 0)
        tp = TopicPartition(record.topic, record.partition)
        self._note(Processed(self.group, self.name, tp, record.offset))


class CopyingMember(Member):
    """A member that copies records in transactions, with a transactional id of its own."""

    async def run(self) -> None:
        workload = self._workload
        producer = Producer[Any, Any](
            **workload.client_options(f"{self.name}-out", transactional_id=f"soak-{self.name}")
        )
        async with (
            workload.opened(self.name, self._consumer),
            workload.opened(f"{self.name}-out", producer),
        ):
            self.started.set()
            async with transform(self._consumer, producer, 50, COPY_S) as stream:
                async for batch in stream:
                    for record in batch:
                        batch.send(COPIES, record.value, partition=record.partition)


class Members:
    """All members of all groups."""

    def __init__(self, workload: Workload, note: Callable[[Entry], None]) -> None:
        self._workload, self._note = workload, note
        self._names = itertools.count()
        self._here: dict[Member, asyncio.Task[None]] = {}

    def of(self, group: str) -> list[Member]:
        """Return the members of a group, the oldest one first."""
        return [member for member in self._here if member.group == group and not member.leaving]

    def join(self, group: str, number: int) -> Member:
        """Add a member. The number determines how it reads."""
        name = f"{group}-{next(self._names)}"
        kind = CopyingMember if group == "transform" else Member
        member = kind(self._workload, group, name, WAYS[number % len(WAYS)])
        self._here[member] = self._workload.spawn(name, member.run())
        return member

    async def leave(self, member: Member) -> None:
        """Let a member leave, and wait until it has left."""
        task = self._here[member]
        member.leave()
        done, _ = await asyncio.wait([task], timeout=LEAVE_S)
        if not done:
            self._note(Trouble("D", f"{member.name} has not left within {LEAVE_S:.0f} s."))
            task.cancel()
            await asyncio.wait([task])
        del self._here[member]

    async def started(self) -> None:
        """Wait until all members have started."""
        async with asyncio.timeout(2 * CALL_S):
            for member in list(self._here):
                await member.started.wait()

    async def leave_all(self) -> None:
        await asyncio.gather(*(self.leave(member) for member in list(self._here)))
