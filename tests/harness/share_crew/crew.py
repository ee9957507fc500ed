"""A share group under test: processes with its members, the faults, and the checks at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from churn import Nursery, java
from churn.events import Event, parsed

from aiokclient import Admin, Consumer, Producer, TopicPartition
from aiokclient.admin import ConfigResource
from aiokclient.errors import KafkaError

from .audit import Place, ShareAudit
from .member import WAYS
from .site import LeaderWatch, Site

PARTITIONS = 3
FATES = {"accept": 70, "flaky": 15, "poison": 4, "reject": 6, "garbage": 5}
"""The fates of records, with their shares."""
ACTIONS = {
    "join": 4,
    "leave": 2,
    "kill": 4,
    "suspend": 3,
    "cancel": 2,
    "cancel_handlers": 2,
    "stall": 1,
    "move": 4,
    "kill_broker": 2,
    "pause_broker": 1,
}
PATIENCE_S = 200.0


@dataclass(eq=False)
class Crewed:
    """A process with members."""

    name: str
    kind: str
    members: list[str]
    pid: int
    channel: socket.socket
    child: subprocess.Popen[bytes] | None = None
    listener: asyncio.Task[None] | None = None
    live: set[str] = field(default_factory=set)

    def order(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.channel.send(text.encode() + b"\n")

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Crew:
    """A share group whose members come, go, are killed, and suspended, as the seed says.

    The seed determines what is done to what, and not the timing of real processes. `most` is the
    largest number of members. If the brokers are older than Kafka 4.4, there are no dead letters,
    and they have the limit of deliveries.
    """

    def __init__(
        self,
        site: Site,
        nursery: Nursery,
        seed: int,
        *,
        most: int = 20,
        lock_s: float = 3.0,
        limit: int = 10,
        foreign: tuple[str, ...] = (),
        is_older: bool = False,
    ) -> None:
        self.site, self.nursery, self.seed = site, nursery, seed
        self.most, self.lock_s, self.limit = most, lock_s, limit
        self.foreign = foreign
        self.rng, self._writing_rng = random.Random(seed), random.Random(seed + 1)
        self.fates: dict[Place, str] = {}
        self.events: list[Event] = []
        self.processes: dict[str, Crewed] = {}
        self.done: list[str] = []
        self._made = 0
        self._is_older = is_older
        self._changed = asyncio.Event()
        self._options: dict[str, Any] = {
            "bootstrap_servers": site.bootstrap,
            "request_timeout_ms": 4000,
        }

    async def __aenter__(self) -> Self:
        self.topic = await asyncio.to_thread(self.site.kafka.create_topic, None, PARTITIONS, 3)
        self.group, self.dead = f"crew-{self.topic}", f"dlq.{self.topic}"
        self.watch = LeaderWatch(self.site, self.topic)
        await asyncio.to_thread(self.watch.look)
        self._producer = Producer[Any, Any](**self._options, batch_size=400, linger_ms=5)
        await self._producer.start()
        self._watching = asyncio.create_task(self.watch.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in list(self.processes.values()):
            await self.kill(process)
        self._watching.cancel()
        results = await asyncio.gather(self._watching, return_exceptions=True)
        await self._producer.close()
        if kind is None and isinstance(results[0], Exception):
            raise results[0]

    # -- records

    async def fill(self, count: int, fates: Mapping[str, int] = FATES) -> None:
        """Create the group, and write `count` records with fates of these shares."""
        configs = {"share.record.lock.duration.ms": str(int(self.lock_s * 1000))}
        if not self._is_older:
            configs["share.delivery.count.limit"] = str(self.limit)
            enabled = {"errors.deadletterqueue.group.enable": "true"}
            create = self.site.kafka.create_topic
            await asyncio.to_thread(create, self.dead, 1, 3, enabled)
            configs["errors.deadletterqueue.topic.name"] = self.dead
        async with Admin(**self._options) as admin:
            created = await admin.create_share_group(self.group, [self.topic], start="earliest")
            created.raise_for_errors()
            altered = await admin.alter_configs({ConfigResource.group(self.group): configs})
            altered.raise_for_errors()
        await self.write(count, fates)

    async def write(self, count: int, fates: Mapping[str, int] = FATES) -> None:
        """Write `count` records to each partition, and choose their fates."""
        rng = self._writing_rng
        chosen = rng.choices(list(fates), list(fates.values()), k=count * PARTITIONS)
        sent = [
            self._producer.send(
                self.topic, f"{fate}:{rng.choice((1, 1, 2))}".encode(), partition=at % PARTITIONS
            )
            for at, fate in enumerate(chosen)
        ]
        for fate, each in zip(chosen, await self._producer.gather(sent), strict=True):
            assert each.offset is not None
            self.fates[each.partition, each.offset] = fate

    async def _await_first(self, processes: list[Crewed]) -> None:
        """Write records until handlers of all these processes have begun."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(map(self.find_begun, processes)):
                await self.write(1)
                await asyncio.sleep(0.2)

    async def _write_more(self, count: int) -> None:
        for _ in range(count):
            await self.write(1)
            await asyncio.sleep(self._writing_rng.uniform(0.0, 0.5))

    # -- processes

    def tell(self, who: str, what: str, *data: Any) -> None:
        self.events.append(Event(time.monotonic(), who, what, data))
        self._changed.set()

    def join(self, kind: str = "", members: int = 0, **chosen: Any) -> Crewed:
        """Start a process of a kind ("ours", "librdkafka", "java"), with members of ours."""
        kind = kind or self.rng.choice(("ours", *self.foreign))
        self._made += 1
        name = f"p{self._made}"
        if kind == "ours":
            names = [f"{name}.{each}" for each in range(members or self.rng.randint(1, 5))]
            spec = self._choose_spec(names, chosen)
        else:
            names = [name]
            options = {
                "bootstrap.servers": self.site.bootstrap,
                "group.id": self.group,
                "max.poll.records": "10",
            }
            spec = {"kind": kind, "name": name, "topic": self.topic, "options": options}
        if kind == "java":
            spec["options"]["name"] = name
            child, channel = java.start(spec, "ShareMember")
            process = Crewed(name, kind, names, child.pid, channel, child)
        else:
            process = Crewed(name, kind, names, *self.nursery.fork(spec))
        self.tell(name, "joins", kind, len(names))
        process.live = set(names)
        self.processes[name] = process
        process.listener = asyncio.create_task(self._listen(process))
        return process

    def _choose_spec(self, names: list[str], chosen: dict[str, Any]) -> dict[str, Any]:
        rng = self.rng
        members = []
        for name in names:
            options = {
                "max_poll_records": rng.choice((1, 5, 50, 500)),
                "fetch_max_wait_ms": rng.choice((100, 500)),
                "renew_locks": rng.random() < 0.7,
                "share_acquire_mode": rng.choice(("auto", "record_limit", "batch_optimized")),
                **chosen.get("options", {}),
            }
            member: dict[str, Any] = {
                "name": name,
                "how": rng.choice(WAYS),
                "outstanding": rng.choice((1, 3, 10)),
                "seed": rng.random(),
            }
            if rng.random() < 0.6:
                member["choice"] = rng.choice(("reject", "release"))
            members.append({**member, **chosen, "options": options})
        return {
            "kind": "ours",
            "topic": self.topic,
            "lock_s": self.lock_s,
            "members": members,
            "options": {**self._options, "group_id": self.group, "default_api_timeout_ms": 60_000},
        }

    async def _listen(self, process: Crewed) -> None:
        """Record the events of a process until it ends."""
        reader, writer = await asyncio.open_connection(sock=process.channel.dup(), limit=1 << 20)
        with contextlib.suppress(ConnectionError):
            async for text in reader:
                if text.endswith(b"\n"):
                    event = parsed(process.name, text)
                    self.events.append(event)
                    if event.what == "left":
                        process.live.discard(event.data[0])
                    self._changed.set()
        writer.close()
        process.channel.close()
        if process.child is not None:
            await asyncio.to_thread(process.child.wait)

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for a condition, which is checked after each event."""
        async with asyncio.timeout(PATIENCE_S):
            while not check():
                self._changed.clear()
                await self._changed.wait()

    def find_begun(self, process: Crewed) -> set[Place]:
        """Return the records for which handlers of a process have begun."""
        return {e.data[1:3] for e in self.events if (e.who, e.what) == (process.name, "begin")}

    async def kill(self, process: Crewed) -> None:
        self.processes.pop(process.name, None)
        process.signal(signal.SIGKILL)
        assert process.listener is not None
        await asyncio.wait([process.listener])
        self.tell(process.name, "killed")

    async def leave(self, process: Crewed) -> None:
        """Let all members of a process leave."""
        process.order("end")
        assert process.listener is not None
        await asyncio.wait([process.listener], timeout=PATIENCE_S)
        if not process.listener.done():
            process.signal(signal.SIGUSR1)
            await asyncio.sleep(1)  # It prints the stacks of its threads.
            raise AssertionError(f"{process.name} has not ended: {sorted(process.live)}")
        del self.processes[process.name]

    def count_members(self) -> int:
        return sum(len(each.live) for each in self.processes.values())

    def pick(self, kind: str = "") -> Crewed | None:
        found = [each for each in self.processes.values() if kind in ("", each.kind) and each.live]
        return self.rng.choice(found) if found else None

    # -- faults

    async def disturb(self, action: str = "") -> None:
        """Do to the group, or to its brokers, what the seed says, or a certain action."""
        if not action:
            (action,) = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))
        if not any(each.live for each in self.processes.values()):
            action = "join"
        self.done.append(action)
        await getattr(self, f"_{action}")()

    async def _join(self) -> None:
        room = self.most - self.count_members()
        if room > 0:
            self.join(members=min(self.rng.randint(1, 5), room))

    async def _leave(self) -> None:
        process = self.pick()
        assert process is not None
        if process.kind == "ours" and len(process.live) > 1:
            process.order(f"leave {self.rng.choice(sorted(process.live))}")
        else:
            await self.leave(process)

    async def _kill(self) -> None:
        process = self.pick()
        assert process is not None
        await self.kill(process)

    async def _suspend(self) -> None:
        process = self.pick()
        assert process is not None
        self.tell(process.name, "suspends")
        process.signal(signal.SIGSTOP)
        await asyncio.sleep(self.rng.uniform(0.2, 2.0) * self.lock_s)
        self.tell(process.name, "resumes")
        process.signal(signal.SIGCONT)

    async def _cancel(self) -> None:
        self._order("cancel")

    async def _cancel_handlers(self) -> None:
        self._order("cancel_handlers")

    def _order(self, what: str) -> None:
        process = self.pick("ours")
        if process is not None:
            process.order(f"{what} {self.rng.choice(sorted(process.live))}")

    async def _stall(self) -> None:
        process = self.pick("ours")
        if process is not None:
            process.order(f"stall {self.rng.uniform(0.1, 2.0) * self.lock_s:.3f}")

    async def _move(self) -> None:
        partition, to = self.rng.randrange(PARTITIONS), self.rng.choice(self.site.brokers)
        await self.site.move_leader(self.topic, partition, to)

    async def _kill_broker(self) -> None:
        broker = self.rng.choice(self.site.brokers)
        self.tell("brokers", "down", broker, False)
        await asyncio.to_thread(self.site.kill, broker)
        await asyncio.sleep(self.rng.uniform(0.5, 6.0))
        await asyncio.to_thread(self.site.start, broker)
        self.tell("brokers", "up", broker)

    async def _pause_broker(self) -> None:
        broker = self.rng.choice(self.site.brokers)
        self.tell("brokers", "down", broker, True)
        await asyncio.to_thread(self.site.pause, broker)
        await asyncio.sleep(self.rng.uniform(0.5, 6.0))
        await asyncio.to_thread(self.site.resume, broker)
        self.tell("brokers", "up", broker)

    # -- the run

    async def run(self, actions: Iterable[str], more: int = 0, pause_s: float = 2.0) -> ShareAudit:
        """Disturb the group, wait until all records are finished, and check everything.

        An empty name of an action means one that the seed chooses. Meanwhile, `more` records are
        written to each partition.
        """
        while self.count_members() < min(3, self.most):
            self.join("ours", members=1 if self.most < 3 else 2)
        for kind in self.foreign:
            self.join(kind)
        await self._await_first(list(self.processes.values()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_more(more))
            for action in actions:
                await asyncio.sleep(self.rng.uniform(0.1, pause_s))
                await self.disturb(action)
        return await self.end()

    async def end(self) -> ShareAudit:
        """Wait until all records are finished, let all members leave, and check everything."""
        if not any(each.live and each.kind == "ours" for each in self.processes.values()):
            self.join("ours", members=1)
        await self.wait_until_finished()
        await asyncio.gather(*(self.leave(each) for each in list(self.processes.values())))
        await asyncio.to_thread(self.watch.look)
        audit = ShareAudit(self.events, self.watch.changes, self.fates, self.limit)
        audit.check_ends({} if self._is_older else await self.read_dead_letters())
        return audit

    async def wait_until_finished(self) -> None:
        tps = {TopicPartition(self.topic, index) for index in range(PARTITIONS)}
        lags: dict[TopicPartition, int | None] = {}
        deadline = time.monotonic() + PATIENCE_S
        async with Admin(**self._options) as admin:
            while set(lags) != tps or any(lags.values()) or None in lags.values():
                assert time.monotonic() < deadline, f"not finished: {lags}, {self.describe()}"
                await asyncio.sleep(0.3)
                with contextlib.suppress(KafkaError):
                    listed = await admin.list_share_group_offsets([self.group], timeout=5.0)
                    found = listed.raise_for_errors()[self.group]
                    lags = {tp: None if each is None else each.lag for tp, each in found.items()}

    async def read_dead_letters(self) -> dict[Place, list[tuple[str, int]]]:
        """Return why the records in the dead letters are there, and their delivery counts."""
        found: dict[Place, list[tuple[str, int]]] = defaultdict(list)
        options = {**self._options, "auto_offset_reset": "earliest"}
        async with Consumer[Any, Any](self.dead, **options) as consumer:
            async for record in consumer.until_end():
                headers = {
                    name.removeprefix("__dlq.errors."): (value or b"").decode()
                    for name, value in record.headers
                }
                place = int(headers["partition"]), int(headers["offset"])
                found[place].append((headers["message"], int(headers["delivery.count"])))
        return found

    def describe(self) -> str:
        """Return one line with the seed, what was done, and who lives."""
        alive = {each.name: sorted(each.live) for each in self.processes.values()}
        return f"seed {self.seed}: {' '.join(self.done)}; alive: {alive}"
