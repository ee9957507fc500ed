"""Controls of the embedded cluster over groups: look at them, disturb them, hold them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokclient.testing.broker.groups.coordinator import groups_of
from aiokclient.testing.broker.groups.group import Group, GroupView
from aiokclient.testing.controls.base import Controls
from aiokclient.types import OffsetAndMetadata, TopicPartition


class GroupControls(Controls):
    """Groups as tests see them. `move_coordinator` stands with the leaders.

    How to meet the four points at which the design of client-side assignment lets a
    coordinator fail, each by `move_coordinator(group)` (or `stop` of its broker):

    1. before the generation is persisted: while JoinGroups are parked
    2. after that, before all members were told: under `drop(ApiKey.JOIN_GROUP, when="after")`
    3. before the assignments are persisted: while SyncGroups are parked
    4. after that, before all members were told: under `drop(ApiKey.SYNC_GROUP, when="after")`
    """

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; empty for one that is not there."""

        def committed() -> dict[TopicPartition, OffsetAndMetadata]:
            found = groups_of(self._state).find(group)
            return {} if found is None else found.offsets.view()

        return self._runner.call(committed)

    @property
    def groups(self) -> dict[str, GroupView]:
        """All groups by their ids, as they are now."""
        return self._runner.call(
            lambda: {group.group_id: group.view() for group in groups_of(self._state)}
        )

    def rebalance(self, group: str) -> None:
        """Make the members of a group join again; nothing happens to one without members."""

        def rebalance() -> None:
            self._group(group).rebalance()
            self._state.changed()

        self._runner.call(rebalance)

    @contextmanager
    def hold_loading(self, group: str) -> Iterator[None]:
        """Within the block the group's coordinator is loading it, as after a failover.

        Whoever waits is told NOT_COORDINATOR, what comes COORDINATOR_LOAD_IN_PROGRESS, but for
        heartbeats, which are answered as if all were well. Sessions begin anew at the end.
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
            raise ValueError(f"there is no group {group_id!r}; there are {names}")
        return found
