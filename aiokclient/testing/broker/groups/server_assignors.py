"""The assignors that brokers run for groups of the consumer protocol (KIP-848), as pure functions.

`uniform` balances all partitions over all members. `range` assigns consecutive partitions of each
topic to each member. If topics have the same size, a member gets the same partition indexes of
each. The results have the same properties as those of Apache Kafka 4: `uniform` moves no more
partitions than balance requires. If members subscribe to different topics, it continues until no
chain of moves makes the loads of two members more equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID


class PartitionId(NamedTuple):
    """A partition, identified by its topic id and its index."""

    topic_id: UUID
    partition: int


PartitionIds: TypeAlias = frozenset[PartitionId]


class Subscriber(NamedTuple):
    """A member as an assignor sees it: its topics, and its previous assignment."""

    topics: frozenset[UUID]
    target: PartitionIds = frozenset()
    instance_id: str | None = None


Subscribers: TypeAlias = Mapping[str, Subscriber]
Sizes: TypeAlias = Mapping[UUID, int]
"""The number of partitions of each topic. Topics that are missing do not exist."""


def assign_range(members: Subscribers, sizes: Sizes) -> dict[str, PartitionIds]:
    """Assign ranges of each topic. Static members come first, ordered by instance id."""
    order = sorted(members, key=lambda each: _rank_member(each, members[each]))
    given: dict[str, list[PartitionId]] = {each: [] for each in members}
    for topic in sorted(sizes):
        wanting = [each for each in order if topic in members[each].topics]
        if not wanting:
            continue
        least, extra = divmod(sizes[topic], len(wanting))
        start = 0
        for index, member in enumerate(wanting):
            end = start + least + (index < extra)
            given[member].extend(PartitionId(topic, each) for each in range(start, end))
            start = end
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _rank_member(member_id: str, member: Subscriber) -> tuple[bool, str]:
    instance = member.instance_id
    return (instance is None, member_id if instance is None else instance)


def assign_uniform(members: Subscribers, sizes: Sizes) -> dict[str, PartitionIds]:
    """Make the loads of members as equal as their subscriptions allow, by the fewest moves."""
    if not members:
        return {}
    if len({each.topics for each in members.values()}) == 1:
        return _assign_alike(members, sizes)
    return _Mixed(members, sizes).assign_all()


def _list_partitions(topics: Iterable[UUID], sizes: Sizes) -> list[PartitionId]:
    chosen = sorted(each for each in topics if each in sizes)
    return [PartitionId(topic, index) for topic in chosen for index in range(sizes[topic])]


def _assign_alike(members: Subscribers, sizes: Sizes) -> dict[str, PartitionIds]:
    """Assign partitions if all members subscribe to the same topics.

    Each member keeps partitions up to a quota. If it has fewer, it gets free ones.
    """
    partitions = _list_partitions(next(iter(members.values())).topics, sizes)
    exists = frozenset(partitions)
    least, extra = divmod(len(partitions), len(members))
    kept = {member: sorted(each.target & exists) for member, each in members.items()}
    # Members that have more than the minimum keep one more, while such extra partitions exist.
    by_size = sorted(members, key=lambda member: len(kept[member]) <= least)
    quota = {member: least + (index < extra) for index, member in enumerate(by_size)}
    given = {member: kept[member][: quota[member]] for member in members}
    taken = {partition for each in given.values() for partition in each}
    free = iter([partition for partition in partitions if partition not in taken])
    for member, each in given.items():
        while len(each) < quota[member]:
            each.append(next(free))
    return {member: frozenset(each) for member, each in given.items()}


class _Mixed:
    """The assignment of members that subscribe to different topics.

    Each free partition is assigned to the least loaded member that wants it. Then chains of moves
    balance the loads.
    """

    def __init__(self, members: Subscribers, sizes: Sizes) -> None:
        self.topics = sorted(sizes)
        self.sizes = sizes
        self.wanting = {
            topic: [each for each in members if topic in members[each].topics]
            for topic in self.topics
        }
        self.given: dict[str, dict[UUID, list[int]]] = {each: {} for each in members}
        self.load = dict.fromkeys(members, 0)
        for member_id, member in members.items():
            for topic, index in sorted(member.target):
                if topic in member.topics and index < sizes.get(topic, 0):
                    self._give_partition(member_id, topic, index)

    def _give_partition(self, member: str, topic: UUID, index: int) -> None:
        self.given[member].setdefault(topic, []).append(index)
        self.load[member] += 1

    def _move_partition(self, source: str, topic: UUID, to: str) -> None:
        index = self.given[source][topic].pop()
        self.load[source] -= 1
        if not self.given[source][topic]:
            del self.given[source][topic]
        self._give_partition(to, topic, index)

    def assign_all(self) -> dict[str, PartitionIds]:
        self._assign_free_partitions()
        while any(
            self._level_loads(member) for member in sorted(self.load, key=self._find_heaviest)
        ):
            pass
        return {
            member: frozenset(
                PartitionId(topic, index) for topic in topics for index in topics[topic]
            )
            for member, topics in self.given.items()
        }

    def _find_heaviest(self, member: str) -> int:
        return -self.load[member]

    def _assign_free_partitions(self) -> None:
        taken = {
            (topic, index)
            for topics in self.given.values()
            for topic, indexes in topics.items()
            for index in indexes
        }
        for topic in sorted(self.topics, key=lambda each: len(self.wanting[each])):
            for index in range(self.sizes[topic]):
                if (topic, index) not in taken and self.wanting[topic]:
                    self._give_partition(
                        min(self.wanting[topic], key=self.load.__getitem__), topic, index
                    )

    def _level_loads(self, source: str) -> bool:
        """Move partitions along a chain from `source` to a member that has at least two fewer.

        Each member of the chain gives one partition to the next member. Return whether there is
        such a chain.
        """
        came: dict[str, tuple[str, UUID]] = {}
        seen: set[UUID] = set()
        queue = deque([source])
        while queue:
            member = queue.popleft()
            if self.load[member] <= self.load[source] - 2:
                while member != source:
                    before, topic = came[member]
                    self._move_partition(before, topic, member)
                    member = before
                return True
            for topic in self.given[member]:
                if topic in seen:
                    continue
                seen.add(topic)
                for other in self.wanting[topic]:
                    if other != source and other not in came:
                        came[other] = (member, topic)
                        queue.append(other)
        return False


Assign: TypeAlias = Callable[[Subscribers, Sizes], dict[str, PartitionIds]]

SERVER_ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by name. The first one is the default, as in Kafka."""
