"""What a member is to have and what it owns: by topic id to the group, by name to the consumer.

The names of ids come with the metadata. An id that is not there yet is a topic that the
coordinator knows of and this client does not; it is asked for until it is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.consumer.membership.kip848.heartbeat import TopicIdPartition, TopicIdPartitions
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.consumer.state.subscribed_topics import SubscribedTopics

__all__ = ["PartitionAssignment"]


class PartitionAssignment:
    """`target` is what the coordinator wants this member to have, `owned` what it has."""

    def __init__(self, cluster: ClusterClient, topics: SubscribedTopics, *, hide: bool) -> None:
        self.target: TopicIdPartitions = frozenset()
        self.owned: dict[TopicIdPartition, TopicPartition] = {}
        self._cluster = cluster
        self._topics = topics
        self._hide = hide
        self._basis: tuple[object, ...] = ()
        self._found: tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]] = (
            {},
            [],
        )

    def told(self) -> TopicIdPartitions:
        """What is owned, as the coordinator is told."""
        return frozenset(self.owned)

    def differs(self) -> bool:
        """Whether there is anything to give up or to take."""
        known, unknown = self._wanted()
        return bool(unknown) or known.keys() != self.owned.keys()

    def to_give_up(self) -> dict[TopicIdPartition, TopicPartition]:
        """What is owned and not to be."""
        known, _ = self._wanted()
        return {partition: tp for partition, tp in self.owned.items() if partition not in known}

    def to_take(self) -> dict[TopicIdPartition, TopicPartition]:
        """What is to be owned and is not, of topics whose names are known."""
        known, _ = self._wanted()
        # A topic that was made anew has to be given up under its old id first.
        have = set(self.owned.values())
        return {
            partition: tp
            for partition, tp in known.items()
            if partition not in self.owned and tp not in have
        }

    def unknown(self) -> bool:
        """Whether there are ids without a name."""
        return bool(self._wanted()[1])

    def _wanted(self) -> tuple[dict[TopicIdPartition, TopicPartition], list[TopicIdPartition]]:
        """The target by name, and what of it has none.

        The brokers match internal topics with a pattern as any other. Here they are left out, as
        from a pattern that is matched here; the group takes them as read.
        """
        metadata, pattern = self._cluster.metadata, self._topics.current.pattern
        basis = (self.target, metadata.version, pattern, len(self.owned))
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
        for partition in sorted(self.target):
            name = metadata.names.get(partition.topic_id)
            info = None if name is None else metadata.topic(name)
            if name is None or info is None:
                # A topic that is deleted is owned until the coordinator says otherwise.
                owned = self.owned.get(partition)
                if owned is None:
                    unknown.append(partition)
                else:
                    known[partition] = owned
            elif not (hide and info.internal):
                known[partition] = TopicPartition(name, partition.partition)
        return known, unknown
