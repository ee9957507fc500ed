"""What the producer knows of a topic: its metadata, its identity, and the size of its batches."""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from aiokclient.cluster.metadata import TopicInfo, differ
from aiokclient.producer.batching.batch_limit import BatchLimit

__all__ = ["TopicStatus"]

NO_ID = UUID(int=0)


class TopicStatus:
    """The facts about a topic that its queues share."""

    __slots__ = (
        "_cluster_id",
        "_known_id",
        "batch_limit",
        "incarnation",
        "info",
        "missing_since",
        "moving",
        "name",
    )

    def __init__(self, name: str, batch_limit: int) -> None:
        self.name = name
        self.batch_limit = BatchLimit(batch_limit)
        self.info: TopicInfo | None = None
        """The last metadata; None before the first."""
        self.missing_since: float | None = None
        """The time since which the brokers report an error for the topic, on the loop's clock."""
        self.moving = False
        """Whether records are being moved to the queues of their partitions."""
        self.incarnation: Hashable = None
        """Which topic of this name it is: its id, or without ids that of the cluster."""
        self._known_id = NO_ID
        """The last topic id that was not all zeros."""
        self._cluster_id: str | None = None

    @property
    def topic_id(self) -> UUID:
        """Kafka's id of the topic; all zeros where the brokers have no ids."""
        return NO_ID if self.info is None else self.info.topic_id

    @property
    def partition_count(self) -> int:
        """Number of partitions that the metadata lists."""
        return 0 if self.info is None else len(self.info.partitions)

    def describe(self, info: TopicInfo, now: float) -> bool:
        """Take metadata over. Return whether the brokers report an error from now on."""
        self.info = info
        if not info.error:
            self.missing_since = None
            return False
        if self.missing_since is not None:
            return False
        self.missing_since = now
        return True

    def identify(self, found: UUID, cluster_id: str | None) -> bool:
        """Note which topic of this name it is. Return whether it is another one than before.

        Where the brokers have no topic ids, only the id of the cluster tells.
        """
        moved = differ(self._cluster_id, cluster_id)
        known = self._known_id
        if not found.int and not moved:
            found = known
        changed = known != found if known.int and found.int else moved
        self._known_id = found
        self._cluster_id = cluster_id or self._cluster_id
        self.incarnation = found if found.int else self._cluster_id
        return changed

    def begin_moving(self) -> None:
        """Note that records wait to be moved to the queues of their partitions."""
        self.moving = True

    def end_moving(self) -> None:
        """Note that no record waits to be moved any more."""
        self.moving = False
