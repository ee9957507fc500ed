"""A share partition at its leader: the records in flight, the timers of locks, what is persisted.

It is loaded from the state of the share coordinator at the first fetch, and dropped when the broker
does not lead the partition any more, when it learns from a refused write that an administrator has
set the offsets, when the broker stops, or when the last session of the group ends with its
connection. All locks end with it.

What is final, and what becomes available again, is persisted. What is acquired is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.dead_letters import write_dead_letters
from aiokclient.testing.broker.share.durations import read_duration_ms
from aiokclient.testing.broker.share.records import (
    Acknowledgement,
    Acquired,
    Limits,
    OffsetRange,
    RecordTable,
    Settlement,
    StateChange,
    Wanted,
)
from aiokclient.testing.broker.share.states import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from aiokclient.testing.broker.configs import Configs
    from aiokclient.testing.broker.share.sessions import SharePartitionKey
    from aiokclient.testing.broker.share.states import ShareState
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics.topics import Partition

_BY_DURATION = "by_duration:"
_FENCED = (
    "Error in write state RPC. The coordinator rejected the request because the state epoch did "
    "not match."
)
_UNINITIALIZED = (
    "Error in write state RPC. Write operation on uninitialized share partition not allowed."
)


class ShareWatcher(Protocol):
    """A fetch that waits for records of share partitions."""

    def on_change(self, added: int) -> None:
        """Handle `added` bytes in the log, or with `ANYTHING` another change."""


class SharePartition:
    """One partition as a group shares it."""

    def __init__(
        self,
        cluster: ClusterState,
        group_id: str,
        key: SharePartitionKey,
        partition: Partition,
        state: ShareState,
    ) -> None:
        self.key = key
        self.partition = partition
        self._cluster = cluster
        self._group_id = group_id
        self._state_epoch = state.state_epoch
        self._leader = partition.leader
        self._leader_epoch = partition.leader_epoch
        self._is_dropped = False
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[ShareWatcher, None] = {}
        start = state.start_offset
        if start == UNKNOWN_OFFSET:
            start = self._find_first_offset()
        state.leader_epoch = partition.leader_epoch
        self.table = RecordTable(start, state.list_records())

    # -- configs -----------------------------------------------------------------------------

    @property
    def _configs(self) -> Configs:
        return self._cluster.groups.find_configs(self._group_id, keep=False)

    @property
    def limits(self) -> Limits:
        configs = self._configs
        return Limits(
            configs.read_number("share.delivery.count.limit"),
            configs.read_number("share.partition.max.record.locks"),
        )

    def _find_deadline(self) -> float:
        """Return the end of a lock that begins now."""
        ms = self._configs.read_number("share.record.lock.duration.ms")
        return self._cluster.loop.time() + ms / 1000

    def _find_first_offset(self) -> int:
        """Return the offset at which the group begins, by its config.

        Raises Refused if there is no record as young as the config says.
        """
        strategy = self._configs["share.auto.offset.reset"]
        log, high = self.partition.log, self.partition.high_watermark
        if strategy == "earliest":
            return log.start_offset
        if strategy.startswith(_BY_DURATION):
            since = read_duration_ms(strategy.removeprefix(_BY_DURATION))
            found = log.find_timestamp(self._cluster.clock.time_ms() - (since or 0))
            if found is None:
                raise Refused(Code.OFFSET_NOT_AVAILABLE, "")
            return found.offset
        return high

    @property
    def upper_offset(self) -> int:
        """The offset before which records can be acquired, by the isolation level of the group."""
        if self.is_committed_only:
            return self.partition.last_stable_offset
        return self.partition.high_watermark

    @property
    def is_committed_only(self) -> bool:
        return self._configs["share.isolation.level"] == "read_committed"

    # -- validity ----------------------------------------------------------------------------

    @property
    def is_led(self) -> bool:
        """Whether the broker still leads the partition in the same epoch, and has its locks."""
        partition = self.partition
        same = (partition.leader, partition.leader_epoch) == (self._leader, self._leader_epoch)
        return same and not partition.deleted and not self._is_dropped

    @property
    def is_fenced(self) -> bool:
        """Whether the state was replaced meanwhile."""
        state = self._find_state()
        return state is not None and state.state_epoch != self._state_epoch

    def _find_state(self) -> ShareState | None:
        return self._cluster.share_states.find_state(self._group_id, self.key)

    def check_state(self) -> None:
        """Raise Refused if the share coordinator accepts nothing from this leader."""
        state = self._find_state()
        if state is None:
            raise Refused(Code.UNKNOWN_SERVER_ERROR, _UNINITIALIZED)
        if state.state_epoch != self._state_epoch:
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER, _FENCED)

    def drop(self) -> None:
        """Forget the locks without persisting anything. Fetches that wait acquire nothing."""
        self._is_dropped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- records -----------------------------------------------------------------------------

    def can_acquire(self) -> bool:
        return self.table.can_acquire(self.limits.window)

    def follow_log_start(self) -> bool:
        """Move the start offset if the log starts after it. Return whether it moved."""
        start = self.partition.log.start_offset
        moved = self.table.find_next_offset() < start
        if moved:
            self.table.archive_before(start)
        return moved

    def acquire(
        self, member_id: str, batches: Sequence[OffsetRange], offset: int, wanted: Wanted
    ) -> list[Acquired]:
        """Acquire records of batches that were read from `offset` on."""
        deadline = self._find_deadline()
        result = self.table.acquire(member_id, batches, offset, wanted, self.limits, deadline)
        if result:
            self._start_timer(deadline)
        return result

    def check_acknowledgements(
        self, member_id: str, batches: Sequence[Acknowledgement]
    ) -> list[Settlement]:
        """Return the settlements among acknowledgements, and apply the renewals. Raises Refused."""
        return self.table.check_acknowledgements(
            member_id,
            batches,
            self._find_deadline(),
            can_renew=self._configs["share.renew.acknowledge.enable"] == "true",
        )

    def settle(self, settled: Sequence[Settlement]) -> None:
        """Apply settlements, and persist them. Raises Refused, and gives them up.

        Watchers are notified if the start offset moves. Like Kafka, nobody is told that records
        were released.
        """
        try:
            self.check_state()
        except Refused:
            self.give_up(settled)
            raise
        start = self.table.start
        self._persist(start, self.table.apply_settlements(settled, self.limits))
        if self.table.start != start:
            self._notify_watchers()

    def give_up(self, settled: Sequence[Settlement]) -> None:
        """Undo settlements that could not be stored. Locks whose time has passed end now."""
        self.table.give_up(settled)
        deadline = self.table.find_deadline()
        if deadline is not None and not self._is_dropped:
            self._start_timer(deadline)

    def release_member(self, member_id: str) -> None:
        """End all locks of a member whose session has ended."""
        start = self.table.start
        self._persist(start, self.table.release_member(member_id, self.limits))

    def archive_ranges(self, ranges: Sequence[OffsetRange]) -> None:
        """Archive acquired records of aborted transactions."""
        start = self.table.start
        changes = self.table.archive_ranges(ranges, with_acquired=True)
        self._persist(start, changes)

    def _persist(self, start: int, changes: Sequence[StateChange]) -> None:
        """Persist changes. `start` is the start offset before them."""
        dead, self.table.dead = self.table.dead, []
        write_dead_letters(self._cluster, self._group_id, self.partition, dead)
        state = self._find_state()
        if not changes or state is None or state.state_epoch != self._state_epoch:
            return
        finished = self.table.count_finished() + self.table.start - start
        states = self._cluster.share_states
        states.write_changes(self._group_id, self.key, start, finished, changes)

    # -- waiting -----------------------------------------------------------------------------

    def add_watcher(self, watcher: ShareWatcher) -> None:
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: ShareWatcher) -> None:
        self._watchers.pop(watcher, None)

    def _notify_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher.on_change(1 << 62)

    def _start_timer(self, deadline: float) -> None:
        """Call `_on_lock_end` at a deadline, or earlier if the timer runs.

        The timer goes on when locks are settled or renewed, because to look for the next deadline
        after each acknowledgement takes much longer than to find, once, that no lock has ended.
        """
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        loop = self._cluster.loop
        self._timer = loop.call_at(deadline, self._cluster.call_guarded, self._on_lock_end)

    def _on_lock_end(self) -> None:
        self._timer = None
        if not self.is_led:
            return
        start = self.table.start
        changes = self.table.expire_locks(self._cluster.loop.time(), self.limits)
        self._persist(start, changes)
        deadline = self.table.find_deadline()
        if deadline is not None:
            self._start_timer(deadline)
        if changes:
            self._notify_watchers()
            self._cluster.notify_tests()
