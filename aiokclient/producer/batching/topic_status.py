"""The state of a topic: its metadata, its identity, and the limit for its batches."""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from aiokclient.cluster.metadata.snapshot import TopicInfo, differ
from aiokclient.producer.batching.batch_limit import BatchLimit

__all__ = ["TopicStatus"]

NO_ID = UUID(int=0)


class TopicStatus:
    """The state of a topic that all its queues share."""

    __slots__ = (
        "_cluster_id",
        "_known_id",
        "batch_limit",
        "incarnation",
        "info",
        "missing_since",
        "moving",
        "name",
        "recreations",
    )

    def __init__(self, name: str, batch_limit: int) -> None:
        self.name = name
        self.batch_limit = BatchLimit(batch_limit)
        self.info: TopicInfo | None = None
        """The latest metadata of the topic, or None before the first response."""
        self.missing_since: float | None = None
        """The time at which the brokers began to report an error, on the loop's clock."""
        self.moving = False
        """Whether records are being moved to the queues of their partitions."""
        self.incarnation: Hashable = None
        """The topic id, or if the brokers have no topic ids, the cluster id."""
        self.recreations = 0
        """Number of times that the topic was found to be another one of the same name."""
        self._known_id = NO_ID
        """The last topic id that was not all zeros."""
        self._cluster_id: str | None = None

    @property
    def topic_id(self) -> UUID:
        """Kafka's id of the topic; all zeros if the brokers have no topic ids."""
        return NO_ID if self.info is None else self.info.topic_id

    @property
    def partition_count(self) -> int:
        """Number of partitions that the metadata lists."""
        return 0 if self.info is None else len(self.info.partitions)

    def describe(self, info: TopicInfo, now: float) -> bool:
        """Store new metadata. Return whether it is the first to report an error."""
        self.info = info
        if not info.error:
            self.missing_since = None
            return False
        if self.missing_since is not None:
            return False
        self.missing_since = now
        return True

    def identify(self, found: UUID, cluster_id: str | None) -> bool:
        """Store the identity of the topic. Return whether it is a different topic than before.

        If the brokers have no topic ids, only a different cluster id shows a different topic.
        """
        moved = differ(self._cluster_id, cluster_id)
        known = self._known_id
        if not found.int and not moved:
            found = known
        changed = known != found if known.int and found.int else moved
        self.recreations += changed
        self._known_id = found
        self._cluster_id = cluster_id or self._cluster_id
        self.incarnation = found if found.int else self._cluster_id
        return changed

    def begin_moving(self) -> None:
        """Store that the topic's records are being moved to the queues of their partitions."""
        self.moving = True

    def end_moving(self) -> None:
        """Store that all records of the topic were moved to the queues of their partitions."""
        self.moving = False
