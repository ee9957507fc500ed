"""The cluster as a broker describes it: as it is, or as it was when a test held its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID


class BrokerView(Protocol):
    """A broker as metadata names it."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


class PartitionView(Protocol):
    """A partition as metadata describes it."""

    @property
    def index(self) -> int: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...


class TopicView(Protocol):
    """A topic as metadata describes it."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def internal(self) -> bool: ...
    @property
    def partitions(self) -> Sequence[PartitionView]: ...


class ClusterView(Protocol):
    """A cluster as metadata describes it."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def controller(self) -> int: ...
    @property
    def alive(self) -> Mapping[int, BrokerView]: ...
    @property
    def topics(self) -> Mapping[str, TopicView]: ...
    @property
    def topics_by_id(self) -> Mapping[UUID, TopicView]: ...


class HeldBroker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class HeldPartition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


class HeldTopic(NamedTuple):
    name: str
    topic_id: UUID
    internal: bool
    partitions: Sequence[HeldPartition]


class HeldCluster(NamedTuple):
    """A copy of all that metadata tells."""

    cluster_id: str
    controller: int
    alive: Mapping[int, HeldBroker]
    topics: Mapping[str, HeldTopic]
    topics_by_id: Mapping[UUID, HeldTopic]


def held(cluster: ClusterView) -> HeldCluster:
    """Return the cluster as it is now."""
    topics = {
        topic.name: HeldTopic(
            topic.name,
            topic.topic_id,
            topic.internal,
            [
                HeldPartition(
                    each.index, each.leader, each.leader_epoch, list(each.replicas), list(each.isr)
                )
                for each in topic.partitions
            ],
        )
        for topic in cluster.topics.values()
    }
    return HeldCluster(
        cluster.cluster_id,
        cluster.controller,
        {b.node_id: HeldBroker(b.node_id, b.host, b.port, b.rack) for b in cluster.alive.values()},
        topics,
        {topic.topic_id: topic for topic in topics.values()},
    )
