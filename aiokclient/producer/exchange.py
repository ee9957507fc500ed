"""One produce request: which batches it carries, and which part of the response is whose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.cluster.metadata import BrokerInfo
from aiokclient.errors import DisconnectedError
from aiokclient.producer.batch import ProducerBatch
from aiokclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from aiokclient.producer.topic import Topic
    from aiokclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

__all__ = ["Exchange", "Sent", "endpoints", "left_out"]

IDS_FROM = 13
"""From this version on a topic is named by its id."""


class Sent(NamedTuple):
    """A batch as it was in the request: a later attempt is another one."""

    batch: ProducerBatch
    attempt: int


class Exchange:
    """A request with its batches, at most one for each partition."""

    __slots__ = ("_parts", "request", "sent", "version")

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        version: int,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        self.sent: list[Sent] = []
        self._parts: dict[Topic, tuple[TopicProduceData, dict[int, Sent]]] = {}
        for batch in batches:
            topic, index = batch.queue.topic, batch.queue.partition
            assert index is not None
            found = self._parts.get(topic)
            if found is None:
                data = TopicProduceData(name=topic.name, topic_id=topic.topic_id)
                found = self._parts[topic] = (data, {})
                if version >= IDS_FROM and not data.topic_id.int:
                    version = IDS_FROM - 1
            sealed = batch.seal(transactional_id is not None)
            found[0].partition_data.append(PartitionProduceData(index=index, records=sealed))
            sent = found[1][index] = Sent(batch, batch.attempt)
            self.sent.append(sent)
        self.version = version
        self.request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[data for data, _ in self._parts.values()],
        )

    def answers(
        self, response: ProduceResponse
    ) -> Iterator[tuple[Sent, PartitionProduceResponse | None]]:
        """Each batch with its part of the response; None for a partition that is not in it.

        A partition that is there twice counts once, and one that was not asked for not at all.
        """
        by_id = self.version >= IDS_FROM
        waiting: dict[str | UUID, dict[int, Sent]] = {
            data.topic_id if by_id else data.name: dict(sent) for data, sent in self._parts.values()
        }
        for topic in response.responses:
            of_topic = waiting.get(topic.topic_id if by_id else topic.name)
            if of_topic is None:
                continue
            for part in topic.partition_responses:
                sent = of_topic.pop(part.index, None)
                if sent is not None:
                    yield sent, part
        for of_topic in waiting.values():
            for sent in of_topic.values():
                yield sent, None


def endpoints(response: ProduceResponse) -> list[BrokerInfo]:
    """The addresses of the leaders that the response names (KIP-951)."""
    return [
        BrokerInfo(node.node_id, node.host, node.port, node.rack)
        for node in response.node_endpoints
    ]


def left_out(broker: int) -> DisconnectedError:
    """The error for a batch that the response says nothing about."""
    return DisconnectedError(
        "the response leaves the partition out; whether the batch is written is unknown",
        api="Produce",
        broker=broker,
    )
