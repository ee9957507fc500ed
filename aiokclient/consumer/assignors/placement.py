"""The partitions of each member while a sticky assignment is computed.

Members and kinds of partitions are represented by their indexes.

Thousands of partitions are often alike: they may be assigned to the same members, have replicas in
the same racks, and had the same owner. Such partitions form one lot, so that the work depends on
the number of members and kinds of partitions, not on the number of partitions.

The cost of an assignment has three parts, in order of weight: the sum of the squares of the
members' loads, which is lowest for the most balanced assignment; `far` for each partition on a
member whose rack has no replica of it; and 1 for each partition that has left its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    MemberSubscription,
    in_order,
    subscribers,
    uses_racks,
)
from aiokclient.types import TopicPartition

__all__ = ["NOWHERE", "PartitionKind", "Lot", "Placement"]

NOWHERE = -1
"""The index of the home of partitions that have no previous owner."""

Lot: TypeAlias = tuple[int, int]
"""A set of equivalent partitions, as a pair of indexes: that of their kind, and that of their home.

The home is the member that owned them before.
"""


class PartitionKind(NamedTuple):
    """The properties that the partitions of one kind share.

    `far` has each member that may be assigned these partitions. The value is `Placement.far` if the
    member's rack has no replica, otherwise 0.
    """

    far: Mapping[int, int]
    near: Sequence[int]
    """The preferred members: those in the rack of a replica, or all members if there are none."""


class Placement:
    """The partitions and the load of each member. Only `put` and `take` change them."""

    def __init__(
        self,
        cluster: AssignmentCluster,
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.names = in_order(members)
        self.load = [0] * len(members)
        self.held: list[dict[Lot, list[TopicPartition]]] = [{} for _ in members]
        self.kinds: list[PartitionKind] = []
        topics = subscribers(cluster, members)
        partitions = [one for topic in topics for one in cluster.partitions(topic)]
        self.far = len(partitions) + 1
        self.heavy = self.far * self.far
        """The weight of the loads, which is more than any sum of the two other costs."""
        self._sort(partitions, topics, _racks(cluster, members, partitions), members, owners)

    def _sort(
        self,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, list[str]],
        racks: Mapping[TopicPartition, frozenset[str]],
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        """Determine the lot of each partition and fill `loose`, sorted by topic and partition."""
        number = {name: index for index, name in enumerate(self.names)}
        rack = [members[name].rack or None for name in self.names]
        able = {topic: tuple(number[name] for name in names) for topic, names in topics.items()}
        known: dict[tuple[tuple[int, ...], frozenset[str] | None], int] = {}
        self.loose: list[tuple[Lot, TopicPartition]] = []
        for partition in partitions:
            key = able[partition.topic], racks.get(partition)
            if (kind := known.get(key)) is None:
                kind = known[key] = len(self.kinds)
                self.kinds.append(self._kind(*key, rack))
            home = number.get(owners.get(partition, ""), NOWHERE)
            # An owner that no longer subscribes to the topic cannot be assigned the partition.
            lot = kind, home if home in self.kinds[kind].far else NOWHERE
            self.loose.append((lot, partition))

    def _kind(
        self, able: tuple[int, ...], on: frozenset[str] | None, rack: Sequence[str | None]
    ) -> PartitionKind:
        far = {
            member: 0 if on is None or rack[member] is None or rack[member] in on else self.far
            for member in able
        }
        return PartitionKind(far, [member for member in able if not far[member]] or able)

    def put(self, member: int, lot: Lot, partitions: Iterable[TopicPartition]) -> None:
        have = self.held[member].setdefault(lot, [])
        before = len(have)
        have.extend(partitions)
        self.load[member] += len(have) - before

    def take(self, member: int, lot: Lot, count: int) -> list[TopicPartition]:
        """Remove the last `count` partitions of a lot from a member, and return them."""
        have = self.held[member][lot]
        taken = have[len(have) - count :]
        del have[len(have) - count :]
        if not have:
            del self.held[member][lot]
        self.load[member] -= count
        return taken

    def cost(self, lot: Lot, source: int, target: int) -> int:
        """Return the cost of moving one partition of the lot, without the cost of the loads."""
        kind, home = lot
        far = self.kinds[kind].far
        moved = 0 if home == NOWHERE else (home != target) - (home != source)
        return far[target] - far[source] + moved

    def result(self) -> dict[str, list[TopicPartition]]:
        """Return the sorted partitions of each member, by member id."""
        return {
            name: sorted(partition for have in lots.values() for partition in have)
            for name, lots in zip(self.names, self.held, strict=True)
        }


def _racks(
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, frozenset[str]]:
    """Return the racks of each partition, limited to racks of members.

    The result is empty if racks make no difference to the assignment.
    """
    on = frozenset(member.rack for member in members.values() if member.rack)
    racks = {partition: cluster.racks(partition) for partition in partitions}
    if not on or not uses_racks(on, list(racks.values())):
        return {}
    return {partition: found & on for partition, found in racks.items()}
