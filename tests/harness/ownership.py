"""Keeps account of who owns which partition of a group, and of what is done with its records.

Each member of a group under test has a `Member` here as its listener, which it also tells what it
was handed out and what it is done with. `Ownership` holds, at every step:

    F  what is committed of a partition was processed before, without a gap from its start
    G  no record is handed out to a member that does not own the partition, or no longer; when
       on_revoked is called none is being worked on

and keeps the intervals of ownership for people to read. The clock is the test's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokclient import TopicPartition


class BrokenOwnershipError(AssertionError):
    """Two owners of one partition, a record for a stranger, or a commit ahead of the work."""


@dataclass
class Interval:
    """A time for which a partition was a member's; `how` it ended, "" while it has not."""

    tp: TopicPartition
    member: str
    begin: float
    end: float | None = None
    how: str = ""

    def __str__(self) -> str:
        end = "..." if self.end is None else f"{self.end:.3f} ({self.how})"
        return f"{self.tp} of {self.member}: {self.begin:.3f} to {end}"


@dataclass
class Ownership:
    """The books of one group."""

    clock: Callable[[], float]
    intervals: list[Interval] = field(default_factory=list)
    owner: dict[TopicPartition, Interval] = field(default_factory=dict)
    processed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    handed: int = 0
    doubles: int = 0
    written: asyncio.Event = field(default_factory=asyncio.Event)
    breaches: list[str] = field(default_factory=list)

    def member(self, name: str) -> "Member":
        return Member(name, self)

    def breach(self, text: str) -> None:
        """Notes what must not be; listeners and handlers may swallow what they raise."""
        self.breaches.append(f"{self.clock():.3f} {text}")
        raise BrokenOwnershipError(text)

    def count(self) -> int:
        """How many records were processed, each counted once."""
        return sum(map(len, self.processed.values()))

    def check_committed(self, committed: Mapping[TopicPartition, Any]) -> None:
        """F, as things are now."""
        for tp, stored in committed.items():
            done = self.processed.get(tp, set())
            missing = next((o for o in range(stored.offset) if o not in done), None)
            if missing is not None:
                self.breach(f"{tp}: {stored.offset} is committed, {missing} not processed")

    def check(self) -> None:
        """Raises what was noted, with the intervals."""
        if self.breaches:
            lines = [*self.breaches, *map(str, self.intervals)]
            raise BrokenOwnershipError("\n".join(lines))

    async def until(self, right: Callable[[], object], timeout: float = 600.0) -> None:
        """Waits until something is so; it is looked at whenever something was written down."""
        async with asyncio.timeout(timeout):
            while not right():
                self.written.clear()
                await self.written.wait()


class Member:
    """The listener of one member, and where its handlers report."""

    def __init__(self, name: str, books: Ownership) -> None:
        self.name, self.books = name, books
        self.owned: dict[TopicPartition, Interval] = {}
        self.at_work: dict[TopicPartition, dict[int, Any]] = {}
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.dead = False

    def _tell(self, what: str, tps: Sequence[TopicPartition]) -> None:
        self.told.append((what, sorted(tps)))
        self.books.written.set()

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            if tp in self.owned:
                self.books.breach(f"{self.name} gets {tp}, which it has")
            interval = Interval(tp, self.name, self.books.clock())
            self.owned[tp] = self.books.owner[tp] = interval
            self.books.intervals.append(interval)
        self._tell("assigned", tps)

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            if self.at_work.get(tp) and not self.dead:
                self.books.breach(f"{self.name} still works on {tp}, which is revoked")
        self._end(tps, "revoked")

    def on_lost(self, tps: Sequence[TopicPartition]) -> None:
        self._end(tps, "lost")

    def _end(self, tps: Sequence[TopicPartition], how: str) -> None:
        for tp in tps:
            interval = self.owned.pop(tp, None)
            if self.dead:
                continue
            if interval is None:
                self.books.breach(f"{tp} is {how} by {self.name}, which does not have it")
            else:
                interval.end, interval.how = self.books.clock(), how
        self._tell(how, tps)

    def kill(self) -> None:
        """It is dead: what it had is nobody's, and nothing of it counts any more."""
        self.dead = True
        for interval in self.owned.values():
            interval.end, interval.how = self.books.clock(), "killed"
        self.owned.clear()

    # -- what is done with records

    def handed(self, record: Any) -> None:
        """A record has come out of the consumer."""
        tp = TopicPartition(record.topic, record.partition)
        self.books.handed += 1
        if tp not in self.owned:
            self.books.breach(f"{self.name} is handed {tp}@{record.offset}, which it has not")
        if self.books.owner[tp] is not self.owned[tp]:
            now = self.books.owner[tp]
            self.books.breach(f"{self.name} is handed {tp}@{record.offset}; by now: {now}")
        self.at_work.setdefault(tp, {})[record.offset] = record

    def ended(self, record: Any) -> None:
        """It is processed."""
        tp = TopicPartition(record.topic, record.partition)
        self.at_work.get(tp, {}).pop(record.offset, None)
        done = self.books.processed.setdefault(tp, set())
        self.books.doubles += record.offset in done
        done.add(record.offset)
        self.books.written.set()

    def dropped(self, record: Any) -> None:
        """Nobody works on it any more, and it is not processed."""
        tp = TopicPartition(record.topic, record.partition)
        self.at_work.get(tp, {}).pop(record.offset, None)
