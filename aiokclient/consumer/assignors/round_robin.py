"""`roundrobin`: all partitions in turn over all members, as Kafka's RoundRobinAssignor.

Members that do not subscribe to a topic are passed over, so it is balanced only where all
subscribe to the same topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.consumer.assignors.members import in_order, subscribers
from aiokclient.types import TopicPartition

__all__ = ["RoundRobin"]


class RoundRobin(Assignor):
    """Partitions in turn over the members; racks play no part, as in Kafka."""

    name = "roundrobin"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """The same as Kafka's class gives for the same members and cluster."""
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
