"""The bridge from assignors of aiokafka to those of aiokclient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from aiokclient import (
    AssignmentCluster,
    Assignor,
    GroupMetadata,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.adapters.aiokafka.cluster import ClusterMetadata
from aiokclient.adapters.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokclient.adapters.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

Given = type[AbstractPartitionAssignor] | AbstractPartitionAssignor


class BuiltInAssignor(AbstractPartitionAssignor):
    """A strategy of Kafka, which aiokclient has under the same name.

    In a consumer, aiokclient's is used. `assign` is for programs that call it themselves or derive
    from it: it assigns in turn.
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 0

    @classmethod
    def assign(
        cls,
        cluster: ClusterMetadata,
        members: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return an assignment of all partitions in turn."""
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        order, position = sorted(members), 0
        topics = {topic for each in members.values() for topic in each.subscription}
        for topic in sorted(topics):
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                while topic not in members[order[position % len(order)]].subscription:
                    position += 1
                shares[order[position % len(order)]].setdefault(topic, []).append(partition)
                position += 1
        return {
            member: ConsumerProtocolMemberAssignment(cls.version, sorted(share.items()), b"")
            for member, share in shares.items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the subscription to these topics."""
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: the strategy needs no earlier assignment."""


class BridgedAssignor(Assignor):
    """A strategy of the program, as aiokclient uses it."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.name: str = given.name  # type: ignore[assignment]

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return the user data of the program's strategy."""
        return self._given.metadata(topics).user_data

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """Return the assignment of the program's strategy."""
        known = ClusterMetadata()
        known.add_partitions({topic: cluster.count(topic) for topic in cluster.topics})
        subscriptions = {
            member: ConsumerProtocolMemberMetadata(0, list(each.topics), each.user_data)
            for member, each in members.items()
        }
        assigned = self._given.assign(known, subscriptions)
        return {
            member: MemberAssignment(tuple(each.partitions()), each.user_data)
            for member, each in assigned.items()
        }

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Pass the assignment on to the program's strategy."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in assignment.partitions:
            by_topic.setdefault(topic, []).append(partition)
        self._given.on_assignment(
            ConsumerProtocolMemberAssignment(0, sorted(by_topic.items()), assignment.user_data)
        )


def as_strategies(given: Sequence[Given]) -> list[Any]:
    """Return the strategies of a native consumer. Raises TypeError for what is no assignor."""
    strategies: list[Any] = []
    for each in given:
        kind = each if isinstance(each, type) else type(each)
        if not issubclass(kind, AbstractPartitionAssignor):
            raise TypeError(f"{each!r} is not an assignor.")
        own = vars(kind).get("assign") is not None or BuiltInAssignor not in kind.__bases__
        strategies.append(BridgedAssignor(each) if own else str(kind.name))
    return strategies
