"""The strategy "sticky"."""

from __future__ import annotations

from aiokclient.adapters.aiokafka.coordinator.assignors.bridge import BuiltInAssignor


class StickyPartitionAssignor(BuiltInAssignor):
    """The strategy that moves as few partitions as possible, as Kafka's own clients do."""

    name = "sticky"
