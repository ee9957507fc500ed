"""A consumer group whose members are child processes.

Each member reports for each record when it was sent and when it was received, on the monotonic
clock that all processes of a machine share. A `Trail` stores these reports, and so knows which
member reads which partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from measuring.spec import Spec
from measuring.subject import Subject

SESSION_MS, HEARTBEAT_MS, COMMIT_MS = 3_000, 500, 1_000
TICK_S = 0.05
"""Seconds between two records for the same partition."""
PROMPT_NS = 100_000_000
"""The longest wait of a record, in nanoseconds, that does not count as an interruption."""
LATEST = 20
"""Number of records of each partition that must come from one member before a group counts as
settled."""
LIMIT_S = 60.0
STEP_S = 0.05


class NotSettledError(Exception):
    """The group did not reach the expected state in time. The message has a member's output."""


class Arrival(NamedTuple):
    """A record that a member received. Times are in nanoseconds."""

    member: int
    partition: int
    offset: int
    sent: int
    at: int


class Ticker:
    """A context manager that sends the current time to each partition, in a thread.

    It does this every TICK_S seconds. It uses aiokclient, which sends to all partitions in one
    request.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        from aiokclient import Producer, ProducerRecord

        async with Producer(bootstrap_servers=self._bootstrap, linger_ms=0) as producer:
            while not self._ended.is_set():
                now = b"%d" % time.monotonic_ns()
                records = [
                    ProducerRecord(self._topic, now, partition=partition)
                    for partition in range(self._partitions)
                ]
                await producer.gather(producer.send_many(self._topic, records))
                await asyncio.sleep(TICK_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Trail:
    """The reports of all members of a group, in the order in which they were received."""

    def __init__(self, partitions: int) -> None:
        self.arrivals: list[Arrival] = []
        self._latest = [deque[Arrival](maxlen=LATEST) for _ in range(partitions)]

    def add(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        self._latest[arrival.partition].append(arrival)

    def owners(self) -> dict[int, int]:
        """Return the member that last read each partition."""
        return {partition: latest[-1].member for partition, latest in enumerate(self._latest)}

    def is_shared(self, members: Sequence[int], start: int) -> bool:
        """Return whether these members have read all partitions since `start`, evenly divided."""
        for latest in map(list, self._latest):
            if len(latest) < LATEST or min(arrival.sent for arrival in latest) < start:
                return False
            if len({arrival.member for arrival in latest}) > 1:
                return False
        shares = Counter(self.owners().values())
        return dict.fromkeys(members, len(self._latest) // len(members)) == shares

    def taken_over(self, partition: int, start: int, by: Callable[[int], bool]) -> int:
        """Return when, since `start`, a member first received a record of the partition.

        Only the members that `by` accepts count.
        """
        came = (a for a in self.arrivals if a.partition == partition and a.at >= start)
        return min(arrival.at for arrival in came if by(arrival.member))

    def waits(self, start: int) -> dict[int, int]:
        """Return, for each partition, the longest wait of any record sent since `start`."""
        first: dict[tuple[int, int], Arrival] = {}
        for arrival in self.arrivals:
            key = arrival.partition, arrival.offset
            if arrival.sent >= start and (key not in first or arrival.at < first[key].at):
                first[key] = arrival
        found: dict[int, int] = {}
        for (partition, _), arrival in first.items():
            found[partition] = max(found.get(partition, 0), arrival.at - arrival.sent)
        return found


class Member:
    """The process of one member. After its imports, it waits for `join`."""

    def __init__(self, number: int, subject: Subject, spec: Spec, trail: Trail) -> None:
        self.number = number
        self.joined_at = self.killed_at = 0
        self._trail = trail
        self._ready, self._joined = threading.Event(), threading.Event()
        # The file stays open as long as the process runs.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            subject.command(spec),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            word, *numbers = line.split()
            if not line.endswith("\n"):
                break  # The process was killed while it wrote a line.
            if word == "ready":
                self._ready.set()
            elif word == "joins":
                self.joined_at = int(numbers[0])
                self._joined.set()
            else:
                self._trail.add(Arrival(self.number, int(word), *map(int, numbers)))
        self._ready.set()
        self._joined.set()

    def prepare(self) -> None:
        if not self._ready.wait(LIMIT_S) or self._process.poll() is not None:
            raise NotSettledError(f"A member did not start: {self.said()}")

    def join(self) -> None:
        """Let the member join, and wait until it starts to join."""
        assert self._process.stdin is not None
        self.prepare()
        self._process.stdin.write("join\n")
        self._process.stdin.flush()
        self._joined.wait(LIMIT_S)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.killed_at = time.monotonic_ns()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._thread.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:].strip() or "it said nothing"


class Group:
    """A context manager for members of one client library.

    On entry they are started, and on exit their processes are stopped.
    """

    def __init__(self, subject: Subject, spec: Spec) -> None:
        self.trail = Trail(spec.partitions)
        self.members: list[Member] = []
        """The members that have joined, the oldest first."""
        self._subject, self._spec = subject, spec
        self._made: list[Member] = []

    def make(self) -> Member:
        """Start one more process, which does not join yet."""
        self._made.append(Member(len(self._made), self._subject, self._spec, self.trail))
        return self._made[-1]

    def join(self, member: Member) -> None:
        self.members.append(member)
        member.join()

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        member.kill()

    def settle(self, start: int = 0) -> None:
        """Wait until the members have read all partitions since `start`, evenly divided."""
        until = time.monotonic() + LIMIT_S
        while not self.trail.is_shared([member.number for member in self.members], start):
            if time.monotonic() > until:
                said = " / ".join(member.said() for member in self.members)
                raise NotSettledError(f"The group was not settled after {LIMIT_S:.0f} s: {said}")
            time.sleep(STEP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._made:
            member.close()


def set_times(bootstrap: str, groups: Sequence[str], session_ms: int, heartbeat_ms: int) -> None:
    """Set the session timeout and heartbeat interval of KIP-848 groups, which brokers determine."""

    async def change() -> None:
        from aiokclient import Admin
        from aiokclient.admin import ConfigResource

        times = {"session.timeout": session_ms, "heartbeat.interval": heartbeat_ms}
        wanted = {f"consumer.{name}.ms": str(value) for name, value in times.items()}
        changes = {ConfigResource.group(group): wanted for group in groups}
        async with Admin(bootstrap_servers=bootstrap) as admin:
            (await admin.alter_configs(changes)).raise_for_errors()

    asyncio.run(change())
