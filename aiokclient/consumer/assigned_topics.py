"""The topics of the assigned partitions. The client keeps these topics in its metadata."""

from __future__ import annotations

from aiokclient.cluster.metadata.updater import MetadataUpdater
from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["AssignedTopics"]


class AssignedTopics:
    """The interest of one consumer in the metadata of topics."""

    def __init__(self, updater: MetadataUpdater, subscription: SubscriptionState) -> None:
        self._updater = updater
        self._subscription = subscription
        self._topics: dict[str, None] = {}

    def want(self) -> None:
        """Request the metadata of the topics that are assigned now, and of no others."""
        topics = dict.fromkeys(tp.topic for tp in self._subscription.partitions)
        if topics == self._topics:
            return
        removed = any(topic not in topics for topic in self._topics)
        self._topics = topics
        if removed:
            self.unwant()
        for topic in topics:
            self._updater.want(topic, self)

    def unwant(self) -> None:
        """Request no metadata of topics any more."""
        self._updater.unwant(self)
