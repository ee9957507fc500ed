"""Controls of the embedded cluster that act on groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokclient.testing.broker.groups.coordinator import groups_of
from aiokclient.testing.broker.groups.group import Group, GroupView
from aiokclient.testing.controls.base import Controls
from aiokclient.types import OffsetAndMetadata, TopicPartition


class GroupControls(Controls):
    """Controls that inspect groups, make them rebalance, and keep them loading.

    There are four points at which a coordinator can fail in a rebalance of the classic protocol. In
    each case, a test makes it fail by `move_coordinator(group)`, or by `stop` of its broker. The
    time of that call decides the point:

    1. before the generation is persisted: while the coordinator holds JoinGroup requests
    2. before all members know the generation: after `drop(ApiKey.JOIN_GROUP, when="after")` has
       dropped a response
    3. before the assignments are persisted: while the coordinator holds SyncGroup requests
    4. before all members know the assignments: after `drop(ApiKey.SYNC_GROUP, when="after")` has
       dropped a response
    """

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, which are empty if the group does not exist."""

        def committed() -> dict[TopicPartition, OffsetAndMetadata]:
            found = groups_of(self._state).find(group)
            return {} if found is None else found.offsets.view()

        return self._runner.call(committed)

    @property
    def groups(self) -> dict[str, GroupView]:
        """All groups by group id, in their current state."""
        return self._runner.call(
            lambda: {group.group_id: group.view() for group in groups_of(self._state)}
        )

    def rebalance(self, group: str) -> None:
        """Make the members of a group join again. Nothing happens if it has no members."""

        def rebalance() -> None:
            self._group(group).rebalance()
            self._state.changed()

        self._runner.call(rebalance)

    @contextmanager
    def hold_loading(self, group: str) -> Iterator[None]:
        """Keep the group's coordinator in the loading state within the block, as after a failover.

        Requests that the coordinator already holds are answered with NOT_COORDINATOR, and new ones
        with COORDINATOR_LOAD_IN_PROGRESS. Heartbeats are answered without an error. The session
        timeouts of the members start again at the end of the block.
        """
        self._runner.call(lambda: groups_of(self._state).hold(group))
        try:
            yield
        finally:
            self._runner.post(lambda: groups_of(self._state).release(group))

    def _group(self, group_id: str) -> Group:
        found = groups_of(self._state).find(group_id)
        if found is None:
            names = [each.group_id for each in groups_of(self._state)]
            raise ValueError(f"There is no group {group_id!r}. Groups: {names}.")
        return found
