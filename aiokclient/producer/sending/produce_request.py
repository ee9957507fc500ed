"""Produce requests: the batches in them, and the part of the response for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.errors import DisconnectedError
from aiokclient.producer.batching.queue import PartitionQueue, QueuedBatch
from aiokclient.producer.batching.topic_status import TopicStatus
from aiokclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aiokclient.protocol.one_batch import OneBatchRequest, Template

if TYPE_CHECKING:
    from aiokclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

__all__ = [
    "IDS_FROM",
    "MultiBatch",
    "OneBatch",
    "ProduceRequests",
    "Sent",
    "TransactionalProduceRequests",
    "endpoints",
    "left_out",
]

IDS_FROM = 13
"""The first version of Produce that names topics by their ids."""


class Sent(NamedTuple):
    """A batch with the number of the attempt in which it was sent."""

    batch: QueuedBatch
    attempt: int


class MultiBatch:
    """A request with several batches, at most one for each partition."""

    __slots__ = ("_parts", "message", "sent", "version")

    def __init__(
        self,
        batches: Sequence[QueuedBatch],
        version: int,
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        self.sent: list[Sent] = []
        self._parts: dict[TopicStatus, tuple[TopicProduceData, dict[int, Sent]]] = {}
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
        self.message = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[data for data, _ in self._parts.values()],
        )

    def answers(
        self, response: ProduceResponse
    ) -> Iterator[tuple[Sent, PartitionProduceResponse | None]]:
        """Yield each batch with its part of the response, or None if the partition is missing.

        Only the first part for a partition counts. Partitions that were not requested are ignored.
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


class OneBatch:
    """A request with one batch, which is faster to create than a `MultiBatch`."""

    __slots__ = ("message", "sent", "version")

    def __init__(self, batch: QueuedBatch, template: Template) -> None:
        transactional = template.transactional_id is not None
        self.message = OneBatchRequest(template, batch.seal(transactional))
        self.sent = [Sent(batch, batch.attempt)]
        self.version = template.version

    def answers(
        self, response: ProduceResponse
    ) -> Iterator[tuple[Sent, PartitionProduceResponse | None]]:
        """Yield the batch with its part of the response; see `MultiBatch.answers`."""
        template = self.message.template
        for topic in response.responses:
            if self.version >= IDS_FROM:
                asked = topic.topic_id == template.topic_id
            else:
                asked = topic.name == template.name
            for part in topic.partition_responses if asked else ():
                if part.index == template.index:
                    yield self.sent[0], part
                    return
        yield self.sent[0], None


class ProduceRequests:
    """A factory of the produce requests to one broker."""

    def __init__(self, acks: int, timeout_ms: int, transactional_id: str | None = None) -> None:
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._templates: dict[PartitionQueue, Template] = {}

    def forget(self, queue: PartitionQueue) -> None:
        """Discard the template of a partition that now has another leader."""
        self._templates.pop(queue, None)

    def make(self, batches: Sequence[QueuedBatch], version: int) -> MultiBatch | OneBatch:
        """Return the request for the given batches in an API version that the broker supports."""
        if len(batches) != 1:
            return MultiBatch(
                batches,
                version,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                transactional_id=self._transactional_id,
            )
        queue = batches[0].queue
        topic_id = queue.topic.topic_id
        if version >= IDS_FROM and not topic_id.int:
            version = IDS_FROM - 1
        found = self._templates.get(queue)
        if found is None or found.topic_id is not topic_id or found.version != version:
            index = queue.partition
            assert index is not None
            name = queue.topic.name
            found = Template(
                version,
                name,
                topic_id,
                index,
                self._acks,
                self._timeout_ms,
                self._transactional_id,
            )
            self._templates[queue] = found
        return OneBatch(batches[0], found)


class TransactionalProduceRequests(ProduceRequests):
    """A factory of the produce requests of a transactional producer to one broker.

    `highest()` returns the highest version of Produce that the open transaction permits. None means
    that it permits any version.
    """

    def __init__(
        self, acks: int, timeout_ms: int, transactional_id: str, highest: Callable[[], int | None]
    ) -> None:
        super().__init__(acks, timeout_ms, transactional_id)
        self._highest = highest

    def make(self, batches: Sequence[QueuedBatch], version: int) -> MultiBatch | OneBatch:
        """Return the request for the given batches; see `ProduceRequests.make`."""
        highest = self._highest()
        return super().make(batches, version if highest is None else min(version, highest))


def endpoints(response: ProduceResponse) -> list[BrokerInfo]:
    """Return the addresses of the leaders that the response names (KIP-951)."""
    return [
        BrokerInfo(node.node_id, node.host, node.port, node.rack)
        for node in response.node_endpoints
    ]


def left_out(broker: int) -> DisconnectedError:
    """Return the error for a batch that the response does not mention."""
    return DisconnectedError(
        "The response does not mention the partition. Whether the batch was written is unknown.",
        api="Produce",
        broker=broker,
    )
