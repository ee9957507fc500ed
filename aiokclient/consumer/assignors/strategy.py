"""The assignors that the option `partition_assignment_strategy` selects.

Two of Kafka's strategies stand here; `sticky` has the others.

`range`: each subscriber of a topic is assigned one range of its partitions.

Topics with the same subscribers and the same number of partitions are co-partitioned: partition i
of all of them is assigned to the same member. The disadvantage is worse balance: the first members
get one more partition of every topic whose partitions do not divide evenly.

With racks (KIP-881), members are first assigned partitions that have a replica in their rack,
within the same limits. The remaining partitions are assigned as they are without racks, and
co-partitioned topics remain co-partitioned. The order of the steps is that of Kafka's
RangeAssignor, so that the same input gives the same result, whichever client leads the group.

`roundrobin`: partitions are assigned to the members in turn.

Members that do not subscribe to a topic are skipped, so the assignment is balanced only if all
members subscribe to the same topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    in_order,
    subscribers,
    uses_racks,
)
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.errors import ConfigError
from aiokclient.types import AssignorLike, TopicPartition, shortened, text_problem


class Range(Assignor):
    """Kafka's default strategy, which assigns each member a range of each topic's partitions."""

    name = "range"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return the same assignment as Kafka's RangeAssignor."""
        topics = [
            _TopicShares(topic, cluster, {member: members[member].rack or None for member in ids})
            for topic, ids in subscribers(cluster, members).items()
        ]
        if any(topic.uses_racks for topic in topics):
            _match_racks(topics)
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in topics:
            topic.deal_partitions(lambda member, index: True)
            for member, indexes in topic.given.items():
                given[member] += [TopicPartition(topic.name, index) for index in indexes]
        return {member: MemberAssignment(tuple(sorted(given[member]))) for member in members}


class _TopicShares:
    """A topic during the assignment: the members' remaining shares, and unassigned partitions."""

    def __init__(
        self, name: str, cluster: AssignmentCluster, members: Mapping[str, str | None]
    ) -> None:
        self.name = name
        self.members = members
        self.racks = [cluster.racks(partition) for partition in cluster.partitions(name)]
        self.left = dict.fromkeys(range(len(self.racks)))
        self.given: dict[str, list[int]] = {member: [] for member in members}
        self._share, self._larger = divmod(len(self.racks), len(members))
        on = frozenset(rack for rack in members.values() if rack is not None)
        self.uses_racks = uses_racks(on, self.racks)

    def count_room(self, member: str) -> int:
        return self._share + (self._larger > 0) - len(self.given[member])

    def is_near(self, member: str, index: int) -> bool:
        rack = self.members[member]
        return rack is None or rack in self.racks[index]

    def give_partitions(self, member: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            del self.left[index]
            self.given[member].append(index)
        if len(self.given[member]) > self._share:
            self._larger -= 1

    def deal_partitions(self, may: Callable[[str, int], bool]) -> None:
        """Assign remaining partitions to the members, in order, up to the share of each one.

        `may(member, index)` returns whether the member may be assigned that partition.
        """
        for member in self.members:
            if not self.left:
                return
            fitting = (index for index in self.left if may(member, index))
            # A member that gets nothing must not use up one of the larger shares.
            if taken := list(islice(fitting, max(0, self.count_room(member)))):
                self.give_partitions(member, taken)


def _match_racks(topics: Iterable[_TopicShares]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_TopicShares]] = {}
    for topic in topics:
        alike.setdefault((tuple(topic.members), len(topic.racks)), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].uses_racks:
            group[0].deal_partitions(group[0].is_near)


def _match_together(topics: list[_TopicShares]) -> None:
    """Assign all partitions with the same number to the first member whose rack has them all."""
    members = list(topics[0].members)
    for index in range(len(topics[0].racks)):
        for member in members:
            if all(
                topic.is_near(member, index) and topic.count_room(member) > 0 for topic in topics
            ):
                for topic in topics:
                    topic.give_partitions(member, [index])
                if not any(topic.count_room(member) > 0 for topic in topics):
                    members.remove(member)
                break


class RoundRobin(Assignor):
    """A strategy that assigns partitions to the members in turn. As in Kafka, it ignores racks."""

    name = "roundrobin"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Return the same assignment as Kafka's RoundRobinAssignor."""
        ring = in_order(members)
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turn = 0
        for topic, ids in subscribers(cluster, members).items():
            subscribed = set(ids)
            for partition in cluster.partitions(topic):
                while ring[turn] not in subscribed:
                    turn = (turn + 1) % len(ring)
                given[ring[turn]].append(partition)
                turn = (turn + 1) % len(ring)
        return {member: MemberAssignment(tuple(given[member])) for member in members}


BUILT_IN: dict[str, type[Assignor]] = {
    kind.name: kind for kind in (Range, RoundRobin, Sticky, CooperativeSticky)
}
"""Kafka's assignors, by name. A test compares them with the option's values."""
NAMED: dict[str, type[Assignor]] = {
    **BUILT_IN,
    **{kind.name: kind for kind in (Redundant, CoPartitioned)},
}
"""The assignors that can be selected by name."""


def make_assignors(
    strategies: Iterable[str | type[AssignorLike] | AssignorLike],
) -> tuple[Assignor, ...]:
    """Return one assignor for each strategy, in the same order of preference.

    Names and classes are instantiated for this consumer. Raises ConfigError for a value that is
    not an assignor, for a class whose constructor requires arguments, and if two assignors have
    the same name.
    """
    made: dict[str, Assignor] = {}
    for strategy in strategies:
        assignor = _made(strategy)
        if not isinstance(assignor.name, str) or not assignor.name:
            raise ConfigError(
                f"partition_assignment_strategy: the name of {_called(strategy)} is "
                f"{assignor.name!r}. It must be a string that is not empty."
            )
        if problem := text_problem(assignor.name):
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} has the name "
                f"{shortened(assignor.name)}. {problem}"
            )
        if assignor.name in made:
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} has the name "
                f"{assignor.name!r}, as does another one in the list. Each name may occur once."
            )
        made[assignor.name] = assignor
    return tuple(made.values())


def _made(strategy: str | type[AssignorLike] | AssignorLike) -> Assignor:
    made: object = strategy
    if isinstance(strategy, str):
        made = NAMED[strategy]() if strategy in NAMED else None
    elif isinstance(strategy, type):
        try:
            made = strategy()
        except TypeError as error:
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} cannot be made without "
                f"arguments ({error}). Give an instance of it instead of the class."
            ) from error
    if not isinstance(made, Assignor):
        raise ConfigError(
            f"partition_assignment_strategy: {_called(strategy)} is not an assignor. Use one of "
            f"{', '.join(map(repr, NAMED))}, a class derived from aiokclient.Assignor, or an "
            "instance of one."
        )
    return made


def _called(strategy: object) -> str:
    if isinstance(strategy, str):
        return repr(strategy)
    return getattr(strategy, "__qualname__", type(strategy).__qualname__)
