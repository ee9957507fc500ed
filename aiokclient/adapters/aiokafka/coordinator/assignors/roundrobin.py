"""The strategy "roundrobin"."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.coordinator.assignors.bridge import BuiltInAssignor


class RoundRobinPartitionAssignor(BuiltInAssignor):
    """The strategy that assigns the partitions of all topics in turn, as Kafka's own clients do."""

    name = "roundrobin"
