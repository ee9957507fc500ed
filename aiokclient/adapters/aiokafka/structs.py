"""The values that aiokafka's calls take and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from aiokclient import TopicPartition
from aiokclient.adapters.aiokafka.errors import KafkaError

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]

KT = TypeVar("KT")
VT = TypeVar("VT")


class BrokerMetadata(NamedTuple):
    """The address of a broker."""

    nodeId: int | str
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """The leader and the replicas of a partition, by the ids of their brokers."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A position to commit, and a text that is stored with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and the timestamp of its record in milliseconds."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0 for the time of the producer, 1 for that of the broker."""
    log_start_offset: int | None


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """A record that a consumer has read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    """None, as aiokafka gives for every record of today's format."""
    serialized_key_size: int
    """The size of the key in the log, in bytes; -1 if it is null."""
    serialized_value_size: int
    """The size of the value in the log, in bytes; -1 if it is null."""
    headers: Sequence[tuple[str, bytes]]
