"""What a share coordinator stores for each share partition: the start offset and finished records.

As with the other coordinators here, the states are kept in one object, which survives the stop of
any broker. A state has two epochs that fence writers: `state_epoch` increases when an
administrator sets or deletes the offsets of the group, and `leader_epoch` is that of the leader
that loaded the state last. `start_offset` is -1 until a leader has written it: a leader that loads
such a state begins where `share.auto.offset.reset` of the group says.

Records that are acquired are not stored as such, but as they were before. The start offset that a
leader writes is the one from before the change. So it may be lower than the first record that is
not finished, and `finished` counts those after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.share.records import RecordState, StateChange

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.testing.broker.share.sessions import SharePartitionKey

UNKNOWN_OFFSET = -1


class StoredRecord(NamedTuple):
    state: RecordState
    deliveries: int


class ShareState:
    """The stored state of one share partition."""

    def __init__(self, state_epoch: int, start_offset: int = UNKNOWN_OFFSET) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = -1
        self.start_offset = start_offset
        self.finished = 0
        """The number of finished records at or after the start offset."""
        self._records: dict[int, StoredRecord] = {}

    def write_changes(
        self, start_offset: int, finished: int, changes: Iterable[StateChange]
    ) -> None:
        """Store what a leader persists."""
        for offset in range(self.start_offset, start_offset):
            self._records.pop(offset, None)
        self.start_offset, self.finished = start_offset, finished
        for each in changes:
            stored = StoredRecord(each.state, each.deliveries)
            for offset in range(each.first, each.last + 1):
                self._records[offset] = stored

    def list_records(self) -> list[StateChange]:
        """Return the stored records as ranges, in the order of their offsets."""
        ranges = []
        ordered = enumerate(sorted(self._records.items()))
        for _, group in groupby(ordered, key=lambda each: (each[1][0] - each[0], each[1][1])):
            items = [item for _, item in group]
            ranges.append(StateChange(items[0][0], items[-1][0], *items[0][1]))
        return ranges


class ShareStates:
    """The states of all share partitions of a cluster."""

    def __init__(self) -> None:
        self._states: dict[str, dict[SharePartitionKey, ShareState]] = {}

    def find_state(self, group_id: str, key: SharePartitionKey) -> ShareState | None:
        return self._states.get(group_id, {}).get(key)

    def list_states(self, group_id: str) -> dict[SharePartitionKey, ShareState]:
        """Return the states of a group."""
        return dict(self._states.get(group_id, {}))

    def create_state(
        self, group_id: str, key: SharePartitionKey, start_offset: int = UNKNOWN_OFFSET
    ) -> ShareState:
        """Create a state, or replace one, which fences the leader that uses it."""
        states = self._states.setdefault(group_id, {})
        before = states.get(key)
        epoch = 0 if before is None else before.state_epoch + 1
        state = states[key] = ShareState(epoch, start_offset)
        return state

    def delete_states(self, group_id: str, topic_id: UUID | None = None) -> bool:
        """Delete the states of a group, or those of one topic. Return whether there were any."""
        states = self._states.get(group_id, {})
        gone = [key for key in states if topic_id in (None, key.topic_id)]
        for key in gone:
            del states[key]
        return bool(gone)

    def delete_topic(self, topic_id: UUID) -> None:
        for group_id in self._states:
            self.delete_states(group_id, topic_id)
