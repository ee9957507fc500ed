"""All groups of an embedded cluster, each with the broker that coordinates it.

`ClusterState.find_coordinator` determines the broker. The result changes when a broker stops or
starts, or when a test moves the group. Then `move_to_coordinators` moves the group from the old
broker to the new one. While a test keeps a group loading, its coordinator does not have the group
yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.configs import GROUP_OPTIONS, BrokerConfigSource, Configs
from aiokclient.testing.broker.groups.classic import ClassicGroup
from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.groups.migration import downgrade_group, upgrade_group
from aiokclient.testing.broker.internal.records import write_deleted_offsets
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.share.group import ShareGroup

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.state import ClusterState


_MOST_ITEMS = 100_000
_ARRAYS = ("protocols", "members", "assignments", "subscribed_topic_names")


class GroupCoordinator:
    """The coordinators of all brokers.

    persist: Whether a coordinator that takes over a group finds its generation and its members. It
        finds the committed offsets in any case.
    resync: Whether a leader may send new assignments within a generation.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.persist = True
        self.resync = False
        self._cluster = cluster
        self._groups: dict[str, Group] = {}
        self._held: dict[str, int] = {}
        self._configs: dict[str, Configs] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    # -- requests --------------------------------------------------------------------------

    def check_group(self, call: Call, group_id: str, *, named: bool = True) -> int:
        """Return the error code that a test injected, or the result of `check_reachable`.

        If the request has more members, protocols, or topics than any group can have, return
        INVALID_REQUEST.
        """
        if _count_items(call.request) > _MOST_ITEMS:
            return Code.INVALID_REQUEST
        return call.find_refusal() or self.check_reachable(call, group_id, named=named)

    def check_reachable(self, call: Call, group_id: str, *, named: bool = True) -> int:
        """Return the error code if the broker cannot answer this request for the group, or 0.

        If `named` is true, an empty group id is refused.
        """
        if code := call.check_authorization(AclResource.GROUP, group_id):
            return code
        if named and not group_id:
            return Code.INVALID_GROUP_ID
        if self._cluster.find_coordinator(group_id) is not call.broker:
            return Code.NOT_COORDINATOR
        if group_id in self._held:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        group = self._groups.get(group_id)
        if group is not None:
            self._move_if_needed(group)
        return Code.NONE

    def find_group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def list_loaded(self, broker: Node) -> list[Group]:
        """Return the groups that a broker has loaded."""
        self.move_to_coordinators()
        return [group for group in self if group.node == broker.node_id]

    @property
    def ids_with_configs(self) -> list[str]:
        """The ids of the groups that have configs of their own."""
        return [name for name, configs in self._configs.items() if configs.values]

    def find_configs(self, group_id: str, *, keep: bool) -> Configs:
        """Return the configs of a group, or new ones if it has none.

        If `keep` is true, the new ones are stored as those of the group.
        """
        configs = self._configs.get(group_id)
        if configs is None:
            configs = Configs(GROUP_OPTIONS, BrokerConfigSource.GROUP, self._cluster.configs)
            if keep:
                self._configs[group_id] = configs
        return configs

    def is_loading(self, broker: Node) -> bool:
        """Return whether a broker has groups that it has not loaded yet."""
        return any(self._cluster.find_coordinator(each) is broker for each in self._held)

    # -- groups ----------------------------------------------------------------------------

    def make_classic_group(self, group_id: str) -> ClassicGroup:
        """Return a new classic group, which replaces an empty group with the same id."""
        group = ClassicGroup(self._cluster, group_id)
        self.store_group(group)
        return group

    def get_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group with this id.

        If no group has this id, or if a classic group without members has it, the result is a new
        group. A group of classic consumers is converted. Raises Refused.
        """
        known = self._groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if isinstance(known, ShareGroup):
            text = f"Group {group_id} is not a consumer group."
            raise Refused(Code.GROUP_ID_NOT_FOUND, text)
        group = ConsumerGroup(self._cluster, group_id, self.downgrade_group)
        if isinstance(known, ClassicGroup) and not known.is_empty:
            upgrade_group(known, group)
        self.store_group(group)
        group.load()
        return group

    def get_share_group(self, group_id: str) -> ShareGroup:
        """Return the share group with this id. A new one if no group has it. Raises Refused."""
        known = self._groups.get(group_id)
        if known is None:
            known = ShareGroup(self._cluster, group_id)
            self.store_group(known)
        if not isinstance(known, ShareGroup):
            text = f"Group {group_id} is not a share group."
            raise Refused(Code.GROUP_ID_NOT_FOUND, text)
        return known

    def downgrade_group(self, group: ConsumerGroup) -> ClassicGroup:
        """Return the classic group that replaces a consumer group whose members are all classic."""
        classic = ClassicGroup(self._cluster, group.group_id)
        self.store_group(classic)
        downgrade_group(group, classic)
        return classic

    def store_group(self, group: Group) -> None:
        """Store a group. If it replaces a group with the same id, it gets that group's offsets."""
        before = self._groups.get(group.group_id)
        if before is not None:
            if before.kind is not group.kind:
                before.write_deletion()
            group.offsets = before.offsets
            before.unload()
        self._groups[group.group_id] = group
        broker = self._cluster.find_coordinator(group.group_id)
        group.node = None if broker is None else broker.node_id

    def remove_group(self, group: Group) -> None:
        """Delete a group and all its offsets."""
        write_deleted_offsets(self._cluster, group.group_id, group.offsets)
        group.write_deletion()
        group.unload()
        self._groups.pop(group.group_id, None)

    # -- coordinators ----------------------------------------------------------------------

    def move_to_coordinators(self) -> None:
        """Move each group to its coordinator, after brokers or coordinators changed."""
        for group in self:
            self._move_if_needed(group)

    def _move_if_needed(self, group: Group) -> None:
        broker = self._cluster.find_coordinator(group.group_id)
        node = None if broker is None or group.group_id in self._held else broker.node_id
        if node != group.node:
            self._move_group(group, node)

    def _move_group(self, group: Group, node: int | None) -> None:
        if group.node is not None:
            group.unload()
            group.node = None
        if node is None:
            return
        if self.persist or isinstance(group, ShareGroup):
            group.node = node
            group.load()
            return
        # Only the offsets were persisted.
        del self._groups[group.group_id]
        if group.offsets:
            self.make_classic_group(group.group_id).offsets = group.offsets

    def hold_loading(self, group_id: str) -> None:
        """Keep a group's coordinator in the loading state.

        It lasts until each call of this has its call of `release_loading`.
        """
        self._held[group_id] = self._held.get(group_id, 0) + 1
        self.move_to_coordinators()

    def release_loading(self, group_id: str) -> None:
        left = self._held.pop(group_id, 0) - 1
        if left > 0:
            self._held[group_id] = left
        self._cluster.settle_coordinators()

    def release_all(self) -> None:
        self._held.clear()
        self._cluster.settle_coordinators()

    def on_topic_deleted(self, topic: str) -> None:
        for group in self:
            gone = group.offsets.delete_topic(topic)
            write_deleted_offsets(self._cluster, group.group_id, gone)

    def make_replacement(self) -> GroupCoordinator:
        """Cancel all timers, and return a new object with the same settings and without groups."""
        self.close()
        new = GroupCoordinator(self._cluster)
        new.resync, new.persist = self.resync, self.persist
        return new

    def close(self) -> None:
        """Cancel all timers at the end of the cluster."""
        for group in self:
            if group.node is not None:
                group.unload()
                group.node = None


def get_groups(cluster: ClusterState) -> GroupCoordinator:
    """Return the groups of a cluster."""
    groups = cluster.groups
    assert isinstance(groups, GroupCoordinator)
    return groups


def _count_items(request: Any) -> int:
    """Return the number of elements in the largest array of a request for a group."""
    arrays = (getattr(request, name, None) or () for name in _ARRAYS)
    placed = getattr(request, "topic_partitions", None) or ()
    return max(*map(len, arrays), len(placed), sum(len(each.partitions) for each in placed))
