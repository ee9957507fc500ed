"""What an assignor is: a pure function of subscriptions and cluster, run by a group's leader.

Each member sends its subscription when it joins; the leader gives the subscriptions of all to the
assignor that the group has chosen, and sends each member what it gets. What an assignor wants to
know of a member beyond that travels as user data, both ways.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.types import GroupMetadata

__all__ = [
    "AssignmentCluster",
    "Assignor",
    "MemberAssignment",
    "MemberSubscription",
    "RebalanceProtocol",
    "rebalance_protocol",
]


class MemberSubscription(NamedTuple):
    """What the leader knows of a member.

    `owned` are the partitions that it still holds while it joins: none under the eager protocol.
    `generation_id` is the one in which it got them, -1 if it never was in any, or its client does
    not tell. `rack` is its `client_rack`, `instance_id` its `group_instance_id`.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack: str | None = None
    instance_id: str | None = None


class MemberAssignment(NamedTuple):
    """What a member gets; `user_data` goes to its assignor's `on_assignment`."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class AssignmentCluster:
    """The topics that are to be assigned, their partitions, and the racks of the replicas.

    Made of the number of each topic's partitions, or of the racks of each of its partitions:
    `AssignmentCluster({"orders": 6, "clicks": [{"a", "b"}, {"b", "c"}]})`. Racks are those of all
    replicas, in sync or not: a replica that is behind now is not behind for long (KIP-881).
    """

    __slots__ = ("_racks",)

    def __init__(self, topics: Mapping[str, int | Sequence[Collection[str]]]) -> None:
        self._racks: dict[str, tuple[frozenset[str], ...]] = {}
        for topic in sorted(topics):
            given = topics[topic]
            racks = [()] * given if isinstance(given, int) else given
            self._racks[topic] = tuple(map(frozenset, racks))

    @classmethod
    def of(cls, metadata: ClusterMetadata, topics: Iterable[str]) -> AssignmentCluster:
        """Those of the topics that exist, as this snapshot of the cluster has them."""
        of_broker = {node: broker.rack for node, broker in metadata.brokers.items()}
        found: dict[str, list[set[str]]] = {}
        for name in topics:
            if (topic := metadata.topics.get(name)) is not None and topic.partitions:
                replicas = [partition.replicas for partition in topic.partitions]
                found[name] = [{r for n in nodes if (r := of_broker.get(n))} for nodes in replicas]
        return cls(found)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self._racks)

    def count(self, topic: str) -> int:
        """How many partitions the topic has: 0 if it does not exist."""
        return len(self._racks.get(topic, ()))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions in order; none if it does not exist."""
        return [TopicPartition(topic, index) for index in range(self.count(topic))]

    def racks(self, partition: TopicPartition) -> frozenset[str]:
        """The racks that have a replica of the partition; empty if none is known."""
        return self._racks[partition.topic][partition.partition]

    def __contains__(self, partition: TopicPartition) -> bool:
        topic, index = partition
        return 0 <= index < self.count(topic)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AssignmentCluster):
            return NotImplemented
        return self._racks == other._racks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AssignmentCluster({self._racks!r})"


@runtime_checkable
class Assignor(Protocol):
    """A strategy to spread partitions over the members of a group. Derive from it.

    Only `name` and `assign` have to be given. An object serves one consumer, as it may keep what
    its member got; `assign` itself is a pure function of its arguments, and called on the leader
    alone. The group uses a strategy that all members have, the first in their order of
    preference; members with the same name must mean the same by it.
    """

    name: str
    """What the members of a group agree on; a new meaning needs a new name."""
    overlapping: bool = False
    """A partition may go to several members: turns automatic commits off unless asked for."""
    cooperative: bool = False
    """Members may keep what they hold while they join (KIP-429): `assign` must give no partition
    to a member while another says that it owns it. It works with the eager protocol, too."""
    version: int = 0
    """Which encoding of the user data is written; for the assignor's own use."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What the leader is to know of this member, which subscribes to these topics."""
        return None

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """What each member gets, by member id; who is left out gets nothing.

        The cluster has all topics that a member subscribes to and that exist. What it raises
        reaches the caller as it is and the other members as `AssignmentFailedError`.
        """
        raise NotImplementedError

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Called on each member with what it got, before the partitions are taken over."""
        return  # Type checkers take a method without a body for an abstract one.


class RebalanceProtocol(IntEnum):
    """What members do with their partitions while they join, as in KIP-429."""

    EAGER = 0
    """They give up all; whatever is assigned then has no owner."""
    COOPERATIVE = 1
    """They keep all; what is to move is first taken away, and given away in a second rebalance."""


def rebalance_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The highest protocol that all of a member's assignors support.

    A live group goes from eager to cooperative in two rounds of restarts: one that adds the
    cooperative strategy beside the old one, and one that takes the old one away. Between them a
    member is eager, whichever strategy the group uses.
    """
    cooperative = [assignor.cooperative for assignor in assignors]
    return RebalanceProtocol(bool(cooperative) and all(cooperative))
