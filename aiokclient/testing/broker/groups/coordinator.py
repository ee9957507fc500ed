"""All groups of an embedded cluster, each on the broker that coordinates it.

Which broker that is `ClusterState.coordinator_of` says. When it changes, because a broker went
or came or a test moved the group, `settle` takes the group from the old one to the new. While a
test holds a group in loading, its coordinator has not got it yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import GROUP_OPTIONS, Configs, ConfigSource
from aiokclient.testing.broker.groups.classic import ClassicGroup
from aiokclient.testing.broker.groups.consumer_group import ConsumerGroup
from aiokclient.testing.broker.groups.group import Group
from aiokclient.testing.broker.groups.migration import downgrade, upgrade

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.state import ClusterState


_MOST_ITEMS = 100_000
_ARRAYS = ("protocols", "members", "assignments", "subscribed_topic_names")


class GroupCoordinator:
    """The coordinators of all brokers in one.

    persist: whether a coordinator that takes over finds generations and members. Committed
    offsets it finds in any case.
    resync: whether a leader may give a new assignment within a generation.
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

    def check(self, call: Call, group_id: str, *, named: bool = True) -> int:
        """Return the error that a test asked for, or `reachable`.

        INVALID_REQUEST for more members, protocols or topics than any group could have.
        """
        if _items(call.request) > _MOST_ITEMS:
            return Code.INVALID_REQUEST
        return call.refused() or self.reachable(call, group_id, named=named)

    def reachable(self, call: Call, group_id: str, *, named: bool = True) -> int:
        """Why the broker that got this request cannot answer for the group; 0 if it can.

        With `named` an empty id is refused.
        """
        if named and not group_id:
            return Code.INVALID_GROUP_ID
        if self._cluster.coordinator_of(group_id) is not call.broker:
            return Code.NOT_COORDINATOR
        if group_id in self._held:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        group = self._groups.get(group_id)
        if group is not None:
            self._settle(group)
        return Code.NONE

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def on(self, broker: Node) -> list[Group]:
        """The groups that a broker has loaded."""
        self.settle()
        return [group for group in self if group.node == broker.node_id]

    def configs_of(self, group_id: str, *, keep: bool) -> Configs:
        """Return the configs of a group, which need not exist; with `keep`, to be changed."""
        configs = self._configs.get(group_id)
        if configs is None:
            configs = Configs(GROUP_OPTIONS, ConfigSource.GROUP, self._cluster.configs)
            if keep:
                self._configs[group_id] = configs
        return configs

    def is_loading(self, broker: Node) -> bool:
        """Whether there are groups of this broker that it has not read yet."""
        return any(self._cluster.coordinator_of(each) is broker for each in self._held)

    # -- groups ----------------------------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup:
        """A new classic group of this id, or one that takes an empty group's place."""
        group = ClassicGroup(self._cluster, group_id)
        self.put(group)
        return group

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group of this id.

        It is a new one if there is none or one without members, and what a group of classic
        consumers becomes. Raises Refused.
        """
        known = self._groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        group = ConsumerGroup(self._cluster, group_id, self.downgraded)
        if isinstance(known, ClassicGroup) and not known.is_empty:
            upgrade(known, group)
        self.put(group)
        group.load()
        return group

    def downgraded(self, group: ConsumerGroup) -> ClassicGroup:
        """The classic group that a consumer group becomes, of which all members are classic."""
        classic = ClassicGroup(self._cluster, group.group_id)
        self.put(classic)
        downgrade(group, classic)
        return classic

    def put(self, group: Group) -> None:
        """Take a group in; it gets the offsets of the one with its id, whose place it takes."""
        before = self._groups.get(group.group_id)
        if before is not None:
            group.offsets = before.offsets
            before.unload()
        self._groups[group.group_id] = group
        broker = self._cluster.coordinator_of(group.group_id)
        group.node = None if broker is None else broker.node_id

    def remove(self, group: Group) -> None:
        """Delete a group and all its offsets."""
        group.unload()
        self._groups.pop(group.group_id, None)

    # -- coordinators ----------------------------------------------------------------------

    def settle(self) -> None:
        """Take each group to its coordinator, after brokers or coordinators changed."""
        for group in self:
            self._settle(group)

    def _settle(self, group: Group) -> None:
        broker = self._cluster.coordinator_of(group.group_id)
        node = None if broker is None or group.group_id in self._held else broker.node_id
        if node != group.node:
            self._move(group, node)

    def _move(self, group: Group, node: int | None) -> None:
        if group.node is not None:
            group.unload()
            group.node = None
        if node is None:
            return
        if self.persist:
            group.node = node
            group.load()
            return
        # Nothing but the offsets was persisted.
        del self._groups[group.group_id]
        if group.offsets:
            self.classic(group.group_id).offsets = group.offsets

    def hold(self, group_id: str) -> None:
        """Let the coordinator of a group be loading until as many releases come."""
        self._held[group_id] = self._held.get(group_id, 0) + 1
        self.settle()

    def release(self, group_id: str) -> None:
        left = self._held.pop(group_id, 0) - 1
        if left > 0:
            self._held[group_id] = left
        self.settle()

    def release_all(self) -> None:
        self._held.clear()
        self.settle()

    def topic_deleted(self, topic: str) -> None:
        for group in self:
            group.offsets.delete_topic(topic)

    def close(self) -> None:
        """End all timers; the cluster is over."""
        for group in self:
            if group.node is not None:
                group.unload()
                group.node = None


def groups_of(cluster: ClusterState) -> GroupCoordinator:
    """Return the groups of a cluster."""
    groups = cluster.groups
    assert isinstance(groups, GroupCoordinator)
    return groups


def _items(request: Any) -> int:
    """Return the size of the largest array of a group's request."""
    arrays = (getattr(request, name, None) or () for name in _ARRAYS)
    placed = getattr(request, "topic_partitions", None) or ()
    return max(*map(len, arrays), len(placed), sum(len(each.partitions) for each in placed))
