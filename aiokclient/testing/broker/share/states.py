"""The state that a share coordinator stores for each share partition: start offset and records.

As with the other coordinators here, the states are kept in one object, which survives the stop of
any broker. What is written to `__share_group_state` is for readers. `state_epoch` is the epoch of
the group in which a state was created, or set by an administrator. It fences leaders that loaded an
earlier one. `start_offset` is -1 until a leader has written it: a leader that loads
such a state begins where `share.auto.offset.reset` of the group says.

Records that are acquired are not stored as such, but as they were before. The start offset that a
leader writes is the one from before the change. So it may be lower than the first record that is
not finished, and `finished` counts those after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.internal.share_records import (
    ShareSnapshot,
    write_share_state,
    write_share_topics,
)
from aiokclient.testing.broker.share.records import RecordState, StateChange

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.testing.broker.share.sessions import SharePartitionKey
    from aiokclient.testing.broker.state import ClusterState

UNKNOWN_OFFSET = -1
_PATIENCE_S = 61.0
"""Seconds for which Kafka's leaders try to reach a share coordinator."""
_UPDATES = "share.coordinator.snapshot.update.records.per.snapshot"


class StoredRecord(NamedTuple):
    state: RecordState
    deliveries: int


class ShareState:
    """The stored state of one share partition."""

    def __init__(self, state_epoch: int, start_offset: int, created_ms: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = 0
        self.start_offset = start_offset
        self.finished = UNKNOWN_OFFSET if start_offset == UNKNOWN_OFFSET else 0
        """The number of finished records at or after the start offset."""
        self.snapshot_epoch = 0
        """The number of snapshots before the last one."""
        self.updates = 0
        """The number of updates since the last snapshot."""
        self.created_ms = created_ms
        self._records: dict[int, StoredRecord] = {}

    def write_changes(
        self, start_offset: int, finished: int, changes: Iterable[StateChange]
    ) -> None:
        """Store what a leader persists."""
        # A group may begin far from where its state did, so that a loop over offsets may be long.
        passed = range(self.start_offset, start_offset)
        gone = passed if len(passed) < len(self._records) else list(self._records)
        for offset in gone:
            if offset in passed:
                self._records.pop(offset, None)
        self.start_offset, self.finished = start_offset, finished
        for each in changes:
            stored = StoredRecord(each.state, each.deliveries)
            for offset in range(each.first, each.last + 1):
                self._records[offset] = stored

    def list_records(self) -> list[StateChange]:
        """Return the stored records as ranges, in the order of their offsets."""
        return _join_ranges(
            StateChange(offset, offset, *each) for offset, each in sorted(self._records.items())
        )

    def make_snapshot(self, changes: Sequence[StateChange]) -> ShareSnapshot:
        """Return what is written: changes, or all stored records."""
        return ShareSnapshot(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.finished,
            self.created_ms,
            changes,
        )


def _join_ranges(changes: Iterable[StateChange]) -> list[StateChange]:
    """Join adjacent ranges with the same state and count."""
    joined: list[StateChange] = []
    for each in changes:
        before = joined[-1] if joined else None
        if before is not None and before.last + 1 == each.first and before[2:] == each[2:]:
            joined[-1] = before._replace(last=each.last)
        else:
            joined.append(each)
    return joined


class ShareStates:
    """The states of all share partitions of a cluster.

    Like Kafka's share coordinators, it writes each change to `__share_group_state`: an update, or
    after many of them a snapshot.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._states: dict[str, dict[SharePartitionKey, ShareState]] = {}
        self._held: Counter[str | None] = Counter()
        """The groups whose share coordinators a test keeps unavailable; None stands for all."""
        self._waiting: list[asyncio.Future[None]] = []

    # -- availability ------------------------------------------------------------------------

    def is_available(self, group_id: str) -> bool:
        """Return whether the share coordinator answers for a group."""
        return not (self._held[group_id] or self._held[None])

    async def wait_until_available(self, group_id: str) -> bool:
        """Wait for the share coordinator, and return whether it answers before leaders give up."""
        loop = self._cluster.loop
        deadline = loop.time() + _PATIENCE_S
        while not self.is_available(group_id) and loop.time() < deadline:
            woken = loop.create_future()
            self._waiting.append(woken)
            timer = loop.call_at(deadline, _wake, woken)
            try:
                await woken
            finally:
                timer.cancel()
                self._waiting.remove(woken)
        return self.is_available(group_id)

    def hold(self, group_id: str | None) -> None:
        """Make the share coordinator unavailable for a group, or for all with None.

        It lasts until each call of this has its call of `release`.
        """
        self._held[group_id] += 1

    def release(self, group_id: str | None) -> None:
        self._held[group_id] -= 1
        self._held += Counter()
        for each in self._waiting:
            _wake(each)

    def release_all(self) -> None:
        for group_id in list(self._held.elements()):
            self.release(group_id)

    # -- states ------------------------------------------------------------------------------

    def find_state(self, group_id: str, key: SharePartitionKey) -> ShareState | None:
        return self._states.get(group_id, {}).get(key)

    def list_states(self, group_id: str) -> dict[SharePartitionKey, ShareState]:
        """Return the states of a group."""
        return dict(self._states.get(group_id, {}))

    def list_partitions(self, group_id: str) -> dict[UUID, list[int]]:
        """Return the partitions of which a group has states, by topic."""
        topics: dict[UUID, list[int]] = {}
        for key in sorted(self._states.get(group_id, {})):
            topics.setdefault(key.topic_id, []).append(key.partition)
        return topics

    def create_states(
        self, group_id: str, starts: Mapping[SharePartitionKey, int], state_epoch: int
    ) -> None:
        """Create states, or replace them, which fences leaders that use earlier ones.

        `state_epoch` is the epoch of the group.
        """
        creating: dict[UUID, list[int]] = {}
        for key in starts:
            creating.setdefault(key.topic_id, []).append(key.partition)
        existing = self.list_partitions(group_id)
        write_share_topics(self._cluster, group_id, creating=creating, existing=existing)
        states = self._states.setdefault(group_id, {})
        for key, start_offset in starts.items():
            before = states.get(key)
            state = ShareState(state_epoch, start_offset, self._cluster.clock.time_ms())
            if before is not None:
                state.snapshot_epoch = before.snapshot_epoch + 1
            states[key] = state
            self._write_state(group_id, key, state)
        existing = self.list_partitions(group_id)
        write_share_topics(self._cluster, group_id, existing=existing)

    def write_changes(
        self,
        group_id: str,
        key: SharePartitionKey,
        start_offset: int,
        finished: int,
        changes: Sequence[StateChange],
    ) -> None:
        """Store and write what the leader of a share partition persists."""
        state = self._states[group_id][key]
        state.write_changes(start_offset, finished, changes)
        state.updates += 1
        most = self._cluster.configs.read_number(_UPDATES)
        if state.updates > most:
            state.snapshot_epoch, state.updates = state.snapshot_epoch + 1, 0
            self._write_state(group_id, key, state)
        else:
            update = state.make_snapshot(_join_ranges(changes))
            write_share_state(self._cluster, group_id, *key, update, is_update=True)

    def _write_state(self, group_id: str, key: SharePartitionKey, state: ShareState) -> None:
        snapshot = state.make_snapshot(state.list_records())
        write_share_state(self._cluster, group_id, *key, snapshot)

    def delete_states(self, group_id: str, topic_id: UUID | None = None) -> bool:
        """Delete the states of a group, or those of one topic. Return whether there were any."""
        states = self._states.get(group_id, {})
        gone = [key for key in states if topic_id in (None, key.topic_id)]
        if not gone:
            return False
        for key in gone:
            del states[key]
            write_share_state(self._cluster, group_id, *key, None)
        topics = dict.fromkeys(key.topic_id for key in gone)
        existing = self.list_partitions(group_id)
        write_share_topics(self._cluster, group_id, existing=existing, deleting=topics)
        if topic_id is not None:
            write_share_topics(self._cluster, group_id, existing=existing)
        return True

    def delete_topic(self, topic_id: UUID) -> None:
        for group_id in self._states:
            self.delete_states(group_id, topic_id)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
