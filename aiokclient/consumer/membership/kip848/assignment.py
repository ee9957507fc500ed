"""What a member should own and what it owns: by topic id to the group, by name to the consumer.

The names come with the metadata. An id without a name is a topic that the coordinator knows and
this client does not know yet; metadata is requested until the name is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokclient.consumer.membership.kip848.heartbeat import TopicIdPartition, TopicIdPartitions
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.consumer.state.subscribed_topics import SubscribedTopics

__all__ = ["PartitionAssignment"]


class PartitionAssignment:
    """The target that the coordinator has set for a member, and the partitions that it owns."""

    def __init__(self, cluster: ClusterClient, topics: SubscribedTopics, *, hide: bool) -> None:
        self._target: TopicIdPartitions = frozenset()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self.assigned_at = -math.inf
        """The time at which the heartbeat was sent that was answered with the target."""
        self._cluster = cluster
        self._topics = topics
        self._hide = hide
        self._basis: tuple[object, ...] = ()
        self._found: tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]] = (
            {},
            [],
        )

    @property
    def owned(self) -> Mapping[TopicIdPartition, TopicPartition]:
        return self._owned

    def set_target(self, target: TopicIdPartitions, sent_at: float) -> bool:
        """Take the target of a response; return whether it differs from the one before."""
        if target == self._target:
            return False
        self._target, self.assigned_at = target, sent_at
        return True

    def forget_target(self) -> None:
        """Expect nothing any more, because the membership has ended."""
        self._target = frozenset()

    def take(self, added: Mapping[TopicIdPartition, TopicPartition]) -> None:
        """Record that these partitions are owned."""
        self._owned.update(added)

    def drop(self, gone: Iterable[TopicIdPartition]) -> None:
        """Record that these partitions are no longer owned."""
        for partition in gone:
            self._owned.pop(partition, None)

    def reported(self) -> TopicIdPartitions:
        """Return what is owned, as the coordinator is told."""
        return frozenset(self._owned)

    def differs(self) -> bool:
        """Return whether there is anything to revoke or to take."""
        known, unknown = self._wanted()
        return bool(unknown) or known.keys() != self._owned.keys()

    def to_revoke(self) -> dict[TopicIdPartition, TopicPartition]:
        """Return what is owned and not in the target."""
        known, _ = self._wanted()
        return {each: tp for each, tp in self._owned.items() if each not in known}

    def to_take(self) -> dict[TopicIdPartition, TopicPartition]:
        """Return what is in the target and not owned, of topics whose names are known."""
        known, _ = self._wanted()
        # A topic that was created again has to be revoked under its old id first.
        have = set(self._owned.values())
        return {
            each: tp for each, tp in known.items() if each not in self._owned and tp not in have
        }

    def has_unknown_topics(self) -> bool:
        """Return whether the target has topic ids without a name."""
        return bool(self._wanted()[1])

    def _wanted(self) -> tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]]:
        """Return the target by name, and the part of it that has no name.

        Brokers match a pattern with internal topics as well. They are left out here, as from a
        pattern that the client matches, and the group takes them for read.
        """
        metadata, pattern = self._cluster.metadata, self._topics.current.pattern
        basis = (self._target, metadata.version, pattern, len(self._owned))
        if basis != self._basis:
            # Looked up once for many heartbeats: there may be very many partitions.
            self._basis = basis
            self._found = self._look(metadata, self._hide and pattern is not None)
        return self._found

    def _look(
        self, metadata: ClusterMetadata, hide: bool
    ) -> tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]]:
        known: dict[TopicIdPartition, TopicPartition] = {}
        unknown: list[TopicIdPartition] = []
        for partition in sorted(self._target):
            name = metadata.names.get(partition.topic_id)
            info = None if name is None else metadata.topic(name)
            if name is None or info is None:
                # A deleted topic is owned until the coordinator takes it away.
                owned = self._owned.get(partition)
                if owned is None:
                    unknown.append(partition)
                else:
                    known[partition] = owned
            elif not (hide and info.internal):
                known[partition] = TopicPartition(name, partition.partition)
        return known, unknown
