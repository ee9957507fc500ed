"""The metadata as an immutable snapshot, and the next snapshot after a response. Sans-IO.

A snapshot is replaced and never changed, so that its users see consistent metadata. Some brokers
learn of changes later than others, so a response can be outdated. Therefore:

- A response without any broker changes nothing.
- A partition with a lower leader epoch than the known one keeps the known leader, as long as the
  topic has the same id, until enough responses agree on the lower epoch. Another id under the same
  name is another topic, which keeps nothing of the old one. (Before that, `topic_ids` decides
  which of two ids is the newer one, and which lower epochs are accepted.)
- If the brokers have no topic ids, a topic that did not exist for a time is another topic when it
  exists again. A topic that several consecutive responses describe as older is another topic, too
  (see `topic_ids`).
- If the cluster has another id, nothing of the old snapshot is kept.
- A topic with an error keeps the partitions that were known before, and also has the error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from aiokclient.errors import ProtocolError
from aiokclient.memory import untrack, untrack_whole
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

NO_ID = UUID(int=0)
ABSENT = frozenset({3})
"""Error codes for a topic that does not exist."""
MAX_PARTITION = 1_000_000
"""The highest partition number that is accepted. A higher one indicates a corrupt response."""


class BrokerInfo(NamedTuple):
    """A broker and the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the host and the port are valid, so that a connection is possible."""
        return bool(self.host) and 0 < self.port < 65536


class PartitionInfo(NamedTuple):
    """A partition. `leader` is a broker id or -1, and `error` an error code or 0."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: int = 0


class TopicInfo(NamedTuple):
    """A topic, for whose partitions `partitions[i].index == i`.

    With an `error`, the partitions are those that were known before. `topic_id` is all zeros if
    the brokers are older than 2.8, which have no topic ids.
    """

    name: str
    topic_id: UUID = NO_ID
    internal: bool = False
    error: int = 0
    partitions: tuple[PartitionInfo, ...] = ()


class ClusterMetadata(NamedTuple):
    """A snapshot of the metadata. `version` increases by one with each new snapshot."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = MappingProxyType({})
    topics: Mapping[str, TopicInfo] = MappingProxyType({})
    names: Mapping[UUID, str] = MappingProxyType({})
    version: int = 0

    def find_topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def has_topic(self, topic: str) -> bool:
        """Return whether the topic is known to exist."""
        info = self.topics.get(topic)
        return info is not None and info.error not in ABSENT

    def find_partition(self, topic: str, partition: int) -> PartitionInfo | None:
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        return info.partitions[partition]

    def lacks_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition is known not to exist."""
        info = self.topics.get(topic)
        if info is None:
            return False
        return info.error in ABSENT or (not info.error and partition >= len(info.partitions))

    def find_leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader of a partition, or -1 if it is unknown."""
        info = self.find_partition(topic, partition)
        return -1 if info is None else info.leader

    def find_leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, or -1 if it is unknown."""
        info = self.find_partition(topic, partition)
        return -1 if info is None else info.leader_epoch


class MovedLeader(NamedTuple):
    """A partition whose leader has changed. A broker id is None if there was or is no leader."""

    topic: str
    partition: int
    old_broker: int | None
    broker: int | None


def moved_leaders(old: ClusterMetadata, new: ClusterMetadata) -> Iterator[MovedLeader]:
    """Yield the partitions of both snapshots that have different leaders."""
    for name, topic in new.topics.items():
        known = old.find_topic(name)
        if known is None or known is topic:
            continue
        for before, after in zip(known.partitions, topic.partitions, strict=False):
            if before.leader != after.leader:
                ids = (one if one >= 0 else None for one in (before.leader, after.leader))
                yield MovedLeader(name, after.index, *ids)


def differ(one: str | None, other: str | None) -> bool:
    """Return whether two cluster ids are both known and differ."""
    return one is not None and other is not None and one != other


