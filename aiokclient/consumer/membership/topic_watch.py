"""Whether the topics are still as they were when the group shared them out.

Each member answers for what it asked for: a pattern may match topics that were not there then. The
leader answers for the partitions, as it alone knows all that the group reads. Changes that come
close together are one: the group rebalances when nothing has changed for QUIET_S, but at most
LONGEST_S after the first change.
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
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.consumer.state.subscribed_topics import SubscribedTopics

__all__ = ["TopicWatch", "assignable"]

QUIET_S: Final = 0.5
LONGEST_S: Final = 5.0

Layout: TypeAlias = "dict[str, tuple[UUID, int] | None]"


class TopicWatch:
    """`changed(wishes)` is called, plain, when the group should agree anew.

    With `wishes` this member asks for other topics by now; without, it has to share out anew.
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
        """Watches no more. Plain."""
        self._unsubscribe()
        self._cluster.updater.unwant(self)
        self._forget()

    def asked_for(self) -> list[str]:
        """The topics that this member asks for, from now on compared with what it would. Plain."""
        self._forget()
        subscription = self._topics.current
        matching = self._topics.matching(self._cluster.metadata)
        self._matched = matching if subscription.pattern is not None else None
        return matching if subscription.pattern is not None else list(subscription.topics)

    def follows(self) -> None:
        """Another member leads: the partitions are for that one to watch. Plain."""
        self._assigned = None
        self._cluster.updater.unwant(self)

    def leads(self, topics: Iterable[str]) -> None:
        """This member has shared out these topics, as the metadata has them now. Plain."""
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
        """What the two things compared would be by this metadata."""
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
    """For each topic which one it is, and how many partitions it has; None if it is not there."""
    found: Layout = {}
    for name in topics:
        info = metadata.topic(name)
        gone = info is None or metadata.lacks(name, 0)
        found[name] = None if info is None or gone else (info.topic_id, len(info.partitions))
    return found


def assignable(metadata: ClusterMetadata, topics: Iterable[str]) -> AssignmentCluster:
    """What there is to share out: topics that were deleted are not."""
    return AssignmentCluster.of(metadata, [t for t in topics if not metadata.lacks(t, 0)])
