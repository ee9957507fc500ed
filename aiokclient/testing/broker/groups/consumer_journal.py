"""The changes of a group of the consumer protocol, which it writes to `__consumer_offsets`.

Changes are collected while a request is handled, and written together when it has been handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.testing.broker.internal.records import (
    MemberChange,
    write_consumer_group,
    write_deleted_consumer_group,
)

if TYPE_CHECKING:
    from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
    from aiokclient.testing.broker.groups.consumer_member import ConsumerMember
    from aiokclient.testing.broker.groups.server_assignors import PartitionIds


class ConsumerGroupJournal:
    """The state of one group that was written last, and the members that have changed since."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._members: dict[str, ConsumerMember] = {}
        self._targets: dict[str, PartitionIds] = {}
        self._computed = group.targets
        """The targets of the group when they were written last, to recognize new ones."""
        self._epoch = self._target_epoch = -1
        self._changed: dict[str, None] = {}
        self._is_deleted = False

    def add_change(self, member_id: str) -> None:
        """Note that a member has joined, changed, or gone."""
        self._changed[member_id] = None

    def write_changes(self) -> None:
        """Write what has changed since the last call."""
        group = self._group
        computed = group.targets is not self._computed
        epoch = None if group.epoch == self._epoch else group.epoch
        target_epoch = None if group.target_epoch == self._target_epoch else group.target_epoch
        unchanged = epoch is None and target_epoch is None
        if (unchanged and not self._changed and not computed) or self._is_deleted:
            return
        if computed:
            both = {**self._targets, **group.targets}
            self._changed.update(
                (each, None) for each in both if self._targets.get(each) != group.targets.get(each)
            )
        changes = [self._take_change(each) for each in self._changed]
        self._changed.clear()
        self._computed = group.targets
        self._epoch, self._target_epoch = group.epoch, group.target_epoch
        write_consumer_group(group.cluster, group.group_id, changes, epoch, target_epoch)

    def _take_change(self, member_id: str) -> MemberChange:
        group = self._group
        before, target_before = self._members.get(member_id), self._targets.get(member_id)
        after, target_after = group.members.get(member_id), group.targets.get(member_id)
        if after is None:
            self._members.pop(member_id, None)
        else:
            self._members[member_id] = after
        if target_after is None:
            self._targets.pop(member_id, None)
        else:
            self._targets[member_id] = target_after
        return MemberChange(member_id, before, after, target_before, target_after)

    def write_deletion(self) -> None:
        """Write that the group was deleted. Nothing is written about it afterwards."""
        group = self._group
        changes = [
            MemberChange(each, member, None, self._targets.get(each), None)
            for each, member in self._members.items()
        ]
        self._is_deleted = True
        write_deleted_consumer_group(group.cluster, group.group_id, changes)
