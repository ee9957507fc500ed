"""Partitions with the same number of several topics stay on one member, as joins need it.

Topics that belong together are shown to another strategy as one topic, under the name of that with
the most partitions, and what it decides for partition i of this one holds for partition i of all.
What that strategy remembers of a member (user data, owned partitions) needs no translation, as the
name is that of a real topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.consumer.assignors.holdings import Holding
from aiokclient.consumer.assignors.members import subscribers
from aiokclient.consumer.assignors.sticky import CooperativeSticky, without_transfers
from aiokclient.errors import AssignmentFailedError
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.types import GroupMetadata

__all__ = ["CoPartitioned"]


class CoPartitioned(Assignor):
    """Keeps topics together and leaves the rest to `by`, a `CooperativeSticky` if none is given.

    With topics named, these are together, whatever happens: only members that subscribe to all of
    them get any of their partitions, and without such a member the assignment fails. Without
    names, all topics with the same subscribers are together. A topic with fewer partitions than
    another one takes part with those that it has. All members have to name the same topics.
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
        return f"CoPartitioned({', '.join([*map(repr, self.topics), f'by={self.by!r}'])})"

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """That of the strategy behind it."""
        return self.by.user_data(topics)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Handed on to the strategy behind it."""
        self.by.on_assignment(assignment, metadata)

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """What the strategy behind it gives, for all topics that are together."""
        units = {unit.shown: unit for unit in self._units(cluster, members)}
        given = self.by.assign(
            AssignmentCluster({name: unit.racks(cluster) for name, unit in units.items()}),
            {name: _shown(name, member, units.values()) for name, member in members.items()},
        )
        all_given = {
            name: assignment._replace(partitions=tuple(_behind(assignment, units, cluster)))
            for name, assignment in given.items()
        }
        if not self.cooperative:
            return all_given
        # What is not shown may be held by somebody else than what is.
        holdings = {name: Holding(one.owned, one.generation_id) for name, one in members.items()}
        return without_transfers(all_given, holdings)

    def _units(
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
            # In the order of members; of those that subscribe to all.
            subscribed = [set(able[topic]) for topic in topics]
            names = [name for name in able[topics[0]] if all(name in one for one in subscribed)]
            if not names:
                raise AssignmentFailedError(
                    f"Strategy {self.name!r} is to keep {', '.join(topics)} together, but no "
                    "member subscribes to all of them. Subscribe each member that is to get "
                    "their partitions to all of them, or name other topics."
                )
            yield _Unit(max(topics, key=cluster.count), tuple(topics), frozenset(names))


class _Unit(NamedTuple):
    """Topics that are together, the one by which they are shown, and who can have them."""

    shown: str
    topics: tuple[str, ...]
    able: frozenset[str]

    def racks(self, cluster: AssignmentCluster) -> list[frozenset[str]]:
        """For each partition the racks that have all of them."""
        return [
            frozenset.intersection(*map(cluster.racks, self.all(index, cluster)))
            for index in range(cluster.count(self.shown))
        ]

    def all(self, index: int, cluster: AssignmentCluster) -> list[TopicPartition]:
        """The partitions with this number."""
        return [one for topic in self.topics if (one := TopicPartition(topic, index)) in cluster]


def _shown(name: str, member: MemberSubscription, units: Iterable[_Unit]) -> MemberSubscription:
    return member._replace(topics=tuple(unit.shown for unit in units if name in unit.able))


def _behind(
    assignment: MemberAssignment, units: Mapping[str, _Unit], cluster: AssignmentCluster
) -> Iterator[TopicPartition]:
    for topic, index in assignment.partitions:
        yield from units[topic].all(index, cluster)
