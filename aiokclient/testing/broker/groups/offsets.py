"""The committed offsets of one group.

They do not expire here. Deleting a topic deletes its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aiokclient.types import OffsetAndMetadata, TopicPartition


class Committed(NamedTuple):
    """One committed offset. `at_ms` is the brokers' wall clock. `leader_epoch` is -1 for none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    at_ms: int = 0


class GroupOffsets:
    """Offsets by topic and partition, in the order in which they were first committed."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Committed] = {}

    def __bool__(self) -> bool:
        return bool(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def commit(self, place: TopicPartition, committed: Committed) -> None:
        self._committed[place] = committed

    def get(self, place: TopicPartition) -> Committed | None:
        return self._committed.get(place)

    def unstable(self, place: TopicPartition) -> bool:
        """Return whether an open transaction has another offset for this partition."""
        return False

    def delete(self, place: TopicPartition) -> None:
        self._committed.pop(place, None)

    def delete_topic(self, topic: str) -> None:
        for place in [each for each in self._committed if each.topic == topic]:
            del self._committed[place]

    def view(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets as a client sees them."""
        return {
            place: OffsetAndMetadata(
                each.offset,
                each.metadata,
                each.leader_epoch if each.leader_epoch >= 0 else None,
            )
            for place, each in self._committed.items()
        }
