"""Controls of the embedded cluster that act on groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.groups.group import Group, GroupView
from aiokclient.testing.controls.base import Controls
from aiokclient.types import OffsetAndMetadata, TopicPartition

SHARE_LEVELS = (0, 1, 2)


def check_share_level(level: int) -> int:
    """Return a level of share.version. Raises ValueError for one that does not exist."""
    if level not in SHARE_LEVELS:
        raise ValueError(f"share_version={level!r} is not valid. Use 0, 1, or 2.")
    return level


class GroupControls(Controls):
    """Controls that inspect groups, make them rebalance, and keep their coordinators away.

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

        def find_committed() -> dict[TopicPartition, OffsetAndMetadata]:
            found = get_groups(self._state).find_group(group)
            return {} if found is None else found.offsets.make_view()

        return self._runner.call_in_loop(find_committed)

    @property
    def groups(self) -> dict[str, GroupView]:
        """All groups by group id, in their current state."""
        return self._runner.call_in_loop(
            lambda: {group.group_id: group.make_view() for group in get_groups(self._state)}
        )

    def rebalance(self, group: str) -> None:
        """Make the members of a group join again. Nothing happens if it has no members."""

        def rebalance_group() -> None:
            self._require_group(group).rebalance()
            self._state.notify_tests()

        self._runner.call_in_loop(rebalance_group)

    @contextmanager
    def hold_loading(self, group: str) -> Iterator[None]:
        """Keep the group's coordinator in the loading state within the block, as after a failover.

        Requests that the coordinator already holds are answered with NOT_COORDINATOR, and new ones
        with COORDINATOR_LOAD_IN_PROGRESS. Heartbeats are answered without an error. The session
        timeouts of the members start again at the end of the block.
        """
        self._runner.call_in_loop(lambda: get_groups(self._state).hold_loading(group))
        try:
            yield
        finally:
            self._runner.post_to_loop(lambda: get_groups(self._state).release_loading(group))

    @contextmanager
    def hold_share_coordinator(self, group: str | None = None) -> Iterator[None]:
        """Keep the share coordinator unavailable within the block, for one group or for all.

        What members of share groups accept, release, or reject waits for the end of the block, and
        their connections with it. After 61 seconds, as in Kafka, the records have the error
        COORDINATOR_NOT_AVAILABLE. Their locks may have ended then, and others get them. Renewals
        and fetches go on, except from partitions that the group has not fetched before. The calls
        of `Admin` go on, too, which is not so in Kafka.
        """
        states = self._state.share_states
        self._runner.call_in_loop(lambda: states.hold(group))
        try:
            yield
        finally:
            self._runner.post_to_loop(lambda: states.release(group))

    @property
    def share_version(self) -> int:
        """The level of the finalized feature share.version."""
        return self._runner.call_in_loop(lambda: self._state.share_level)

    def set_share_version(self, level: int) -> None:
        """Change the level of the finalized feature share.version to 0, 1, or 2.

        Clients learn it from their next ApiVersions response, in a higher epoch of the finalized
        features. Level 0 disables share groups and ends all share sessions with their locks; the
        groups and what they have settled stay. Level 1 has no dead letters.
        """
        check_share_level(level)
        self._runner.call_in_loop(lambda: self._state.set_share_level(level))

    def _require_group(self, group_id: str) -> Group:
        found = get_groups(self._state).find_group(group_id)
        if found is None:
            names = [each.group_id for each in get_groups(self._state)]
            raise ValueError(f"There is no group {group_id!r}. Groups: {names}.")
        return found
