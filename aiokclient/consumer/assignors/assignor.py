"""The interface of an assignor: a pure function of subscriptions and cluster, run by the leader.

Each member sends its subscription when it joins the group. The leader passes the subscriptions of
all members to the assignor that the group has chosen, and sends each member its assignment. An
assignor can send additional data of its own in both directions as user data.

The functions at the end are those that the strategies share: the order of members, the subscribers
of each topic, and whether racks matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from aiokclient.types import TopicPartition, public_in
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.types import GroupMetadata


@public_in("aiokclient")
class MemberSubscription(NamedTuple):
    """The subscription of one member, as the leader of the group receives it.

    `owned` contains the partitions that the member still owns while it joins. Under the eager
    protocol it is empty. `generation_id` is the generation in which the `owned` partitions were
    assigned, or -1 if the member was in no generation yet or its client does not send it. `rack` is
    the member's `client_rack`, and `instance_id` is its `group_instance_id`.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack: str | None = None
    instance_id: str | None = None


@public_in("aiokclient")
class MemberAssignment(NamedTuple):
    """The assignment of one member. Its assignor's `on_assignment` receives `user_data`."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@public_in("aiokclient")
class AssignmentCluster:
    """The topics to be assigned, their partitions, and the racks of their replicas.

    The argument maps each topic to the number of its partitions, or to a list that has the set of
    racks of each partition: `AssignmentCluster({"orders": 6, "clicks": [{"a", "b"}, {"b", "c"}]})`.
    The racks of all replicas count, in sync or not, because a replica that is out of sync usually
    catches up soon (KIP-881).
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
        """Return a cluster with these topics, except those that this snapshot does not have."""
        of_broker = {node: broker.rack for node, broker in metadata.brokers.items()}
        found: dict[str, list[set[str]]] = {}
        for name in topics:
            if (topic := metadata.topics.get(name)) is not None and topic.partitions:
                replicas = [partition.replicas for partition in topic.partitions]
                found[name] = [{r for n in nodes if (r := of_broker.get(n))} for nodes in replicas]
        return cls(found)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(self._racks)

    def count(self, topic: str) -> int:
        """Return the number of partitions of a topic, or 0 if it does not exist."""
        return len(self._racks.get(topic, ()))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in order, or an empty list if it does not exist."""
        return [TopicPartition(topic, index) for index in range(self.count(topic))]

    def racks(self, partition: TopicPartition) -> frozenset[str]:
        """Return the racks that have a replica of the partition; empty if no rack is known."""
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


@public_in("aiokclient")
@runtime_checkable
class Assignor(Protocol):
    """A strategy that distributes partitions among the members of a group. Derive from this class.

    Only `name` and `assign` are required. Each object serves one consumer, because it may store
    the assignment of its member. `assign` itself must be a pure function of its arguments, and
    only the leader of the group calls it. The group uses a strategy that all members offer, the
    first in their order of preference. A name must stand for the same strategy on all members.
    """

    name: str
    """The name by which the members of a group agree on a strategy. An incompatible change of the
    strategy needs a new name."""
    overlapping: bool = False
    """Whether a partition may be assigned to several members. If so, automatic commits are off
    unless `enable_auto_commit` is set."""
    cooperative: bool = False
    """Whether members may keep their partitions while they join (KIP-429). If so, `assign` must not
    assign a partition to one member while another member reports that partition as its own. Such a
    strategy works with the eager protocol, too."""
    version: int = 0
    """The version of the format in which this assignor writes its user data. Only the assignor
    itself uses it."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """Return the user data that this member sends to the leader with its subscription."""
        return None

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """Return the assignments by member id. A member without one is assigned no partitions.

        The cluster contains all existing topics that any member subscribes to. An exception from
        this method is raised unchanged on the leader; other members get `AssignmentFailedError`.
        """
        raise NotImplementedError

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Store this member's assignment. Called before the member takes its partitions."""
        return  # Without a statement, type checkers would consider the method abstract.


class RebalanceProtocol(IntEnum):
    """The way in which members handle their partitions while they join the group (KIP-429)."""

    EAGER = 0
    """Members revoke all partitions before they join, so that no partition has an owner when
    partitions are assigned."""
    COOPERATIVE = 1
    """Members keep their partitions. A partition that is to move is revoked from its owner first,
    and a second rebalance assigns it to another member."""


def rebalance_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that all assignors of a member support.

    A running group changes from eager to cooperative in two rolling restarts: the first one adds
    the cooperative strategy to the old one, and the second one removes the old one. Between the
    two a member uses the eager protocol, regardless of the strategy that the group has chosen.
    """
    cooperative = [assignor.cooperative for assignor in assignors]
    return RebalanceProtocol(bool(cooperative) and all(cooperative))


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the ids of the members: static ones by instance id, then the others by member id.

    A static member gets a new member id when it restarts, but keeps its rank in this order, and
    therefore its assignment (KIP-345).
    """
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member: str, instance: str | None) -> tuple[bool, bytes, bytes]:
    # Java compares strings by UTF-16 code units. A Java leader must compute the same order.
    texts = (member if instance is None else instance, member)
    first, second = (text.encode("utf-16-be", "surrogatepass") for text in texts)
    return instance is None, first, second


def subscribers(
    cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
) -> dict[str, list[str]]:
    """Return the subscribers of each existing topic that has any. Topics and members are sorted."""
    found: dict[str, list[str]] = {topic: [] for topic in cluster.topics if cluster.count(topic)}
    for member in in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            if topic in found:
                found[topic].append(member)
    return {topic: ids for topic, ids in found.items() if ids}


def uses_racks(of_members: frozenset[str], of_partitions: list[frozenset[str]]) -> bool:
    """Return whether racks make a difference to the assignment (KIP-881).

    They make no difference if no member is in a rack that has a replica, or if every rack has a
    replica of every partition.
    """
    union = frozenset().union(*of_partitions)
    return not of_members.isdisjoint(union) and any(racks != union for racks in of_partitions)
