"""The topic that a name stands for, where brokers disagree.

A topic that is deleted and created again has another id, and brokers learn of that one after the
other. Ids have no order, so one answer alone does not tell which of two is the newer one: a broker
that lags may name a topic that was deleted long ago, with fewer partitions and other
leaders. So an answer with another id than the known one is *disputed* at first. It counts once the
next answer, from another broker where there is one, names the same id. It counts at once

- where the known topic is said to be gone, or its own leader did not know its id;
- after every connection was lost at one time: the cluster may have been wiped;
- in a cluster with another id.

Within one topic, the leader epochs decide (see `metadata`). Brokers before 2.8 give no ids: there a
topic that was created again shows only by older epochs or fewer partitions, as an outdated
answer does. It counts once `CONFIRMED` answers in a row say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.cluster.metadata import ABSENT, ClusterMetadata, TopicInfo, differ

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

__all__ = ["TopicIds"]

CONFIRMED = 4
"""Answers in a row after which older epochs or fewer partitions of a topic without id count."""


class TopicIds:
    """Takes disputed topics out of answers."""

    def __init__(self) -> None:
        self._rivals: dict[str, UUID] = {}
        """The id that the last answer gave to a topic instead of the known one."""
        self._doubted: dict[UUID, None] = {}
        self._older: dict[str, int] = {}
        """Number of older answers in a row, by topics without ids."""
        self._anew: set[str] = set()

    def take_anew(self) -> frozenset[str]:
        """Return the topics of the last answer that replace those of the same name."""
        taken = frozenset(self._anew)
        self._anew.clear()
        return taken

    def doubt(self, topic_id: UUID) -> None:
        """A leader does not know this id: the next one that is given to the name counts."""
        if topic_id.int:
            self._doubted[topic_id] = None

    def doubt_all(self, known: ClusterMetadata) -> None:
        """The cluster may be another one."""
        self._doubted.update(dict.fromkeys(known.names))

    def settle(self, known: ClusterMetadata, answer: MetadataResponse) -> list[str]:
        """Replace what is disputed in an answer by what is known; return the names.

        They are to be asked for again.
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
            # An answer about the known topic that names no partition leaves all as it is.
            entry.topic_id = known.topics[entry.name].topic_id
            entry.partitions = []
        for entry in answer.topics or ():
            info = None if entry.name is None else known.topics.get(entry.name)
            if info is not None and self._goes_back(info, entry):
                names.append(info.name)
        return names

    def _goes_back(self, info: TopicInfo, entry: MetadataResponseTopic) -> bool:
        """Return whether an answer about a topic without id is to be confirmed by another one."""
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
    """Return whether an answer has fewer partitions or an older leader epoch than known."""
    known = info.partitions
    last = max((part.partition_index for part in entry.partitions), default=len(known))
    return last + 1 < len(known) or any(
        0 <= part.leader_epoch < known[part.partition_index].leader_epoch
        for part in entry.partitions
        if 0 <= part.partition_index < len(known)
    )
