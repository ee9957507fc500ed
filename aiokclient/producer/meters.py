"""The metrics of a producer. Written batches are noted, and counted when metrics are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.metrics import BYTES, Metrics

if TYPE_CHECKING:
    from aiokclient.producer.batching.queue import QueuedBatch
    from aiokclient.producer.delivery.delivery import DeliveryBatch

__all__ = ["ProducerMeters"]

NOTED = 512
"""Number of noted batches at which they are counted without being read."""


class ProducerMeters:
    """The instruments of a producer. Producers that share a client share them."""

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
        """Counts the noted batches and stops."""

    def written(self, batch: QueuedBatch) -> None:
        """Take note of a batch that was acknowledged, or that needs no acknowledgement."""
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
        self._written.value += sum(counts)
        if len(set(topics)) == 1:
            topics, counts, sizes = topics[:1], (sum(counts),), (sum(sizes),)
        for topic, count, size in zip(topics, counts, sizes, strict=True):
            self._records.of(topic).value += count
            self._bytes.of(topic).value += size

    def given_up(self, batch: QueuedBatch) -> None:
        """Take note of a batch that fails. Only one that was sent counts."""
        if batch.attempt:
            self._queued.observe(batch.first_sent - batch.created)
            self._batch_bytes.observe(batch.size)

    def lost(self, batch: DeliveryBatch) -> None:
        """Count the records that are still in a failed batch as failed."""
        self._lost.add(batch.unretrieved)
        self._failed.of(batch.topic).add(batch.unretrieved)
