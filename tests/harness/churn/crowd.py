"""A group under test: its members, its records, and its committed offsets."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiokclient import Admin, Consumer, Producer, ProducerRecord, TopicPartition

from . import java
from .audit import Audit
from .events import Log, parsed
from .nursery import Nursery
from .ours import WAYS, OurMember
from .report import details, summary

OURS = ("process", "task")
HEARTBEAT_MS = 200
PATIENCE_S = 40.0
SAMPLE_S = 0.05
WRITE_S = 0.02


@dataclass
class Settings:
    """The common settings of the members of a group.

    `options` apply to all members. `foreign` has additional options for members that use another
    client, by the kind of the client.
    """

    bootstrap: str
    topic: str
    partitions: int
    group_id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    foreign: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    session_ms: int = 1200
    rate: int = 500
    work_s: float = 0.001

    def of(self, kind: str) -> dict[str, Any]:
        """Return the options of a member of this kind.

        For other clients, names have dots in place of "_".
        """
        given = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group_id,
            "session_timeout_ms": self.session_ms,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": 20_000,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 100,
            **self.options,
            **self.foreign.get(kind, {}),
        }
        if given.get("group_protocol") == "consumer":
            # With this protocol, the broker or the group's config determines them.
            del given["session_timeout_ms"], given["heartbeat_interval_ms"]
        if kind in OURS:
            return given
        return {name.replace("_", "."): value for name, value in given.items()}


@dataclass
class Process:
    """A member in another process."""

    pid: int
    channel: socket.socket
    child: "subprocess.Popen[bytes] | None" = None

    def order(self, what: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.send(what.encode() + b"\n")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        self.channel.close()
        if self.child is not None:
            self.child.wait(10)


class Crowd:
    """A group whose members join and leave within `async with Crowd(...) as crowd`.

    All members have ended at the end of the block. Then the events are printed under the title.
    """

    def __init__(
        self, title: str, settings: Settings, nursery: Nursery | None = None, seed: int = 0
    ) -> None:
        self.title = title
        self.settings, self.nursery = settings, nursery
        self.rng = random.Random(seed)
        self.log = Log()
        self.live: dict[str, Process | OurMember] = {}
        self.instances: dict[str, str] = {}
        self.suspended: set[str] = set()
        self.sent = 0
        self._made = 0
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._work: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        options = {"bootstrap_servers": self.settings.bootstrap}
        self._producer = await self._stack.enter_async_context(Producer[Any, Any](**options))
        self._eye = await self._stack.enter_async_context(
            Consumer[Any, Any](group_id=self.settings.group_id, **options)
        )
        self._work = [asyncio.create_task(self._sample()), asyncio.create_task(self._write())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        audit = self.audit()
        print(f"\n{summary(self.title, audit)}\n{details(audit)}")  # noqa: T201
        for task in self._work:
            task.cancel()
        for name in list(self.live):
            await self.kill(name)
        results = await asyncio.gather(*self._work, return_exceptions=True)
        await self._stack.aclose()
        broken = [each for each in results if isinstance(each, Exception)]
        if kind is None and broken:
            raise broken[0]

    # -- joining and leaving

    def join(
        self,
        kind: str = "process",
        how: str | None = None,
        instance: str | None = None,
        make: Callable[..., OurMember] = OurMember,
        **options: Any,
    ) -> str:
        """Add a member of a kind: "process" or "task" of this library, "librdkafka", or "java"."""
        self._made += 1
        name = f"m{self._made}"
        spec: dict[str, Any] = {
            "kind": kind,
            "topic": self.settings.topic,
            "how": how or self.rng.choice(WAYS),
            "seed": self.rng.random(),
            "work": self.settings.work_s,
        }
        ours = kind in OURS
        spec["options"] = self.settings.of(kind) | options
        if instance is not None:
            self.instances[name] = instance
            key = "group_instance_id" if ours else "group.instance.id"
            spec["options"][key] = instance
        self.log.tell(name, "joins", kind, spec["how"] if ours else "", instance or "")
        self.live[name], life = self._begin(name, spec, make)
        self._lives[name] = asyncio.create_task(life)
        return name

    def _begin(
        self, name: str, spec: Mapping[str, Any], make: Callable[..., OurMember]
    ) -> tuple[Process | OurMember, Any]:
        if spec["kind"] == "task":
            member = make(spec, lambda *data: self.log.tell(name, *data))
            return member, member.run()
        if spec["kind"] == "java":
            child, channel = java.start(spec)
            process = Process(child.pid, channel, child)
        else:
            assert self.nursery is not None
            process = Process(*self.nursery.fork(spec))
        return process, self._listen(name, process)

    async def _listen(self, name: str, process: Process) -> None:
        """Record the events of a member until its process ends."""
        reader, writer = await asyncio.open_connection(sock=process.channel.dup())
        with contextlib.suppress(ConnectionError):
            async for text in reader:
                if text.endswith(b"\n"):
                    self.log.add(parsed(name, text))
        writer.close()
        await asyncio.to_thread(process.close)

    def order(self, name: str, what: str) -> None:
        self.live[name].order(what)

    async def leave(self, name: str) -> None:
        """Let a member leave in the normal way."""
        await self.until(lambda: self.log.of(name, "started"))
        self.log.tell("", "leaves", name)
        self.order(name, "leave")
        await asyncio.wait_for(asyncio.shield(self._lives.pop(name)), PATIENCE_S)
        del self.live[name]
        self.expect(self.log.of(name, "left"), f"{name} has not left")

    async def kill(self, name: str) -> None:
        """Kill a member's process, so that it cannot leave. Cancel a member that is a task."""
        member, life = self.live.pop(name), self._lives.pop(name)
        self.suspended.discard(name)
        if not isinstance(member, Process):
            self.log.tell("", "cancels", name)
            life.cancel()
            await asyncio.wait([life])
            return
        with contextlib.suppress(ProcessLookupError):
            member.signal(signal.SIGKILL)
        await asyncio.wait([life])
        self.log.tell(name, "killed")

    def suspend(self, name: str) -> None:
        member = self.live[name]
        assert isinstance(member, Process)
        member.signal(signal.SIGSTOP)
        self.suspended.add(name)
        self.log.tell("", "suspends", name)

    def resume(self, name: str) -> None:
        member = self.live[name]
        assert isinstance(member, Process)
        self.log.tell("", "resumes", name)
        self.suspended.discard(name)
        member.signal(signal.SIGCONT)

    # -- waiting

    def expect(self, right: object, text: str) -> None:
        if not right:
            raise AssertionError(text)

    async def until(self, right: Callable[[], object]) -> None:
        """Wait for a condition. Raises if a member failed or nothing changes for too long."""

        def looked() -> bool:
            for event in self.log.failures:
                self.expect(False, f"{event.who} has failed: {event.data[0]}")
            return bool(right())

        await self.log.until(looked, PATIENCE_S)

    async def progress(self, count: int) -> None:
        """Wait until `count` more records are processed."""
        least = self.log.count + count
        await self.until(lambda: self.log.count >= least)

    def owned(self, names: Iterable[str]) -> list[int]:
        return sorted(each for name in names for each in self.log.owned.get(name, ()))

    async def settled(self) -> None:
        """Wait until all partitions are assigned to running members, as evenly as possible."""
        await self.until(self.is_settled)

    def is_settled(self) -> bool:
        names = [name for name in self.live if name not in self.suspended]
        sizes = [len(self.log.owned.get(name, ())) for name in names]
        partitions = self.settings.partitions
        return self.owned(names) == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    async def check_owned(self) -> None:
        """Check that each partition has one owner, by the coordinator's view and the members'."""
        if not set(self.live) - self.suspended:
            return
        wanted, assigned = list(range(self.settings.partitions)), [-1]
        async with Admin(bootstrap_servers=self.settings.bootstrap) as admin:
            deadline = asyncio.get_running_loop().time() + PATIENCE_S
            while self.owned(self.live) != wanted or assigned != wanted:
                late = asyncio.get_running_loop().time() > deadline
                self.expect(not late, f"owned: {self.owned(self.live)}, assigned: {assigned}")
                await asyncio.sleep(SAMPLE_S)
                group_id = self.settings.group_id
                group = (await admin.describe_groups([group_id]))[group_id]
                assigned = sorted(tp.partition for each in group.members for tp in each.partitions)

    async def drained(self) -> None:
        """Stop writing, and wait until all records are processed and committed."""
        self._work[1].cancel()
        await asyncio.wait([self._work[1]])
        await self._producer.flush()
        tps = self.tps
        ends = {tp.partition: end for tp, end in (await self._eye.end_offsets(tps)).items()}
        wanted = {partition: end for partition, end in ends.items() if end}
        await self.until(lambda: self.log.committed == wanted)
        # Reports that members sent before the commit may still be in transit.
        await self.until(lambda: {p: len(found) for p, found in self.log.done.items()} == wanted)

    async def end(self) -> Audit:
        """Wait until all records are read, let all members leave, and return the checks."""
        await self.drained()
        await self.check_owned()
        await asyncio.gather(*(self.leave(name) for name in list(self.live)))
        await self.look()
        return self.audit()

    def audit(self) -> Audit:
        return Audit(self.log, self.settings.topic)

    # -- background tasks

    @property
    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(self.settings.topic, n) for n in range(self.settings.partitions)]

    async def look(self) -> None:
        """Record the committed offsets."""
        stored = await self._eye.committed(self.tps)
        offsets = {tp.partition: at.offset for tp, at in stored.items() if at is not None}
        self.log.tell("", "sample", offsets)

    async def _sample(self) -> None:
        await self._now_and_then(self.look, SAMPLE_S)

    async def _write(self) -> None:
        """Write records at the configured rate. Pause while too many of them are not processed."""
        await self._now_and_then(self._write_some, WRITE_S)

    async def _write_some(self) -> None:
        if self.sent - self.log.count > self.settings.rate:
            return
        partitions, topic = self.settings.partitions, self.settings.topic
        for _ in range(round(self.settings.rate * WRITE_S)):
            number = self.sent = self.sent + 1
            record = ProducerRecord(topic, b"%d" % number, partition=number % partitions)
            self._producer.send_many(topic, [record])

    async def _now_and_then(self, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            await step()
            await asyncio.sleep(seconds)
