"""The detection of changes to a group's topics since they were assigned.

Each member watches its subscription, because a pattern may match new topics. The leader also
watches the partition counts of all topics that the group reads, because no other member knows them
all. Several changes cause one rebalance: it begins when nothing has changed for QUIET_S, and at
most LONGEST_S after the first change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokclient.background import Callbacks
from aiokclient.consumer.assignors import AssignmentCluster

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.topics import SubscribedTopics

__all__ = ["TopicWatch", "assignable"]

QUIET_S: Final = 0.5
LONGEST_S: Final = 5.0

Layout: TypeAlias = "dict[str, tuple[UUID, int] | None]"


class TopicWatch:
    """A watch that calls `changed(topics)` when the group needs new assignments.

    The argument is True if this member now subscribes to other topics, and False if it is the
    leader and has to assign again. The call is synchronous.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topics: SubscribedTopics,
        changed: Callable[[bool], None],
        callbacks: Callbacks,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._changed = changed
        self._callbacks = callbacks
        self._matched: list[str] | None = None
        self._assigned: Layout | None = None
        self._seen: tuple[object, object] | None = None
        self._first = 0.0
        self._timer: asyncio.TimerHandle | None = None
        observe = callbacks.guard(lambda old, new: self._observe(new))
        self._unsubscribe = cluster.updater.subscribe(observe)

    def stop(self) -> None:
        """Stop watching. Synchronous."""
        self._unsubscribe()
        self._cluster.updater.unwant(self)
        self._forget()

    def asked_for(self) -> list[str]:
        """Return the topics for this member's subscription, and watch them from now on."""
        self._forget()
        subscription = self._topics.current
        matching = self._topics.matching(self._cluster.metadata)
        self._matched = matching if subscription.pattern is not None else None
        return matching if subscription.pattern is not None else list(subscription.topics)

    def follows(self) -> None:
        """Stop watching the partitions, because another member leads. Synchronous."""
        self._assigned = None
        self._cluster.updater.unwant(self)

    def leads(self, topics: Iterable[str]) -> None:
        """Watch these topics, which this member has just assigned. Synchronous."""
        names = list(topics)
        self._cluster.updater.unwant(self)
        for name in names:
            self._cluster.updater.want(name, self)
        self._assigned = layout(self._cluster.metadata, names)

    def _observe(self, metadata: ClusterMetadata) -> None:
        picture = self._picture(metadata)
        if picture == (self._matched, self._assigned):
            self._forget()
        elif picture != self._seen:
            self._seen = picture
            now = asyncio.get_running_loop().time()
            if self._timer is None:
                self._first = now
            else:
                self._timer.cancel()
            when = min(now + QUIET_S, self._first + LONGEST_S)
            self._timer = self._callbacks.at(when, self._report)

    def _picture(self, metadata: ClusterMetadata) -> tuple[object, object]:
        """Return the matched topics and the partitions of assigned ones, in this metadata."""
        matched = None if self._matched is None else self._topics.matching(metadata)
        return matched, None if self._assigned is None else layout(metadata, self._assigned)

    def _report(self) -> None:
        self._forget()
        matched, _ = self._picture(self._cluster.metadata)
        self._changed(matched != self._matched)

    def _forget(self) -> None:
        self._seen = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def layout(metadata: ClusterMetadata, topics: Iterable[str]) -> Layout:
    """Return the id and the partition count of each topic, or None if the topic does not exist."""
    found: Layout = {}
    for name in topics:
        info = metadata.topic(name)
        gone = info is None or metadata.lacks(name, 0)
        found[name] = None if info is None or gone else (info.topic_id, len(info.partitions))
    return found


def assignable(metadata: ClusterMetadata, topics: Iterable[str]) -> AssignmentCluster:
    """Return the topics that can be assigned, without those that were deleted."""
    return AssignmentCluster.of(metadata, [t for t in topics if not metadata.lacks(t, 0)])
