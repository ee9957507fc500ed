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
    from aiokclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

__all__ = ["Exchange", "Sent", "endpoints", "left_out"]

IDS_FROM = 13
"""From this version on a topic is named by its id."""

Key = tuple[str | UUID, int]


class Sent(NamedTuple):
    """A batch as it was in the request: a later attempt is another one."""

    batch: ProducerBatch
    attempt: int


class Exchange:
    """A request with its batches, at most one for each partition."""

    __slots__ = ("request", "sent", "version")

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        version: int,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        if version >= IDS_FROM and any(not b.queue.topic.topic_id.int for b in batches):
            version = IDS_FROM - 1
        self.version = version
        self.sent: dict[Key, Sent] = {}
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic = batch.queue.topic
            data = topics.get(topic.name)
            if data is None:
                data = topics[topic.name] = TopicProduceData(
                    name=topic.name, topic_id=topic.topic_id, partition_data=[]
                )
            index = batch.queue.partition
            assert index is not None
            sealed = batch.seal(transactional_id is not None)
            data.partition_data.append(PartitionProduceData(index=index, records=sealed))
            place = topic.topic_id if version >= IDS_FROM else topic.name
            self.sent[place, index] = Sent(batch, batch.attempt)
        self.request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )

    def answers(
        self, response: ProduceResponse
    ) -> Iterator[tuple[Sent, PartitionProduceResponse | None]]:
        """Each batch with its part of the response; None for a partition that is not in it.

        A partition that is there twice counts once, and one that was not asked for not at all.
        """
        waiting = dict(self.sent)
        for topic in response.responses:
            place = topic.topic_id if self.version >= IDS_FROM else topic.name
            for part in topic.partition_responses:
                sent = waiting.pop((place, part.index), None)
                if sent is not None:
                    yield sent, part
        for sent in waiting.values():
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
