"""Checks of the events that the members of a group reported, in the order of time.

`Ownership` checks invariants F and G. In addition, a partition may have two owners only if the
group has removed the former one, and that one has not learned of its removal yet. No more records
are delivered to the removed owner. The records of a partition are delivered to a member without a
gap, from the committed offset on. Committed offsets never decrease. A member cannot commit an
offset of a partition that has a new owner.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ownership import BrokenOwnershipError, Interval, Member, Ownership

from aiokclient import OffsetAndMetadata, TopicPartition

from .events import Event, Log

REMOVED = ("lost", "killed")


class RecordPosition(NamedTuple):
    """The topic, partition, and offset of a record."""

    topic: str
    partition: int
    offset: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Audit:
    """A check of all events. `check()` raises BrokenOwnershipError with all violations."""

    def __init__(self, log: Log, topic: str) -> None:
        self.topic = topic
        self.events = sorted(log.events, key=lambda event: event.time)
        self.start = self.now = self.events[0].time if self.events else 0.0
        self.ownership = Ownership(lambda: self.now - self.start)
        self.members: dict[str, Member] = {}
        self.committed: dict[int, int] = {}
        self.next: dict[tuple[str, int], int] = {}
        self.generations: dict[int, list[str]] = {}
        self.overlaps: list[tuple[Interval, Interval]] = []
        self.refused: list[str] = []
        self.gone: set[str] = set()
        for event in self.events:
            self._replay(event)
        for old, new in self.overlaps:
            if old.how not in REMOVED:
                self._breach(f"two members own a partition: {old}; {new}")

    def check(self) -> None:
        self.ownership.check()

    def _replay(self, event: Event) -> None:
        self.now = event.time
        if event.who not in self.members:
            self.members[event.who] = self.ownership.member(event.who)
        if event.who in self.gone and event.what != "warning":
            self._breach(f"{event.who} has left, but reports {event.what} {event.data}")
        step = getattr(self, f"_{event.what}", None)
        if step is not None:
            with contextlib.suppress(BrokenOwnershipError):  # The error has been recorded.
                step(self.members[event.who], *event.data)

    def _breach(self, text: str) -> None:
        with contextlib.suppress(BrokenOwnershipError):
            self.ownership.breach(text)

    def _tps(self, partitions: Sequence[int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in partitions]

    # -- events

    def _assigned(self, member: Member, partitions: list[int], generation: int | None) -> None:
        tps = self._tps(partitions)
        before = {tp: self.ownership.owner.get(tp) for tp in tps}
        if generation is not None:
            self.generations.setdefault(generation, []).append(member.name)
        for tp in tps:
            self.next.pop((member.name, tp.partition), None)
        member.on_assigned(tps)
        for tp, old in before.items():
            if old is not None and old.end is None and old.member != member.name:
                self.overlaps.append((old, self.ownership.owner[tp]))

    def _revoked(self, member: Member, partitions: list[int]) -> None:
        member.on_revoked(self._tps(partitions))

    def _lost(self, member: Member, partitions: list[int]) -> None:
        member.on_lost(self._tps(partitions))

    def _killed(self, member: Member) -> None:
        member.kill()

    def _left(self, member: Member) -> None:
        self.gone.add(member.name)
        for tp in member.owned:
            self._breach(f"{member.name} has left, but still owns {tp}")

    def _delivered(self, member: Member, asked: float, offsets: list[tuple[int, int]]) -> None:
        for partition, offset in offsets:
            position = RecordPosition(self.topic, partition, offset)
            interval = member.owned.get(position.tp)
            owner = self.ownership.owner.get(position.tp)
            self._in_order(member, position)
            if interval is not None and owner is not interval and owner is not None:
                # The member was suspended after the delivery and before its report, so the delivery
                # is legal.
                late = asked - self.start < owner.begin
                if late and interval.end is None:
                    member.at_work.setdefault(position.tp, {})[offset] = position
                    continue
            with contextlib.suppress(BrokenOwnershipError):
                member.delivered(position)

    def _in_order(self, member: Member, position: RecordPosition) -> None:
        key = member.name, position.partition
        expected = self.next.get(key)
        if expected is None:
            least = self._committed_before(member, position)
            if position.offset < least:
                self._breach(f"{member.name} begins at {position}, but {least} was committed")
        elif position.offset != expected:
            self._breach(f"{member.name} received {position} instead of {expected}")
        self.next[key] = position.offset + 1

    def _committed_before(self, member: Member, position: RecordPosition) -> int:
        """Return the offset that was committed before the member got the partition."""
        interval = member.owned.get(position.tp)
        begin = self.now if interval is None else self.start + interval.begin
        least = 0
        for event in self.events:
            if event.time >= begin:
                break
            if event.what == "sample":
                least = event.data[0].get(position.partition, 0)
        return least

    def _done(self, member: Member, partition: int, offset: int) -> None:
        member.ended(RecordPosition(self.topic, partition, offset))

    def _dropped(self, member: Member) -> None:
        member.at_work.clear()

    def _commit(
        self, member: Member, asked: float, partition: int, offset: int, error: str | None
    ) -> None:
        tp = TopicPartition(self.topic, partition)
        if error is not None:
            self.refused.append(f"{member.name} {tp} {error}")
            return
        owner = self.ownership.owner.get(tp)
        foreign = owner is not None and owner is not member.owned.get(tp)
        if foreign and owner is not None and self.start + owner.begin < asked:
            self._breach(f"{member.name} committed {tp}@{offset}, but the owner is {owner}")

    def _sample(self, _: Any, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            if offset < self.committed.get(partition, 0):
                self._breach(f"{partition}: {offset} is committed, after {self.committed}")
        self.committed = offsets
        self.ownership.check_committed(
            {tp: OffsetAndMetadata(offsets[tp.partition]) for tp in self._tps(list(offsets))}
        )
