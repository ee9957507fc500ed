"""The order of members, and who may get a topic: what all assignors start from."""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.consumer.assignors.assignor import AssignmentCluster, MemberSubscription

__all__ = ["in_order", "subscribers", "uses_racks"]


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """The ids of the members: static ones by instance id, then the others by member id.

    A static member that restarts gets a new member id, but keeps its place (KIP-345).
    """
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member: str, instance: str | None) -> tuple[bool, bytes, bytes]:
    # By UTF-16 units: Java compares strings so, and leaders of both kinds are to agree.
    texts = (member if instance is None else instance, member)
    first, second = (text.encode("utf-16-be", "surrogatepass") for text in texts)
    return instance is None, first, second


def subscribers(
    cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
) -> dict[str, list[str]]:
    """The topics that exist and have subscribers, sorted, each with its subscribers in order."""
    found: dict[str, list[str]] = {topic: [] for topic in cluster.topics if cluster.count(topic)}
    for member in in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            if topic in found:
                found[topic].append(member)
    return {topic: ids for topic, ids in found.items() if ids}


def uses_racks(of_members: frozenset[str], of_partitions: list[frozenset[str]]) -> bool:
    """Whether racks make a difference (KIP-881).

    They do not where no member is on a partition's rack, or all racks have all partitions.
    """
    union = frozenset().union(*of_partitions)
    return not of_members.isdisjoint(union) and any(racks != union for racks in of_partitions)
