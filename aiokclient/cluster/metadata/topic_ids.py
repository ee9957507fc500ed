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

Within one topic, the leader epochs decide (see `metadata`). But epochs can go back: a leader that
was elected uncleanly has announced an epoch, and has died before the controller has stored it. So a
lower epoch is accepted when `EQUAL` consecutive responses, of several brokers if there are several,
agree on it and its leader, or when they do so for `OLDER_S`. Brokers older than 2.8 return no ids.
There, a topic that was created again has only lower epochs or fewer partitions, which is also what
an outdated response shows. It is accepted when `CONFIRMED` consecutive responses agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.cluster.metadata.snapshot import ABSENT, ClusterMetadata, TopicInfo, differ

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

CONFIRMED = 4
"""The number of consecutive responses after which lower epochs or fewer partitions are accepted.

It applies to topics without ids.
"""
EQUAL = 5
"""The number of equal responses after which a lower leader epoch is accepted."""
OLDER_S = 5.0
"""Seconds of equal responses after which a lower leader epoch is accepted."""


class _LowerEpoch:
    """A leader with a lower epoch than the known one, and the consecutive responses naming it."""

    __slots__ = ("brokers", "count", "leader", "leader_epoch", "since")

    def __init__(self, leader: int, leader_epoch: int, since: float) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.since = since
        self.count = 0
        self.brokers: set[int] = set()


class TopicIds:
    """The disputed topic ids, and their removal from metadata responses."""

    def __init__(self) -> None:
        self._rivals: dict[str, UUID] = {}
        """The disputed id of each topic in the last response."""
        self._doubted: dict[UUID, None] = {}
        self._older: dict[str, int] = {}
        """For each topic without id, the number of consecutive responses that look older."""
        self._anew: set[str] = set()
        self._lower_epochs: dict[tuple[str, int], _LowerEpoch] = {}
        self._accepted_epochs: dict[tuple[str, int], int] = {}
        """The partitions whose lower epochs are accepted, with the known epochs."""

    def take_accepted(self) -> Mapping[tuple[str, int], int]:
        """Return the partitions of the last response whose lower leader epochs are accepted.

        The values are the known epochs that they replace.
        """
        taken, self._accepted_epochs = self._accepted_epochs, {}
        return taken

    def take_anew(self) -> frozenset[str]:
        """Return the topics of the last response that replace known ones of the same name."""
        taken = frozenset(self._anew)
        self._anew.clear()
        return taken

    def doubt_topic_id(self, topic_id: UUID) -> None:
        """Accept the next id of this topic immediately, because a leader does not know this one."""
        if topic_id.int:
            self._doubted[topic_id] = None

    def doubt_all(self, known: ClusterMetadata) -> None:
        """Accept the next ids of all topics immediately: the cluster may be another one."""
        self._doubted.update(dict.fromkeys(known.names))

    def replace_disputed(
        self,
        known: ClusterMetadata,
        answer: MetadataResponse,
        *,
        node_id: int = -1,
        now: float = 0.0,
    ) -> list[str]:
        """Replace disputed topics in a response by the known ones, and return their names.

        These topics must be requested again, as those with a lower leader epoch that is not yet
        accepted. `node_id` is the broker that has sent the response, and `now` is on the monotonic
        clock.
        """
        if differ(known.cluster_id, answer.cluster_id):
            self._rivals.clear()
            self._older.clear()
            self._lower_epochs.clear()
            return []
        disputed = [entry for entry in answer.topics or () if self._is_disputed(known, entry)]
        names = []
        for entry in disputed:
            assert entry.name is not None
            names.append(entry.name)
            # With the known id and without partitions, the entry changes nothing.
            entry.topic_id = known.topics[entry.name].topic_id
            entry.partitions = []
        for entry in answer.topics or ():
            info = None if entry.name is None else known.topics.get(entry.name)
            if info is None:
                continue
            if self._goes_back(info, entry):
                names.append(info.name)
            elif info.topic_id.int and info.topic_id == entry.topic_id and not entry.error_code:
                brokers = len(answer.brokers)
                if self._keeps_lower_epochs(info, entry, node_id, now, brokers):
                    names.append(info.name)
        return names

    def _keeps_lower_epochs(
        self, info: TopicInfo, entry: MetadataResponseTopic, node_id: int, now: float, brokers: int
    ) -> bool:
        """Return whether a lower leader epoch in a response needs confirmation by others."""
        partitions, lower, undecided = info.partitions, self._lower_epochs, False
        for part in entry.partitions:
            index = part.partition_index
            if not 0 <= index < len(partitions):
                continue
            known = partitions[index].leader_epoch
            if not 0 <= part.leader_epoch < known:
                if lower:
                    lower.pop((info.name, index), None)
                continue
            subject = (info.name, index)
            seen = lower.get(subject)
            if seen is None or (seen.leader, seen.leader_epoch) != (
                part.leader_id,
                part.leader_epoch,
            ):
                seen = lower[subject] = _LowerEpoch(part.leader_id, part.leader_epoch, now)
            seen.count += 1
            seen.brokers.add(node_id)
            # A broker that lags is alone with its lower epoch. If the epoch has really gone back,
            # all brokers say so.
            agreed = seen.count >= EQUAL and len(seen.brokers) >= min(brokers, 2)
            if agreed or now - seen.since >= OLDER_S:
                del lower[subject]
                self._accepted_epochs[subject] = known
            else:
                undecided = True
        return undecided

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

    def _is_disputed(self, known: ClusterMetadata, entry: MetadataResponseTopic) -> bool:
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
