"""The private names of aiokafka that frameworks read, which the adapter has, too.

`READ_BY` lists them. Private names that are not listed are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from aiokclient import TopicPartition

if TYPE_CHECKING:
    from aiokclient.adapters.aiokafka.client import AIOKafkaClient

FASTSTREAM: Final = "FastStream"
OPENTELEMETRY: Final = "OpenTelemetry's instrumentation"

READ_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AIOKafkaProducer._closed": (FASTSTREAM,),
        "AIOKafkaProducer._key_serializer": (OPENTELEMETRY,),
        "AIOKafkaProducer._value_serializer": (OPENTELEMETRY,),
        "AIOKafkaProducer._partition": (OPENTELEMETRY,),
        "AIOKafkaClient._wait_on_metadata": (OPENTELEMETRY,),
        "AIOKafkaClient._bootstrap_servers": (OPENTELEMETRY,),
        "AIOKafkaClient._client_id": (OPENTELEMETRY,),
        "AIOKafkaConsumer._client": (OPENTELEMETRY,),
        "AIOKafkaConsumer._group_id": (OPENTELEMETRY,),
        "AIOKafkaConsumer._subscription": (FASTSTREAM,),
        "AIOKafkaConsumer._coordinator": (FASTSTREAM,),
        "aiokafka.producer.producer._missing": (FASTSTREAM,),
    }
)
"""The names, and the frameworks that read them."""


class PrivateProducerNames:
    """The private names of a producer."""

    client: AIOKafkaClient
    _partitioner: Callable[[bytes | None, Sequence[int], Sequence[int]], int]

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        """Return a partition for a record.

        For a record without a key, it need not be the one to which `send` sends it.
        """
        known = self.client.cluster.partitions_for_topic(topic) or set()
        if partition is not None:
            assert partition in known, f"Unrecognized partition {partition} of topic {topic}"
            return partition
        available = self.client.cluster.available_partitions_for_topic(topic) or set()
        return self._partitioner(serialized_key, sorted(known), sorted(available))


class SubscriptionState:
    """The subscription of a consumer, for `_subscription`."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics."""
        topics: frozenset[str] = self._consumer.subscription()
        return topics

    def assigned_partitions(self) -> set[TopicPartition]:
        """Return the partitions of the consumer."""
        partitions: set[TopicPartition] = self._consumer.assignment()
        return partitions


class GroupCoordinator:
    """The membership of a consumer, for `_coordinator`."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def group_id(self) -> str | None:
        """The name of the group."""
        group_id: str | None = self._consumer._group_id
        return group_id

    @property
    def member_id(self) -> str:
        """The id of the member, empty while it is not in the group."""
        if self.group_id is None:
            return ""
        member_id: str = self._consumer.native.group_metadata().member_id
        return member_id

    @property
    def generation(self) -> int:
        """The generation of the group, -1 while the member is not in the group."""
        if self.group_id is None:
            return -1
        generation: int = self._consumer.native.group_metadata().generation_id
        return generation
