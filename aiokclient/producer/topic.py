"""What the producer knows of one topic: its queues, and where the next record goes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.producer.queue import PartitionQueue
from aiokclient.producer.state import TopicState

if TYPE_CHECKING:
    from aiokclient.cluster.metadata import TopicInfo

__all__ = ["Topic"]


class Topic(TopicState[PartitionQueue]):
    """The queues of a topic. While `known` is false all records wait in `undesignated`."""

    __slots__ = (
        "batch_limit",
        "info",
        "missing_since",
        "moving",
        "undesignated",
    )

    def __init__(self, name: str, batch_limit: int) -> None:
        super().__init__(name)
        self.info: TopicInfo | None = None
        self.undesignated = PartitionQueue(self, None)
        self.moving = False
        """Records are being moved out of `undesignated`."""
        self.missing_since: float | None = None
        """Since when the brokers say that there is no such topic, on the loop's clock."""
        self.batch_limit = batch_limit
        """The size of a batch in bytes; smaller after the broker refused one as too large."""

    @property
    def topic_id(self) -> UUID:
        """Kafka's id of the topic; all zeros where the brokers have no ids."""
        return UUID(int=0) if self.info is None else self.info.topic_id

    def all_queues(self) -> list[PartitionQueue]:
        """The queues of the partitions and the undesignated one."""
        return [*self.queues, self.undesignated]
