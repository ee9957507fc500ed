"""Co-partitioned topics: partition i of all of them is assigned to the same member, as joins need.

Another strategy, the inner one, computes the assignment. It sees a set of co-partitioned topics as
a single topic: the topic of the set that has the most partitions. Its decision for partition i of
that topic applies to partition i of all topics of the set. User data and owned partitions need no
translation for the inner strategy, because the name is that of a real topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    subscribers,
)
from aiokclient.consumer.assignors.holdings import Holding
from aiokclient.consumer.assignors.sticky import CooperativeSticky, without_transfers
from aiokclient.errors import AssignmentFailedError
from aiokclient.types import TopicPartition, public_in
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.types import GroupMetadata


@public_in("aiokclient")
class CoPartitioned(Assignor):
    """A strategy that assigns equal partition numbers of several topics to the same member.

        Consumer("a", "b", group_id="g", partition_assignment_strategy=CoPartitioned("a", "b"), ...)

    `partition_assignment_strategy="co-partitioned"` is the same as `CoPartitioned()`.
    The inner strategy `by` computes the assignment; the default is a `CooperativeSticky`. If
    topics are given, these are co-partitioned: only members that subscribe to all of them are
    assigned any of their partitions, and the assignment fails if there is no such member. If no
    topics are given, all topics with the same subscribers are co-partitioned. Topics may have
    different numbers of partitions. All members of a group must give the same topics.
    """

    name = "co-partitioned"

    def __init__(self, *topics: str, by: Assignor | None = None) -> None:
        self.by = CooperativeSticky() if by is None else by
        self.topics = tuple(sorted(set(topics)))
        self.name = f"co-partitioned-{self.by.name}"
        self.overlapping = self.by.overlapping
        self.cooperative = self.by.cooperative
        self.version = self.by.version

    def __repr__(self) -> str:
        return f"CoPartitioned({', '.join([*map(repr, self.topics), f'by={self.by.name!r}'])})"

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return the user data of the inner strategy."""
        return self.by.user_data(topics)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Pass the assignment to the inner strategy."""
        self.by.on_assignment(assignment, metadata)

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return the assignment of the inner strategy, extended to all co-partitioned topics.

        Raises AssignmentFailedError if no member subscribes to all of the topics that were given.
        """
        units = {unit.shown: unit for unit in self._make_units(cluster, members)}
        given = self.by.assign(
            AssignmentCluster({name: unit.find_racks(cluster) for name, unit in units.items()}),
            {name: _shown(name, member, units.values()) for name, member in members.items()},
        )
        all_given = {
            name: assignment._replace(partitions=tuple(_expanded(assignment, units, cluster)))
            for name, assignment in given.items()
        }
        if not self.cooperative:
            return all_given
        # The inner strategy saw the owner of only one of these partitions. Another member may
        # still own the others.
        holdings = {name: Holding(one.owned, one.generation_id) for name, one in members.items()}
        return without_transfers(all_given, holdings)

    def _make_units(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Iterator[_Unit]:
        able = subscribers(cluster, members)
        together: dict[object, list[str]] = {}
        for topic, names in able.items():
            key: object = tuple(names)
            if self.topics:
                key = "together" if topic in self.topics else (topic,)
            together.setdefault(key, []).append(topic)
        for topics in together.values():
            # The members that subscribe to all topics of the set, in the order of members.
            subscribed = [set(able[topic]) for topic in topics]
            names = [name for name in able[topics[0]] if all(name in one for one in subscribed)]
            if not names:
                raise AssignmentFailedError(
                    f"Strategy {self.name!r} co-partitions {', '.join(topics)}, but no member "
                    "subscribes to all of these topics. Let each member that reads one of them "
                    "subscribe to all of them, or give other topics to CoPartitioned."
                )
            yield _Unit(max(topics, key=cluster.count), tuple(topics), frozenset(names))


class _Unit(NamedTuple):
    """A set of co-partitioned topics.

    `shown` is the topic that represents the set to the inner strategy. `able` contains the members
    that subscribe to all topics of the set.
    """

    shown: str
    topics: tuple[str, ...]
    able: frozenset[str]

    def find_racks(self, cluster: AssignmentCluster) -> list[frozenset[str]]:
        """Return, for each partition number, the racks with a replica of each of those partitions.

        Topics that have no partition with this number do not count.
        """
        return [
            frozenset.intersection(*map(cluster.racks, self.find_partitions(index, cluster)))
            for index in range(cluster.count(self.shown))
        ]

    def find_partitions(self, index: int, cluster: AssignmentCluster) -> list[TopicPartition]:
        """Return the partitions with this number, of all topics that have one."""
        return [one for topic in self.topics if (one := TopicPartition(topic, index)) in cluster]


def _shown(name: str, member: MemberSubscription, units: Iterable[_Unit]) -> MemberSubscription:
    return member._replace(topics=tuple(unit.shown for unit in units if name in unit.able))


def _expanded(
    assignment: MemberAssignment, units: Mapping[str, _Unit], cluster: AssignmentCluster
) -> Iterator[TopicPartition]:
    for topic, index in assignment.partitions:
        yield from units[topic].find_partitions(index, cluster)
