"""The `roundrobin` strategy: partitions are assigned to the members in turn.

Members that do not subscribe to a topic are skipped, so the assignment is balanced only if all
members subscribe to the same topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    in_order,
    subscribers,
)
from aiokclient.types import TopicPartition

__all__ = ["RoundRobin"]


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
