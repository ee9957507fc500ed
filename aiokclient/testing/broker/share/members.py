"""A member of a share group, and the journal of what a group writes to `__consumer_offsets`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokclient.testing.broker.groups.server_assignors import PartitionIds
from aiokclient.testing.broker.internal.share_records import (
    ShareMemberChange,
    write_share_group,
)

if TYPE_CHECKING:
    from aiokclient.testing.broker.share.group import ShareGroup

NO_PARTITIONS: PartitionIds = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member as the coordinator knows it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    assigned: PartitionIds = NO_PARTITIONS


class ShareGroupJournal:
    """The state of a group that was written last, so that only changes are written."""

    def __init__(self, group: ShareGroup) -> None:
        self._group = group
        self._members: dict[str, ShareMember] = {}
        self._targets: dict[str, PartitionIds] = {}
        self._epoch = self._target_epoch = -1

    def write_changes(self) -> None:
        """Write what has changed since the last call."""
        group = self._group
        members, targets = dict(group.members), dict(group.targets)
        changes = [
            ShareMemberChange(
                each,
                self._members.get(each),
                members.get(each),
                self._targets.get(each),
                targets.get(each),
            )
            for each in {**self._members, **members}
            if self._members.get(each) != members.get(each)
            or self._targets.get(each) != targets.get(each)
        ]
        epoch = None if group.epoch == self._epoch else group.epoch
        target_epoch = None if group.target_epoch == self._target_epoch else group.target_epoch
        self._members, self._targets = members, targets
        self._epoch, self._target_epoch = group.epoch, group.target_epoch
        if changes or epoch is not None or target_epoch is not None:
            write_share_group(group.cluster, group.group_id, changes, epoch, target_epoch)
