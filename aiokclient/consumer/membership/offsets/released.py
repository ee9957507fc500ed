"""Records that were delivered and not committed when the group took their partitions.

After a loss, a `commit()` has nothing left to store for these partitions. It must not report
success, because the records will be delivered again, to this consumer or to another member. The
same holds for all partitions after a change to another cluster. In the new
cluster, an offset of the former cluster would skip records that were never read. So at first, a
commit is accepted only for offsets of records that were delivered after the change. This ends for a
partition when such a record is committed.

A transaction must not commit them: the next owner of the partition reads them again, and would
produce the same results in a transaction of its own. `TransactionalReads` looks here for partitions
that were released since its transaction began. It also looks for partitions that were released
earlier, if the application was still processing their records when the transaction began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.consumer.state.partition import PartitionState
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator


class ReleasedOffset(NamedTuple):
    """The offset after the last delivered record of a released partition, and its former owner."""

    offset: OffsetAndMetadata
    member: GroupMetadata
    """The identity with which the consumer owned the partition."""
    at: float
    """The time of the release, on the monotonic clock."""
    in_progress: bool
    """Whether the application is still processing records of the partition."""


class ReleasedPartitions:
    """The partitions that the group has taken from one consumer, with their uncommitted records."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        self.member = GroupMetadata(coordinator.group_id)
        """The last identity with which this consumer was a member."""
        self._partitions = coordinator.subscription.partitions
        """The partitions that the consumer has now."""
        self._in_progress = coordinator.in_progress
        self._clock = coordinator.cluster.clock
        self._taken: dict[TopicPartition, None] = {}
        self._uncommitted: dict[TopicPartition, ReleasedOffset] = {}
        self._delivered: dict[TopicPartition, int] = {}
        """The offset up to which each partition was delivered that was lost uncommitted."""
        self._told: set[TopicPartition] = set()
        """The partitions of which the application has been told about the loss."""
        self._former: set[TopicPartition] = set()
        """Partitions of which the application may still have records of a former cluster."""

    def set_member(self, member: GroupMetadata) -> None:
        """Store a new identity, unless it has no member id because the membership has ended."""
        if member.member_id:
            self.member = member

    def add_partitions(self, states: Iterable[PartitionState], *, lost: bool) -> None:
        """Record that the group takes these partitions from the consumer.

        Call it before they are removed, and after `SubscriptionState.update_positions()`.
        """
        for state in states:
            self._taken[state.tp] = None
            if state.has_uncommitted:
                offset = state.make_commit(state.consumed)
                busy, now = self._in_progress.has_records_of([state]), self._clock.monotonic()
                self._uncommitted[state.tp] = ReleasedOffset(offset, self.member, now, busy)
                if lost:
                    self._add_lost(state)

    def _add_lost(self, state: PartitionState) -> None:
        self._delivered[state.tp] = state.position
        self._told.discard(state.tp)

    def on_records_requested(self) -> None:
        """Record that the application requests records, so that none are in progress.

        Losses that it was told about are forgotten.
        """
        for tp, released in self._uncommitted.items():
            if released.in_progress:
                self._uncommitted[tp] = released._replace(in_progress=False)
        if self._told:
            for tp in self._told:
                self._delivered.pop(tp, None)
            self._former -= self._told
            self._told.clear()

    # -- for transactions

    def find_in_progress(self) -> dict[TopicPartition, ReleasedOffset]:
        """Return the released partitions of which records are still in progress."""
        return {tp: each for tp, each in self._uncommitted.items() if each.in_progress}

    def find_released_since(self, time: float) -> dict[TopicPartition, ReleasedOffset]:
        """Return the partitions that were released at or after a time."""
        return {tp: each for tp, each in self._uncommitted.items() if each.at >= time}

    def forget_releases(self, handled: Mapping[TopicPartition, ReleasedOffset]) -> None:
        """Forget releases that the application has been told about."""
        for tp, released in handled.items():
            if (known := self._uncommitted.get(tp)) is not None and known.at == released.at:
                del self._uncommitted[tp]

    # -- for commits

    def on_cluster_replaced(self) -> None:
        """Record that the client has moved to another cluster.

        Call it before positions are discarded, and after `SubscriptionState.update_positions()`.
        """
        for state in self._partitions.values():
            if state.is_located:
                self._former.add(state.tp)
                if state.has_uncommitted:
                    self._add_lost(state)

    def find_former(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[TopicPartition]:
        """Return the partitions whose given offsets may be offsets of a former cluster."""
        self._forget_committed_former()
        return [tp for tp, to in offsets.items() if self._may_be_former(tp, to.offset)]

    def has_former(self, tps: Iterable[TopicPartition]) -> bool:
        """Return whether the application may have records of `tps` from a former cluster."""
        return any(tp in self._former for tp in tps)

    def _may_be_former(self, tp: TopicPartition, offset: int) -> bool:
        state = self._partitions.get(tp)
        if tp not in self._former:
            return False
        return not (state and state.is_located and state.origin <= offset <= state.position)

    def _forget_committed_former(self) -> None:
        """Forget the former cluster for partitions that were read and committed in this one."""
        for tp in list(self._former):
            state = self._partitions.get(tp)
            if state is not None and state.is_located and state.group.committed > state.origin:
                self._former.discard(tp)
                self._delivered.pop(tp, None)

    def is_released(self, tp: TopicPartition) -> bool:
        """Return whether the group has taken the partition from the consumer."""
        return tp in self._taken and tp not in self._partitions

    def has_topic(self, topic: str) -> bool:
        """Return whether the group has taken a partition of this topic from the consumer."""
        return any(tp.topic == topic for tp in self._taken)

    def find_uncommitted(self, covered: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Return the `covered` partitions of which delivered records were lost uncommitted.

        A repeated commit would store nothing either. So each call returns a partition again, until
        the application was told about the loss and then requests records. A partition that was
        assigned again, and committed up to the same offset, is not returned.
        """
        self._forget_committed_former()
        found = []
        for tp, offset in list(self._delivered.items()):
            state = self._partitions.get(tp)
            committed = -1 if state is None or tp in self._former else state.group.committed
            if committed >= offset:
                del self._delivered[tp]
            elif covered(tp):
                found.append(tp)
        return found

    def on_committed(self, tp: TopicPartition, offset: int) -> None:
        """Record that the group has stored this offset of a partition that was lost."""
        if 0 <= self._delivered.get(tp, -1) <= offset:
            del self._delivered[tp]

    def mark_told(self, tps: Iterable[TopicPartition]) -> None:
        """Record that the application has been told about these partitions."""
        self._told.update(tps)
