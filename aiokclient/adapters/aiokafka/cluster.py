"""The known state of the cluster: brokers, topics, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokclient import Consumer, TopicPartition
from aiokclient.adapters.aiokafka.structs import BrokerMetadata
from aiokclient.errors import KafkaError
from aiokclient.protocol import messages


class ClusterMetadata:
    """The brokers and topics of the last responses to requests for metadata.

    It knows the topics that were asked for through the client which has it, and those that the
    consumer of this client reads.
    """

    def __init__(self, **configs: Any) -> None:
        self.config = configs
        self.controller: BrokerMetadata | None = None
        self.unauthorized_topics: set[str] = set()
        self.internal_topics: set[str] = set()
        self._brokers: dict[int, BrokerMetadata] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._consumer: Consumer[Any, Any] | None = None

    def follow(self, consumer: Consumer[Any, Any]) -> None:
        """Know the topics of this native consumer, too."""
        self._consumer = consumer

    def update(self, response: messages.MetadataResponse) -> None:
        """Take over the brokers, and the topics that have no error."""
        self._brokers = {
            each.node_id: BrokerMetadata(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        self.controller = self._brokers.get(response.controller_id)
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.is_internal:
                self.internal_topics.add(topic.name)
            if topic.error_code:
                self._leaders.pop(topic.name, None)
            else:
                self._leaders[topic.name] = {
                    each.partition_index: each.leader_id for each in topic.partitions
                }

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        """Add topics with these numbers of partitions, whose leaders are not known."""
        for topic, number in counts.items():
            self._leaders[topic] = dict.fromkeys(range(number), -1)

    def brokers(self) -> set[BrokerMetadata]:
        """Return all brokers."""
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return the address of a broker, or None if it is not known."""
        return self._brokers.get(broker_id)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic, or None if it is not known."""
        leaders = self._leaders.get(topic)
        return None if leaders is None else set(leaders)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic that have a leader, or None if it is not known."""
        leaders = self._leaders.get(topic)
        if leaders is None:
            return None
        return {partition for partition, leader in leaders.items() if leader >= 0}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition: -1 if it has none, None if it is not known."""
        return self._leaders.get(partition.topic, {}).get(partition.partition)

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition]:
        """Return the known partitions that a broker leads."""
        return {
            TopicPartition(topic, partition)
            for topic, leaders in self._leaders.items()
            for partition, leader in leaders.items()
            if leader == broker_id
        }

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the known topics."""
        topics = set(self._leaders) | self._list_consumed()
        return topics - self.internal_topics if exclude_internal_topics else topics

    def _list_consumed(self) -> set[str]:
        """Return the topics of the consumer whose metadata it knows."""
        consumer = self._consumer
        if consumer is None:
            return set()
        try:
            topics = consumer.subscription()
            return {each for each in topics if consumer.partitions_for_topic(each) is not None}
        except KafkaError:
            return set()  # It is closed or has failed.
