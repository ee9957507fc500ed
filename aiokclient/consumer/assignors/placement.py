"""Which member has which partitions, while a sticky assignment is worked out. Numbers for names.

Thousands of partitions are alike: the same members may get them, at the same distance, and they
come from the same member. They are counted as one lot, so that all work goes by the number of
members and kinds of topics, not of partitions.

What an assignment costs, in order of weight: the squares of the members' loads, which are least
where it is balanced as well as can be; one FAR for each partition on a member whose rack has no
replica of it; one for each partition that is not where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from aiokclient.consumer.assignors.assignor import AssignmentCluster, MemberSubscription
from aiokclient.consumer.assignors.members import in_order, subscribers, uses_racks
from aiokclient.types import TopicPartition

__all__ = ["NOWHERE", "Kind", "Lot", "Placement"]

NOWHERE = -1
"""The home of a partition that no member had."""

Lot: TypeAlias = tuple[int, int]
"""Partitions alike: the number of their kind, and that of the member that had them."""


class Kind(NamedTuple):
    """Partitions that the same members may get; `far` has FAR or 0 for each of these."""

    far: Mapping[int, int]
    near: Sequence[int]
    """Those to whom they are best given: on the rack of a replica, else all."""


class Placement:
    """What each member has. Its changes go through `put` and `take`."""

    def __init__(
        self,
        cluster: AssignmentCluster,
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.names = in_order(members)
        self.load = [0] * len(members)
        self.held: list[dict[Lot, list[TopicPartition]]] = [{} for _ in members]
        self.kinds: list[Kind] = []
        topics = subscribers(cluster, members)
        partitions = [one for topic in topics for one in cluster.partitions(topic)]
        self.far = len(partitions) + 1
        self.heavy = self.far * self.far
        """More than any sum of the lesser costs."""
        self._sort(partitions, topics, _racks(cluster, members, partitions), members, owners)

    def _sort(
        self,
        partitions: Iterable[TopicPartition],
        topics: Mapping[str, list[str]],
        racks: Mapping[TopicPartition, frozenset[str]],
        members: Mapping[str, MemberSubscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        """Give each partition its lot; all begin in `loose`, in order of topic and number."""
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
            # A member that no longer subscribes to the topic is as good as gone.
            lot = kind, home if home in self.kinds[kind].far else NOWHERE
            self.loose.append((lot, partition))

    def _kind(
        self, able: tuple[int, ...], on: frozenset[str] | None, rack: Sequence[str | None]
    ) -> Kind:
        far = {
            member: 0 if on is None or rack[member] is None or rack[member] in on else self.far
            for member in able
        }
        return Kind(far, [member for member in able if not far[member]] or able)

    def put(self, member: int, lot: Lot, partitions: Iterable[TopicPartition]) -> None:
        have = self.held[member].setdefault(lot, [])
        before = len(have)
        have.extend(partitions)
        self.load[member] += len(have) - before

    def take(self, member: int, lot: Lot, count: int) -> list[TopicPartition]:
        """The last ones of the lot, which is gone when it is empty."""
        have = self.held[member][lot]
        taken = have[len(have) - count :]
        del have[len(have) - count :]
        if not have:
            del self.held[member][lot]
        self.load[member] -= count
        return taken

    def cost(self, lot: Lot, source: int, target: int) -> int:
        """What it costs, beside loads, if one partition of the lot goes from one to the other."""
        kind, home = lot
        far = self.kinds[kind].far
        moved = 0 if home == NOWHERE else (home != target) - (home != source)
        return far[target] - far[source] + moved

    def result(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member by its name, sorted."""
        return {
            name: sorted(partition for have in lots.values() for partition in have)
            for name, lots in zip(self.names, self.held, strict=True)
        }


def _racks(
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, frozenset[str]]:
    """The racks of each partition among those of the members; nothing where they do not matter."""
    on = frozenset(member.rack for member in members.values() if member.rack)
    racks = {partition: cluster.racks(partition) for partition in partitions}
    if not on or not uses_racks(on, list(racks.values())):
        return {}
    return {partition: found & on for partition, found in racks.items()}
