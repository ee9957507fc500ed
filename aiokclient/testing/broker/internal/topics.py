"""The internal topics of a cluster, which exist after their first use.

`__consumer_offsets` and `__transaction_state` are created when a client first looks for the
coordinator of a group or of a transactional id, and `__share_group_state` when the first share
partition has a state. A key selects the partition. The coordinators keep
their states elsewhere and read nothing from here: the records are for readers. So they are encoded
only when somebody reads the log of their partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from aiokclient.testing.broker.topics.internal_partition import (
    InternalPartition,
    Record,
    WaitingBatch,
)
from aiokclient.testing.broker.topics.topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    BrokerTopic,
    hash_string,
)

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState

_REPLICATION = 3
_CONFIGS = {
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    SHARE_STATE_TOPIC: {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}
_PARTITIONS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}


class ProducerKey(Protocol):
    """A producer id with its epoch."""

    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class InternalTopics:
    """The internal topics of a cluster. Its methods create a topic that does not exist."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def open_topic(self, name: str) -> BrokerTopic | None:
        """Return a topic, which is created if need be. Without brokers, return None."""
        cluster = self._cluster
        topic = cluster.topics.get(name)
        if topic is None and cluster.registered:
            count = cluster.configs.read_number(_PARTITIONS[name])
            replicas = cluster.assign_replicas(count, min(_REPLICATION, len(cluster.registered)))
            # No random number is drawn, so that seeded runs do not depend on this topic.
            digest = hashlib.sha256(f"{cluster.cluster_id} {name}".encode()).digest()
            topic_id = UUID(bytes=digest[:16], version=4)
            topic = cluster.create_topic(name, replicas, _CONFIGS[name], topic_id)
        return topic

    def write_records(
        self,
        name: str,
        key: str,
        make_records: Callable[[], list[Record]],
        producer: ProducerKey | None = None,
    ) -> None:
        """Append a batch to the partition of `key`.

        It is a group id, a transactional id, or what `ShareStates` makes of a share partition.

        `make_records` is called when somebody reads the log, or never. If it returns nothing, there
        is no batch. The batch of a producer is part of its transaction.
        """
        topic = self.open_topic(name)
        if topic is not None:
            self._add_batch(topic, hash_string(key), make_records, producer)

    def write_marker(
        self, name: str, index: int, producer: ProducerKey, commit: bool, coordinator_epoch: int
    ) -> None:
        """Append the marker that ends a transaction in a partition."""
        topic = self.open_topic(name)
        if topic is not None:
            self._add_batch(topic, index, None, producer, commit, coordinator_epoch)

    def _add_batch(
        self,
        topic: BrokerTopic,
        index: int,
        make_records: Callable[[], list[Record]] | None,
        producer: ProducerKey | None,
        commit: bool = False,
        coordinator_epoch: int = 0,
    ) -> None:
        partition = topic.partitions[index % len(topic.partitions)]
        assert isinstance(partition, InternalPartition)
        batch = WaitingBatch(
            self._cluster.clock.time_ms(),
            partition.leader_epoch,
            None if producer is None else (producer.producer_id, producer.epoch),
            make_records,
            commit,
            coordinator_epoch,
        )
        partition.add_batch(batch)
