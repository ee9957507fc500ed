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

    def make_view(self) -> OffsetAndMetadata:
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
    offset replaces the committed one, unless the committed one was stored later.
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

    def commit_offset(self, tp: TopicPartition, committed: Committed) -> None:
        self._count += 1
        self._store_offset(tp, _Numbered(self._count, committed))

    def _store_offset(self, tp: TopicPartition, numbered: _Numbered) -> None:
        self._numbers[tp], self._committed[tp] = numbered

    def find_offset(self, tp: TopicPartition) -> Committed | None:
        return self._committed.get(tp)

    # -- transactions ----------------------------------------------------------------------

    def commit_pending(self, producer_id: int, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store offsets that are part of a producer's open transaction."""
        pending = self._pending.setdefault(producer_id, {})
        for tp, committed in offsets.items():
            self._count += 1
            pending[tp] = _Numbered(self._count, committed)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Commit or remove the pending offsets of a producer."""
        for tp, numbered in self._pending.pop(producer_id, {}).items():
            if commit and numbered.number > self._numbers.get(tp, 0):
                self._store_offset(tp, numbered)

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Return whether an open transaction has a pending offset for this partition."""
        return any(tp in pending for pending in self._pending.values())

    def list_pending(self) -> dict[int, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the pending offsets by producer id, as a client sees them."""
        return {
            producer_id: {tp: each.committed.make_view() for tp, each in pending.items()}
            for producer_id, pending in self._pending.items()
        }

    # -- the rest --------------------------------------------------------------------------

    def delete_offset(self, tp: TopicPartition) -> None:
        self._committed.pop(tp, None)
        self._numbers.pop(tp, None)
        for pending in self._pending.values():
            pending.pop(tp, None)

    def delete_topic(self, topic: str) -> list[TopicPartition]:
        """Delete the offsets of a topic, and return its partitions that had one."""
        pending = [tp for each in self._pending.values() for tp in each]
        gone = [tp for tp in self._committed if tp.topic == topic]
        for tp in [*gone, *(each for each in pending if each.topic == topic)]:
            self.delete_offset(tp)
        return gone

    def make_view(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets as a client sees them."""
        return {tp: each.make_view() for tp, each in self._committed.items()}
