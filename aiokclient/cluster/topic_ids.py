"""The choice of the topic that a name stands for, when brokers disagree.

A topic that is deleted and created again has another id, and brokers learn of that at different
times. Ids have no order, so one response does not show which of two ids is the newer one. A broker
with outdated metadata may return a topic that was deleted long ago, with fewer partitions and other
leaders. Therefore an id in a response that differs from the known one is *disputed* at first. It is
accepted when the next response, if possible from another broker, has the same id. It is accepted
immediately

- if the known topic was reported as nonexistent, or its leader did not know its id;
- after all connections were lost at the same time, because the cluster may have been replaced;
- in a cluster with another cluster id.

Within one topic, the leader epochs decide (see `metadata`). Brokers older than 2.8 return no ids.
There, a topic that was created again has only lower epochs or fewer partitions, which is also what
an outdated response shows. It is accepted when `CONFIRMED` consecutive responses agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.cluster.metadata import ABSENT, ClusterMetadata, TopicInfo, differ

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

__all__ = ["TopicIds"]

CONFIRMED = 4
"""The number of consecutive responses after which lower epochs or fewer partitions are accepted.

It applies to topics without ids.
"""


class TopicIds:
    """The disputed topic ids, and their removal from metadata responses."""

    def __init__(self) -> None:
        self._rivals: dict[str, UUID] = {}
        """The disputed id of each topic in the last response."""
        self._doubted: dict[UUID, None] = {}
        self._older: dict[str, int] = {}
        """For each topic without id, the number of consecutive responses that look older."""
        self._anew: set[str] = set()

    def take_anew(self) -> frozenset[str]:
        """Return the topics of the last response that replace known ones of the same name."""
        taken = frozenset(self._anew)
        self._anew.clear()
        return taken

    def doubt(self, topic_id: UUID) -> None:
        """Accept the next id of this topic immediately, because a leader does not know this one."""
        if topic_id.int:
            self._doubted[topic_id] = None

    def doubt_all(self, known: ClusterMetadata) -> None:
        """Accept the next ids of all topics immediately: the cluster may be another one."""
        self._doubted.update(dict.fromkeys(known.names))

    def settle(self, known: ClusterMetadata, answer: MetadataResponse) -> list[str]:
        """Replace disputed topics in a response by the known ones, and return their names.

        These topics must be requested again.
        """
        if differ(known.cluster_id, answer.cluster_id):
            self._rivals.clear()
            self._older.clear()
            return []
        disputed = [entry for entry in answer.topics or () if self._disputed(known, entry)]
        names = []
        for entry in disputed:
            assert entry.name is not None
            names.append(entry.name)
            # With the known id and without partitions, the entry changes nothing.
            entry.topic_id = known.topics[entry.name].topic_id
            entry.partitions = []
        for entry in answer.topics or ():
            info = None if entry.name is None else known.topics.get(entry.name)
            if info is not None and self._goes_back(info, entry):
                names.append(info.name)
        return names

    def _goes_back(self, info: TopicInfo, entry: MetadataResponseTopic) -> bool:
        """Return whether a response about a topic without id needs confirmation by another one."""
        self._anew.discard(info.name)
        if entry.error_code or info.error or info.topic_id.int or entry.topic_id.int:
            self._older.pop(info.name, None)
            return False
        if not _is_older(info, entry):
            self._older.pop(info.name, None)
            return False
        times = self._older[info.name] = self._older.get(info.name, 0) + 1
        if times < CONFIRMED:
            return True
        del self._older[info.name]
        self._anew.add(info.name)
        return False

    def _disputed(self, known: ClusterMetadata, entry: MetadataResponseTopic) -> bool:
        info = None if entry.name is None else known.topics.get(entry.name)
        if info is None or entry.error_code or not info.topic_id.int or not entry.topic_id.int:
            return False
        if info.topic_id == entry.topic_id:
            self._rivals.pop(info.name, None)
            self._doubted.pop(info.topic_id, None)
            return False
        doubted = info.topic_id in self._doubted or info.error in ABSENT
        if doubted or self._rivals.get(info.name) == entry.topic_id:
            self._rivals.pop(info.name, None)
            self._doubted.pop(info.topic_id, None)
            return False
        self._rivals[info.name] = entry.topic_id
        return True


def _is_older(info: TopicInfo, entry: MetadataResponseTopic) -> bool:
    """Return whether a response has fewer partitions or lower leader epochs than known."""
    known = info.partitions
    last = max((part.partition_index for part in entry.partitions), default=len(known))
    return last + 1 < len(known) or any(
        0 <= part.leader_epoch < known[part.partition_index].leader_epoch
        for part in entry.partitions
        if 0 <= part.partition_index < len(known)
    )
