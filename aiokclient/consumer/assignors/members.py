"""Functions that all assignors share: the order of members, and the subscribers of each topic."""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.consumer.assignors.assignor import AssignmentCluster, MemberSubscription

__all__ = ["in_order", "subscribers", "uses_racks"]


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