def lists_broker(answer: MetadataResponse) -> bool:
    """Return whether a response lists any broker."""
    return any(broker.node_id >= 0 for broker in answer.brokers)


def brokers_in(answer: MetadataResponse) -> dict[int, BrokerInfo]:
    """Return the brokers that a response lists, by their ids."""
    return {
        b.node_id: BrokerInfo(b.node_id, b.host, b.port, b.rack)
        for b in answer.brokers
        if b.node_id >= 0
    }


def merged(
    old: ClusterMetadata,
    answer: MetadataResponse,
    *,
    complete: bool,
    anew: Collection[str] = (),
    lower: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> ClusterMetadata:
    """Return the snapshot after a metadata response, or `old` if nothing has changed.

    With `complete`, the response covers all wanted topics, so topics that it does not contain are
    dropped. `anew` has the topics without ids that replace the known ones of the same name, and
    `lower` the partitions whose known epochs, which are the values, are replaced by lower ones.
    Raises ProtocolError for impossible partition numbers.
    """
    # A broker that does not know its cluster yet lists none. Java's client ignores that, too.
    brokers = brokers_in(answer)
    if not brokers:
        return old
    elsewhere = differ(old.cluster_id, answer.cluster_id)
    topics: dict[str, TopicInfo] = {} if complete or elsewhere else dict(old.topics)
    for entry in answer.topics or ():
        name = entry.name if entry.name is not None else old.names.get(entry.topic_id)
        if name is not None:
            known = None if elsewhere or name in anew else old.topics.get(name)
            topics[name] = info = _topic(name, entry, known, lower)
            untrack_whole(info)
    return _changed(
        old,
        cluster_id=answer.cluster_id if answer.cluster_id is not None else old.cluster_id,
        controller_id=answer.controller_id,
        brokers=brokers,
        topics=topics,
    )


def hinted(
    old: ClusterMetadata,
    topic: str,
    partition: int,
    leader: int,
    leader_epoch: int,
    endpoints: Iterable[BrokerInfo] = (),
) -> ClusterMetadata:
    """Return the snapshot with a new leader from a produce or fetch response (KIP-951).

    Returns `old` if the partition is unknown, the leader epoch is not newer, or the leader has no
    known address.
    """
    named = {info.node_id: info for info in endpoints if _replaces(info, old)}
    brokers = {**old.brokers, **named}
    known = old.find_partition(topic, partition)
    # The hint is as old as the response, and metadata may be newer. Epochs tell which it is.
    if known is None or leader_epoch <= known.leader_epoch or leader not in brokers:
        return old
    info = old.topics[topic]
    entry = known._replace(leader=leader, leader_epoch=leader_epoch, error=0)
    partitions = (*info.partitions[:partition], entry, *info.partitions[partition + 1 :])
    topics = {**old.topics, topic: info._replace(partitions=partitions)}
    return _changed(old, brokers=brokers, topics=topics)


def learned(old: ClusterMetadata, broker: BrokerInfo) -> ClusterMetadata:
    """Return the snapshot with the address of a broker from a response of another API."""
    known = old.brokers.get(broker.node_id)
    if (known is not None and known[:3] == broker[:3]) or not _replaces(broker, old):
        return old
    return _changed(old, brokers={**old.brokers, broker.node_id: broker})


def _replaces(broker: BrokerInfo, old: ClusterMetadata) -> bool:
    """Return whether a broker's address replaces the known one.

    An unusable address never replaces a usable one. Bootstrap servers, whose ids are negative, are
    not kept in the snapshot.
    """
    return broker.node_id >= 0 and (broker.usable or broker.node_id not in old.brokers)


def _changed(
    old: ClusterMetadata,
    *,
    brokers: Mapping[int, BrokerInfo],
    topics: Mapping[str, TopicInfo] | None = None,
    cluster_id: str | None = None,
    controller_id: int | None = None,
) -> ClusterMetadata:
    topics = old.topics if topics is None else topics
    new = ClusterMetadata(
        cluster_id=old.cluster_id if cluster_id is None else cluster_id,
        controller_id=old.controller_id if controller_id is None else controller_id,
        brokers=brokers,
        topics=topics,
        names=_names(topics, old),
        version=old.version,
    )
    untrack(new.topics)
    untrack(new.names)
    return old if _same(new, old) else new._replace(version=old.version + 1)


def _names(topics: Mapping[str, TopicInfo], old: ClusterMetadata) -> Mapping[UUID, str]:
    if topics is old.topics:
        return old.names
    return {info.topic_id: name for name, info in topics.items() if info.topic_id != NO_ID}


def _same(new: ClusterMetadata, old: ClusterMetadata) -> bool:
    """Return whether two snapshots are equal. Other threads can run during the comparison."""
    if new._replace(topics=old.topics, names=old.names) != old:
        return False
    if new.topics is old.topics:
        return True
    known = old.topics.get
    return len(new.topics) == len(old.topics) and all(
        info == known(name) for name, info in new.topics.items()
    )


def _topic(
    name: str,
    entry: MetadataResponseTopic,
    known: TopicInfo | None,
    lower: Mapping[tuple[str, int], int],
) -> TopicInfo:
    if entry.error_code:
        kept = known if known is not None else TopicInfo(name, entry.topic_id)
        return kept._replace(error=entry.error_code)
    same = known is not None and known.topic_id == entry.topic_id
    if same and entry.topic_id == NO_ID and known is not None and known.error in ABSENT:
        same = False
    return TopicInfo(
        name,
        entry.topic_id,
        entry.is_internal,
        0,
        _partitions(
            entry.partitions,
            known.partitions if known is not None and same else (),
            {index: epoch for (topic, index), epoch in lower.items() if topic == name},
        ),
    )


def _partitions(
    entries: Sequence[MetadataResponsePartition],
    known: tuple[PartitionInfo, ...],
    lower: Mapping[int, int] = MappingProxyType({}),
) -> tuple[PartitionInfo, ...]:
    """Return all partitions, and reuse the unchanged ones, so that comparing snapshots is fast."""
    found: dict[int, PartitionInfo] = {}
    sets: dict[tuple[int, ...], tuple[int, ...]] = {}
    for entry in entries:
        index = entry.partition_index
        if not 0 <= index < MAX_PARTITION:
            raise ProtocolError(
                f"The response contains the invalid partition number {index}.", api="Metadata"
            )
        previous = known[index] if index < len(known) else None
        older = previous is not None and 0 <= entry.leader_epoch < previous.leader_epoch
        if previous is None or not older or lower.get(index) == previous.leader_epoch:
            new = _partition(entry, sets)
            found[index] = previous if previous is not None and new == previous else new
    count = max(max(found, default=-1) + 1, len(known))
    rest = [*known, *map(PartitionInfo, range(len(known), count))]
    made = tuple(found.get(index) or rest[index] for index in range(count))
    return known if made == known else made


def partitions_in(entry: MetadataResponseTopic) -> tuple[PartitionInfo, ...]:
    """Return the partitions of a topic in a response."""
    return _partitions(entry.partitions, ())


def _partition(
    entry: MetadataResponsePartition, sets: dict[tuple[int, ...], tuple[int, ...]]
) -> PartitionInfo:
    """Return a partition. Equal sets of replicas are shared by all partitions, to save memory."""
    replicas, isr = tuple(entry.replica_nodes), tuple(entry.isr_nodes)
    offline = entry.offline_replicas
    return _made(
        (
            entry.partition_index,
            entry.leader_id,
            entry.leader_epoch,
            sets.setdefault(replicas, replicas),
            sets.setdefault(isr, isr),
            tuple(offline) if offline else (),
            entry.error_code,
        )
    )


_made = PartitionInfo._make
