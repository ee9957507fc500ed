"""Records that were delivered and not committed when the group took their partitions.

A transaction must not commit them: the next owner of the partition reads them again, and would
produce the same results in a transaction of its own. `TransactionalReads` looks here for partitions
that were released since its transaction began. It also looks for partitions that were released
earlier, if the application was still processing their records when the transaction began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aiokclient.consumer.state.partition import PartitionState
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["ReleasedOffset", "ReleasedOffsets"]


class ReleasedOffset(NamedTuple):
    """The offset after the last delivered record of a released partition, and its former owner."""

    offset: OffsetAndMetadata
    member: GroupMetadata
    """The identity with which the consumer owned the partition."""
    at: float
    """The time of the release, on the monotonic clock."""
    in_progress: bool
    """Whether the application is still processing records of the partition."""


class ReleasedOffsets:
    """The partitions that one consumer released with uncommitted records.

    `holds(states)` returns whether records of these partitions are in progress. `time` is the
    monotonic clock.
    """

    def __init__(
        self,
        group_id: str,
        holds: Callable[[Iterable[PartitionState]], bool],
        time: Callable[[], float],
    ) -> None:
        self.member = GroupMetadata(group_id)
        """The last identity with which this consumer was a member."""
        self._holds = holds
        self._time = time
        self._released: dict[TopicPartition, ReleasedOffset] = {}

    def renamed(self, member: GroupMetadata) -> None:
        """Store a new identity, unless it has no member id because the membership has ended."""
        if member.member_id:
            self.member = member

    def release(self, states: Iterable[PartitionState]) -> None:
        """Record that the group takes these partitions.

        Call it before they are removed, and after `SubscriptionState.settle()`.
        """
        for state in states:
            if state.uncommitted:
                offset = state.to_commit(state.consumed)
                busy = self._holds([state])
                self._released[state.tp] = ReleasedOffset(offset, self.member, self._time(), busy)

    def requested(self) -> None:
        """Record that the application requests records, so that none are in progress."""
        for tp, released in self._released.items():
            if released.in_progress:
                self._released[tp] = released._replace(in_progress=False)

    def in_progress(self) -> dict[TopicPartition, ReleasedOffset]:
        """Return the released partitions of which records are still in progress."""
        return {tp: each for tp, each in self._released.items() if each.in_progress}

    def since(self, time: float) -> dict[TopicPartition, ReleasedOffset]:
        """Return the partitions that were released at or after a time."""
        return {tp: each for tp, each in self._released.items() if each.at >= time}

    def forget(self, handled: Mapping[TopicPartition, ReleasedOffset]) -> None:
        """Forget releases that the application has been told about."""
        for tp, released in handled.items():
            if (known := self._released.get(tp)) is not None and known.at == released.at:
                del self._released[tp]
