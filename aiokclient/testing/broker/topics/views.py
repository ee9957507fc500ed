"""Views of the cluster in metadata: its current state, or the state that a test has frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from aiokclient.testing.broker.node import Endpoint


class BrokerView(Protocol):
    """A broker in metadata."""

    @property
    def node_id(self) -> int: ...
    @property
    def endpoints(self) -> Mapping[str, Endpoint]: ...
    @property
    def rack(self) -> str | None: ...


class PartitionView(Protocol):
    """A partition in metadata."""

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
    """A topic in metadata."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def internal(self) -> bool: ...
    @property
    def partitions(self) -> Sequence[PartitionView]: ...


class ClusterView(Protocol):
    """A cluster in metadata."""

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
    endpoints: Mapping[str, Endpoint]
    rack: str | None


class HeldPartition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index
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
    """A copy of everything that metadata contains."""

    cluster_id: str
    controller: int
    alive: Mapping[int, HeldBroker]
    topics: Mapping[str, HeldTopic]
    topics_by_id: Mapping[UUID, HeldTopic]


def copy_cluster(cluster: ClusterView) -> HeldCluster:
    """Return a copy of the cluster's current state."""
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
        {
            broker.node_id: HeldBroker(broker.node_id, dict(broker.endpoints), broker.rack)
            for broker in cluster.alive.values()
        },
        topics,
        {topic.topic_id: topic for topic in topics.values()},
    )
