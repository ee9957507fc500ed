"""Checks of a group: the owners of partitions (promise G), processing, and commits (promise F).

Two members may own a partition at the same time only if the group has removed one of the members,
and this member does not know it yet. It must then lose the partition. If the partition is revoked
from it instead, the other member was assigned the partition too early.
"""

from collections.abc import Iterator, Mapping, Sequence

from aiokclient import TopicPartition

from .record_checks import Breach


class _Done:
    """The processed offsets of a partition: all below `upto`, and some others."""

    def __init__(self) -> None:
        self.upto = 0
        self._others: set[int] = set()

    def add(self, offset: int) -> None:
        if offset >= self.upto:
            self._others.add(offset)
        while self.upto in self._others:
            self._others.discard(self.upto)
            self.upto += 1


class _Owned:
    """A partition that a member owns."""

    def __init__(self) -> None:
        self.next: int | None = None
        """The offset of the next record, or None before the first one."""
        self.in_progress: set[int] = set()


class GroupChecks:
    """Checks of a group that reads topics without transactions, whose offsets have no gaps."""

    def __init__(self, name: str, breach: Breach) -> None:
        self.name, self._breach = name, breach
        self._owned: dict[TopicPartition, dict[str, _Owned]] = {}
        self._overlaps: set[tuple[str, TopicPartition]] = set()
        """Pairs of a member and a partition that it must lose, because another member owns it."""
        self._done: dict[TopicPartition, _Done] = {}
        self._committed: dict[TopicPartition, int] = {}
        self.processed = self.assigned_times = 0

    def _break(self, letter: str, text: str) -> None:
        self._breach(letter, f"group {self.name}: {text}")

    def assigned(self, member: str, tps: Sequence[TopicPartition]) -> None:
        self.assigned_times += 1
        for tp in tps:
            owners = self._owned.setdefault(tp, {})
            if member in owners:
                self._break("G", f"{member} was assigned {tp}, which it owns already.")
            self._overlaps.update((other, tp) for other in owners if other != member)
            owners[member] = _Owned()

    def revoked(self, member: str, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            owned = self._owned.get(tp, {}).pop(member, None)
            if owned is None:
                self._break("G", f"{tp} is revoked from {member}, which does not own it.")
            elif owned.in_progress:
                at = min(owned.in_progress)
                self._break("G", f"{member} is processing {tp}@{at}, which was revoked.")
            if (member, tp) in self._overlaps:
                self._overlaps.discard((member, tp))
                self._break("G", f"{tp} had another owner before it was revoked from {member}.")

    def lost(self, member: str, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            if self._owned.get(tp, {}).pop(member, None) is None:
                self._break("G", f"{member} has lost {tp}, which it does not own.")
            self._overlaps.discard((member, tp))

    def delivered(self, member: str, tp: TopicPartition, offset: int) -> None:
        owned = self._owned.get(tp, {}).get(member)
        if owned is None:
            self._break("G", f"{member} received {tp}@{offset}, which it does not own.")
            return
        if owned.next is None:
            least = self._committed.get(tp, 0)
            alone = len(self._owned[tp]) == 1
            if alone and offset > self._done_of(tp).upto:
                self._break("F", f"{member} begins at {tp}@{offset}: earlier ones are skipped.")
            if alone and offset < least:
                self._break("F", f"{member} begins at {tp}@{offset}, but {least} was committed.")
        elif offset != owned.next:
            self._break("F", f"{member} received {tp}@{offset} instead of {owned.next}.")
        owned.next = offset + 1
        owned.in_progress.add(offset)

    def finished(self, member: str, tp: TopicPartition, offset: int) -> None:
        """Note that a member has processed a record, even if it has lost the partition."""
        self.processed += 1
        owned = self._owned.get(tp, {}).get(member)
        if owned is not None:
            owned.in_progress.discard(offset)
        self._done_of(tp).add(offset)

    def committed(self, tp: TopicPartition, offset: int) -> None:
        upto, before = self._done_of(tp).upto, self._committed.get(tp, 0)
        if offset > upto:
            self._break("F", f"{tp}@{offset} is committed, but {upto} was not processed.")
        if offset < before:
            self._break("F", f"{tp}@{offset} is committed, after {before} was.")
        self._committed[tp] = offset

    def _done_of(self, tp: TopicPartition) -> _Done:
        return self._done.setdefault(tp, _Done())

    def left(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return how many records before these end offsets are not processed."""
        return sum(max(end - self._done_of(tp).upto, 0) for tp, end in ends.items())

    def unfinished(self, ends: Mapping[TopicPartition, int]) -> Iterator[str]:
        """Yield a description of each partition that is not processed up to its end offset."""
        for tp, end in ends.items():
            if (upto := self._done_of(tp).upto) < end:
                owners = ", ".join(self._owned.get(tp, {})) or "nobody"
                yield f"group {self.name}: {tp} is processed up to {upto} of {end}, by {owners}"
