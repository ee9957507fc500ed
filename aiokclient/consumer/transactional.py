"""The reads of a consumer in one transaction of a producer: `tx.add(consumer)` (KIP-98, KIP-447).

The offsets of a transaction are the consumed offsets of the consumer when its commit begins.
They are sent with the identity of the consumer in its group, so that the coordinator refuses them
if the group has assigned the partitions to other members.

A partition can be taken away while the transaction is open, after its records were delivered and
the application has requested more. The next owner reads these records again, so the results of
this transaction must not become visible. The offsets of this transaction then include the last
offset of the released partition, and are sent with an identity of an earlier generation. The
coordinator refuses that identity with ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, or UNKNOWN_MEMBER_ID,
and the transaction fails. It might not refuse the present generation, because the partition may
have been revoked in that generation.

After an abort the records have to be read again. The group's committed offset is looked up by the
task that finds initial offsets. No record of the partition is delivered until that offset is found,
however long that takes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.membership.offsets.released import ReleasedOffset
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.consumer.state.subscription import SubscriptionState


class ReadPosition(NamedTuple):
    """The state of a partition when the consumer was added to the transaction."""

    jumps: int
    offset: int
    """The position, which is the one at which the transaction began, as nothing was read since."""
    processed: int
    topic_id: UUID | None


class TransactionalReads:
    """The reads of a consumer in one transaction, which began at `began` on the monotonic clock."""

    def __init__(
        self, engine: ConsumerEngine, subscription: SubscriptionState, began: float
    ) -> None:
        assert engine.group is not None
        self._engine = engine
        self._group: ConsumerCoordinator = engine.group
        self._subscription = subscription
        self._began = began
        self._fixed: dict[TopicPartition, OffsetAndMetadata] | None = None
        """The offsets that were consumed when the commit began; None before that."""
        self._sent: list[tuple[PartitionState, int, int]] = []
        self.is_settled = False
        """Whether the transaction has ended, and `on_committed` or `rewind` was called."""
        self._rewound: list[PartitionState] = []
        """The partitions that `rewind` has moved."""
        self._began_in = self.cluster_id
        subscription.update_positions()
        self._taken = self._group.released.find_in_progress()
        self._at_begin = {
            state: ReadPosition(state.jumps, state.position, state.processed, state.topic_id)
            for state in subscription.partitions.values()
            if state.is_located
        }

    @property
    def cluster_id(self) -> str | None:
        """The cluster from which the consumer reads now."""
        return self._engine.cluster.metadata.cluster_id

    # -- the commit

    def fix_offsets(self) -> None:
        """Fix the offsets to commit, because the commit begins. Synchronous.

        They are those of `consumed()`, except for offsets that are known to be committed. What is
        read later does not belong to the transaction.
        """
        self._subscription.update_positions()
        states = [state for state in self._subscription.partitions.values() if state.is_located]
        due = [state for state in states if state.consumed != state.group.committed]
        self._sent = [(state, state.jumps, state.consumed) for state in due]
        self._fixed = {state.tp: state.make_commit(state.consumed) for state in due}

    def get_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that are fixed; fix them if they are not. Synchronous.

        If a partition was taken away in the transaction, its last offset is included; see `member`.
        """
        if self._fixed is None:
            self.fix_offsets()
        fixed = self._fixed or {}
        return fixed | {tp: taken.offset for tp, taken in self._find_taken().items()}

    def find_group_metadata(self) -> GroupMetadata:
        """Return the identity with which to commit `get_offsets()`. Synchronous.

        It is the present identity, unless a partition was taken away after records of it were
        delivered in this transaction. Then it is an identity that the coordinator refuses.
        """
        taken = next(iter(self._find_taken().values()), None)
        if taken is not None:
            return taken.member._replace(generation_id=taken.member.generation_id - 1)
        present = self._group.membership.metadata
        if present.member_id or not self._subscription.list_subscribed():
            return present
        # A consumer that is no longer a member must not commit without a member id: the
        # coordinator accepts such a commit while the group has no members.
        return self._group.released.member

    async def wait_for_newer_member(self, refused: GroupMetadata, timeout: float) -> bool:
        """Wait until the identity is newer than the one that the coordinator has refused.

        The coordinator may have a newer one, whose response is on its way. Return False if it
        cannot, if the response does not come within `timeout` seconds, or if a partition was taken
        away meanwhile.
        """
        until = asyncio.get_running_loop().time() + timeout
        membership, commits = self._group.membership, self._group.commits
        while not self._find_taken() and not differ(self._began_in, self.cluster_id):
            present = membership.metadata
            if present.member_id != refused.member_id:
                return False  # The membership has ended.
            if present.generation_id > refused.generation_id:
                return True
            if not (membership.can_be_outdated and await commits.wait_for_new_identity(until)):
                return False
        return False

    def on_committed(self) -> None:
        """Record that the transaction with the last `get_offsets()` was committed. Synchronous."""
        self.is_settled = True
        self._group.commits.on_transaction_committed(self._sent)
        self._forget_taken()

    # -- the abort

    async def rewind_and_wait(self, timeout: float) -> None:
        """Go back after an abort, as `rewind` does, and wait for the committed offsets."""
        self.rewind()
        await self.wait_until_offsets_are_found(timeout)

    def rewind(self) -> None:
        """Go back to the committed offset of each partition that was read. Synchronous.

        Without a committed offset, go back to the position at the beginning of the transaction. No
        record is delivered before the committed offsets are found.
        """
        self.is_settled = True
        self._subscription.update_positions()
        states = [
            state for state in self._subscription.partitions.values() if self._was_read(state)
        ]
        self._return_to_committed(states)
        self._group.released.mark_told(self._forget_taken())
        self._rewound = states

    def rewind_later_reads(self) -> None:
        """Go back from what was read after `rewind`, unless it is in a later transaction.

        Synchronous.
        """
        if self._engine.find_last_reads() is not self:
            return
        self._subscription.update_positions()
        states = self._subscription.partitions.values()
        self._return_to_committed([state for state in states if state.has_uncommitted])

    def _return_to_committed(self, states: Iterable[PartitionState]) -> None:
        self._subscription.return_to_committed(
            {state: self._find_fallback(state) for state in states}
        )

    async def wait_until_offsets_are_found(self, timeout: float) -> None:
        """Wait until the committed offsets are found, at most `timeout` seconds.

        If they are not found by then, or if the call is cancelled, they are still looked up.
        """
        until = asyncio.get_running_loop().time() + timeout
        await self._engine.positions.wait_until_offsets_are_found(self._rewound, until)

    def _was_read(self, state: PartitionState) -> bool:
        start = self._find_start(state)
        # After a jump it is not known whether records were delivered before it.
        return state.has_uncommitted or (start is not None and start.jumps != state.jumps)

    def _find_start(self, state: PartitionState) -> ReadPosition | None:
        """Return the position at which the transaction began to read a partition, or None.

        It is None if the partition was assigned later, its topic was created again, or the cluster
        has changed.
        """
        start = self._at_begin.get(state)
        if start is None or differ(self._began_in, self.cluster_id):
            return None
        return start if start.topic_id in (None, state.topic_id) else None

    def _find_fallback(self, state: PartitionState) -> int:
        start = self._find_start(state)
        if start is None:
            return state.origin
        # Records that were being processed when the transaction began belong to it.
        processed = start.processed if start.jumps != state.jumps else state.processed
        return min(start.offset, processed)

    # -- partitions that were taken away

    def _find_taken(self) -> dict[TopicPartition, ReleasedOffset]:
        return self._group.released.find_released_since(self._began) | self._taken

    def _forget_taken(self) -> list[TopicPartition]:
        taken = self._find_taken()
        self._group.released.forget_releases(taken)
        self._taken = {}
        return list(taken)
