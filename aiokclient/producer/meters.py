"""The metrics of a producer.

Written batches are collected in a list first, and are counted when the metrics are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.metrics import BYTES, Metrics

if TYPE_CHECKING:
    from aiokclient.producer.batching.queue import QueuedBatch
    from aiokclient.producer.delivery.delivery import DeliveryBatch

__all__ = ["ProducerMeters"]

NOTED = 512
"""Number of collected batches at which they are counted even if nobody reads the metrics."""


class ProducerMeters:
    """The instruments of a producer. All producers of a `Client` use the same ones."""

    def __init__(self, metrics: Metrics) -> None:
        self._written = metrics.counter("producer.records.acknowledged", unit="{record}")
        self._lost = metrics.counter("producer.records.failed", unit="{record}")
        self._records = metrics.by_topic("producer.topic.records", unit="{record}")
        self._bytes = metrics.by_topic("producer.topic.bytes", unit="By")
        self._failed = metrics.by_topic("producer.topic.failed", unit="{record}")
        self._queued = metrics.histogram("producer.queue.seconds", unit="s")
        self._batch_bytes = metrics.histogram("producer.batch.bytes", BYTES, unit="By")
        self._noted: list[tuple[str, int, int, float]] = []
        self.end = metrics.before_reading(self._count)
        """A function that counts the collected batches, and ends the collection."""

    def written(self, batch: QueuedBatch) -> None:
        """Record a batch that was acknowledged, or that needs no acknowledgement."""
        noted = self._noted
        noted.append((batch.topic, batch.count, batch.size, batch.first_sent - batch.created))
        if len(noted) >= NOTED:
            self._count()

    def _count(self) -> None:
        if not self._noted:
            return
        topics, counts, sizes, queued = zip(*self._noted, strict=True)
        self._noted.clear()
        self._queued.observe_all(queued)
        self._batch_bytes.observe_all(sizes)
        self._written.add(sum(counts))
        if len(set(topics)) == 1:
            topics, counts, sizes = topics[:1], (sum(counts),), (sum(sizes),)
        for topic, count, size in zip(topics, counts, sizes, strict=True):
            self._records.of(topic).add(count)
            self._bytes.of(topic).add(size)

    def failed(self, batch: QueuedBatch) -> None:
        """Record a batch that failed, unless it was never sent."""
        if batch.attempt:
            self._queued.observe(batch.first_sent - batch.created)
            self._batch_bytes.observe(batch.size)

    def lost(self, batch: DeliveryBatch) -> None:
        """Count the records that are still in a failed batch as failed."""
        self._lost.add(batch.unretrieved)
        self._failed.of(batch.topic).add(batch.unretrieved)
