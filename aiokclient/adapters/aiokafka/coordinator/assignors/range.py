"""The strategy "range"."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.coordinator.assignors.bridge import BuiltInAssignor


class RangePartitionAssignor(BuiltInAssignor):
    """The strategy that assigns each topic in ranges, topic by topic, as Kafka's own clients do."""

    name = "range"
