"""Records that were delivered and not committed when their partitions were lost.

A `commit()` after the loss has nothing left to store for these partitions. It must not report
success, because the records will be delivered again, to this consumer or to another member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aiokclient.consumer.state.partition import PartitionState
from aiokclient.types import TopicPartition

__all__ = ["LostRecords"]


class LostRecords:
    """The lost partitions of one consumer, with the offset up to which each was delivered.

    `partitions` contains the partitions that the consumer has now.
    """

    def __init__(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        self._partitions = partitions
        self._delivered: dict[TopicPartition, int] = {}
        self._raised: set[TopicPartition] = set()
        self._released: dict[TopicPartition, None] = {}

    def release(self, states: Iterable[PartitionState], *, lost: bool) -> None:
        """Record that the group takes these partitions from the consumer.

        Call it before they are removed, with settled positions.
        """
        for state in states:
            self._released[state.tp] = None
            if lost and state.uncommitted:
                self._delivered[state.tp] = state.position
                self._raised.discard(state.tp)

    def is_released(self, tp: TopicPartition) -> bool:
        """Return whether the group has taken the partition from the consumer."""
        return tp in self._released and tp not in self._partitions

    def uncommitted(self, covered: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Return the `covered` partitions of which delivered records were lost uncommitted.

        Each partition is returned until the application requests records after it was told about
        the loss, because a repeated commit would store nothing either. A partition that was
        assigned again, and committed up to the same offset, is not returned.
        """
        found = []
        for tp, offset in list(self._delivered.items()):
            state = self._partitions.get(tp)
            if state is not None and state.group.committed >= offset:
                del self._delivered[tp]
            elif covered(tp):
                found.append(tp)
        return found

    def committed(self, tp: TopicPartition, offset: int) -> None:
        """Record that the group has stored this offset of a partition that was lost."""
        if 0 <= self._delivered.get(tp, -1) <= offset:
            del self._delivered[tp]

    def raised(self, tps: Iterable[TopicPartition]) -> None:
        """Record that the application has been told about these partitions."""
        self._raised.update(tps)

    def requested(self) -> None:
        """Forget losses that the application was told about. Called when it requests records."""
        if self._raised:
            for tp in self._raised:
                self._delivered.pop(tp, None)
            self._raised.clear()
