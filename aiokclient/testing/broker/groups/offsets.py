"""The committed offsets of one group.

They do not expire here. Deleting a topic deletes its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aiokclient.types import OffsetAndMetadata, TopicPartition


class Committed(NamedTuple):
    """One committed offset. `at_ms` is the time of the commit. `leader_epoch` is -1 for none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    at_ms: int = 0

    def view(self) -> OffsetAndMetadata:
        """Return the offset as a client sees it."""
        epoch = self.leader_epoch if self.leader_epoch >= 0 else None
        return OffsetAndMetadata(self.offset, self.metadata, epoch)


class _Numbered(NamedTuple):
    """A committed offset with its position in the order of all commits of the group."""

    number: int
    committed: Committed


class GroupOffsets:
    """Offsets by topic and partition, in the order in which they were first committed.

    The offsets of an open transaction are pending. When the transaction commits, each pending
    offset replaces the committed one, unless that was committed later.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Committed] = {}
        self._pending: dict[int, dict[TopicPartition, _Numbered]] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._committed or self._pending)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def commit(self, place: TopicPartition, committed: Committed) -> None:
        self._count += 1
        self._set(place, _Numbered(self._count, committed))

    def _set(self, place: TopicPartition, numbered: _Numbered) -> None:
        self._numbers[place], self._committed[place] = numbered

    def get(self, place: TopicPartition) -> Committed | None:
        return self._committed.get(place)

    # -- transactions ----------------------------------------------------------------------

    def commit_pending(self, producer_id: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store offsets that are part of a producer's open transaction."""
        pending = self._pending.setdefault(producer_id, {})
        for place, committed in offsets.items():
            self._count += 1
            pending[place] = _Numbered(self._count, committed)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Commit or remove the pending offsets of a producer."""
        for place, numbered in self._pending.pop(producer_id, {}).items():
            if commit and numbered.number > self._numbers.get(place, 0):
                self._set(place, numbered)

    def unstable(self, place: TopicPartition) -> bool:
        """Return whether an open transaction has another offset for this partition."""
        return any(place in pending for pending in self._pending.values())

    def pending(self) -> dict[int, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the pending offsets by producer id, as a client sees them."""
        return {
            producer_id: {place: each.committed.view() for place, each in pending.items()}
            for producer_id, pending in self._pending.items()
        }

    # -- the rest --------------------------------------------------------------------------

    def delete(self, place: TopicPartition) -> None:
        self._committed.pop(place, None)
        self._numbers.pop(place, None)
        for pending in self._pending.values():
            pending.pop(place, None)

    def delete_topic(self, topic: str) -> None:
        pending = [place for each in self._pending.values() for place in each]
        for place in [each for each in (*self._committed, *pending) if each.topic == topic]:
            self.delete(place)

    def view(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets as a client sees them."""
        return {place: each.view() for place, each in self._committed.items()}
