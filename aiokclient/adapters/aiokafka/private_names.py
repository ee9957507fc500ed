"""The private names of aiokafka that other programs read, which the adapter has, too.

`READ_BY` lists them. Private names that are not listed are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokclient import TopicPartition
from aiokclient.adapters.aiokafka.errors import IllegalStateError
from aiokclient.adapters.aiokafka.structs import ConsumerRecord

if TYPE_CHECKING:
    from aiokclient.adapters.aiokafka.client import AIOKafkaClient

FASTSTREAM: Final = "FastStream"
OPENTELEMETRY: Final = "OpenTelemetry's instrumentation"
FAUST: Final = "faust-streaming"
SUITE: Final = "aiokafka's own tests"

READ_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AIOKafkaProducer._closed": (FASTSTREAM,),
        "AIOKafkaProducer._key_serializer": (OPENTELEMETRY,),
        "AIOKafkaProducer._value_serializer": (OPENTELEMETRY,),
        "AIOKafkaProducer._partition": (OPENTELEMETRY, FAUST),
        "AIOKafkaClient._wait_on_metadata": (OPENTELEMETRY, SUITE),
        "AIOKafkaClient._bootstrap_servers": (OPENTELEMETRY,),
        "AIOKafkaClient._client_id": (OPENTELEMETRY,),
        "AIOKafkaConsumer._client": (OPENTELEMETRY, FAUST, SUITE),
        "AIOKafkaConsumer._closed": (FAUST,),
        "AIOKafkaConsumer._fetcher": (FAUST,),
        "AIOKafkaConsumer._max_poll_records": (FAUST,),
        "AIOKafkaConsumer._group_id": (OPENTELEMETRY,),
        "AIOKafkaConsumer._group_instance_id": (SUITE,),
        "AIOKafkaConsumer._subscription": (FASTSTREAM, SUITE),
        "AIOKafkaConsumer._coordinator": (FASTSTREAM, FAUST),
        "aiokafka.conn.AbstractTokenProvider": (FAUST,),
        "aiokafka.consumer.group_coordinator.OffsetCommitRequest": (FAUST,),
        "aiokafka.producer.producer._missing": (FASTSTREAM,),
    }
)
"""The names, and the programs that read them."""


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

    async def wait_for_assignment(self) -> None:
        """Wait for the next assignment by the group, even if there is one now.

        Raises IllegalStateError without a subscription, and the error of a consumer that fails.
        """
        rebalances = self._consumer._rebalances
        if not rebalances.is_subscribed:
            raise IllegalStateError("No topics are subscribed.")
        await self._consumer._wait_for_assignment(rebalances.next_assigned)


class PartitionState(NamedTuple):
    """The state of a partition that a consumer reads."""

    position: int | None
    highwater: int | None
    timestamp: int | None
    """About the time of the last fetch, in milliseconds since the epoch."""


class Assignment:
    """The assigned partitions of a consumer."""

    active = True

    def __init__(self, consumer: Any) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        consumed = consumer.native.consumed()
        for tp in consumer.assignment():
            position = consumed[tp].offset if tp in consumed else None
            known = consumer.highwater(tp), consumer.last_poll_timestamp(tp)
            self._states[tp] = PartitionState(position, *known)

    def state_value(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, or None if it is not assigned."""
        return self._states.get(tp)


class Fetcher:
    """The reads of a consumer, for `_fetcher`. It is also its `_subscriptions`."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._subscriptions = self.subscription = self

    @property
    def _closed(self) -> bool:
        closed: bool = self._consumer._closed
        return closed

    @property
    def assignment(self) -> Assignment | None:
        """The assigned partitions, or None if there are none."""
        consumer = self._consumer
        if not consumer.assignment():
            return None
        if consumer._is_elsewhere():
            assignment: Assignment = consumer._call_in_loop(Assignment, consumer)
            return assignment
        return Assignment(consumer)

    def fetch_context(self) -> AbstractContextManager[None]:
        """Return a context around a read, which does nothing."""
        return nullcontext()

    async def fetched_records(
        self,
        partitions: Collection[TopicPartition] | None,
        timeout: float | None = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Any]]:
        """Return records as `getmany` does, in aiokafka's class. The timeout is in seconds."""
        wanted = [TopicPartition(*tp) for tp in partitions or ()]
        found = await self._consumer.getmany(
            *wanted, timeout_ms=(timeout or 0) * 1000, max_records=max_records
        )
        return {tp: [ConsumerRecord.of(each) for each in records] for tp, records in found.items()}


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

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """The numbers of partitions of the subscribed topics."""
        counts = {}
        for topic in self._consumer.subscription():
            counts[topic] = len(self._consumer.partitions_for_topic(topic) or ())
        return counts

    async def close(self) -> None:
        """Do nothing: the consumer leaves the group when it is stopped."""
