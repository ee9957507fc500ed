"""A record of who owns which partition of a group, and of the processing of its records.

Each member of a group under test has a `Member` of this module as its listener. The test also
reports to the `Member` which records were delivered and processed. `Ownership` checks, at every
step:

    F  committed records were processed before, without a gap from the initial offset
    G  no record is delivered to a member that does not own its partition; when on_revoked is
       called, no record of the revoked partitions is being processed

It records the intervals of ownership for human readers. The test provides the clock.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokclient import TopicPartition


class BrokenOwnershipError(AssertionError):
    """Two members owned a partition, or a record was delivered or committed against the rules."""


@dataclass
class Interval:
    """A time in which a member owned a partition. `how` says how it ended, or is ""."""

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
    """The ownership of one group's partitions over time."""

    clock: Callable[[], float]
    intervals: list[Interval] = field(default_factory=list)
    owner: dict[TopicPartition, Interval] = field(default_factory=dict)
    processed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    delivered: int = 0
    doubles: int = 0
    written: asyncio.Event = field(default_factory=asyncio.Event)
    breaches: list[str] = field(default_factory=list)

    def member(self, name: str) -> "Member":
        return Member(name, self)

    def breach(self, text: str) -> None:
        """Raise an error for a violation, and record it.

        Recording is necessary because listeners and handlers may suppress the error.
        """
        self.breaches.append(f"{self.clock():.3f} {text}")
        raise BrokenOwnershipError(text)

    def count(self) -> int:
        """Return the number of records that were processed, each counted once."""
        return sum(map(len, self.processed.values()))

    def check_committed(self, committed: Mapping[TopicPartition, Any]) -> None:
        """Check F for the current state."""
        for tp, stored in committed.items():
            done = self.processed.get(tp, set())
            missing = next((o for o in range(stored.offset) if o not in done), None)
            if missing is not None:
                self.breach(f"{tp}: {stored.offset} is committed, but {missing} was not processed")

    def check(self) -> None:
        """Raise one error with all recorded violations, if any, and with the intervals."""
        if self.breaches:
            lines = [*self.breaches, *map(str, self.intervals)]
            raise BrokenOwnershipError("\n".join(lines))

    async def until(self, right: Callable[[], object], timeout: float = 600.0) -> None:
        """Wait for a condition, which is checked after each report."""
        async with asyncio.timeout(timeout):
            while not right():
                self.written.clear()
                await self.written.wait()


class Member:
    """The listener of one member. The member's handlers also report to it."""

    def __init__(self, name: str, ownership: Ownership) -> None:
        self.name, self.ownership = name, ownership
        self.owned: dict[TopicPartition, Interval] = {}
        self.at_work: dict[TopicPartition, dict[int, Any]] = {}
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.dead = False

    def _tell(self, what: str, tps: Sequence[TopicPartition]) -> None:
        self.told.append((what, sorted(tps)))
        self.ownership.written.set()

    def on_assigned(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            if tp in self.owned:
                self.ownership.breach(f"{self.name} was assigned {tp}, which it already owns")
            interval = Interval(tp, self.name, self.ownership.clock())
            self.owned[tp] = self.ownership.owner[tp] = interval
            self.ownership.intervals.append(interval)
        self._tell("assigned", tps)

    def on_revoked(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            if self.at_work.get(tp) and not self.dead:
                self.ownership.breach(f"{self.name} is still processing {tp}, which was revoked")
        self._end(tps, "revoked")

    def on_lost(self, tps: Sequence[TopicPartition]) -> None:
        self._end(tps, "lost")

    def _end(self, tps: Sequence[TopicPartition], how: str) -> None:
        for tp in tps:
            interval = self.owned.pop(tp, None)
            if self.dead:
                continue
            if interval is None:
                self.ownership.breach(f"{tp} is {how} for {self.name}, which does not own it")
            else:
                interval.end, interval.how = self.ownership.clock(), how
        self._tell(how, tps)

    def kill(self) -> None:
        """Record that the member was killed: it owns nothing, and its reports are ignored."""
        self.dead = True
        for interval in self.owned.values():
            interval.end, interval.how = self.ownership.clock(), "killed"
        self.owned.clear()

    # -- processing of records

    def delivered(self, record: Any) -> None:
        """Record that the consumer delivered a record."""
        tp = TopicPartition(record.topic, record.partition)
        self.ownership.delivered += 1
        if tp not in self.owned:
            self.ownership.breach(
                f"{self.name} received {tp}@{record.offset}, which it does not own"
            )
        if self.ownership.owner[tp] is not self.owned[tp]:
            now = self.ownership.owner[tp]
            self.ownership.breach(f"{self.name} received {tp}@{record.offset}; new owner: {now}")
        self.at_work.setdefault(tp, {})[record.offset] = record

    def ended(self, record: Any) -> None:
        """Record that a record was processed."""
        tp = TopicPartition(record.topic, record.partition)
        self.at_work.get(tp, {}).pop(record.offset, None)
        done = self.ownership.processed.setdefault(tp, set())
        self.ownership.doubles += record.offset in done
        done.add(record.offset)
        self.ownership.written.set()

    def dropped(self, record: Any) -> None:
        """Record that a record is not being processed any more, although it was not finished."""
        tp = TopicPartition(record.topic, record.partition)
        self.at_work.get(tp, {}).pop(record.offset, None)
