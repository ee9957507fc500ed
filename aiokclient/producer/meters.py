"""The metrics of a producer, updated for each batch, never for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.metrics import BYTES, Metrics

if TYPE_CHECKING:
    from aiokclient.producer.batch import ProducerBatch
    from aiokclient.producer.delivery import DeliveryBatch

__all__ = ["ProducerMeters"]


class ProducerMeters:
    """The instruments of a producer; those that share a client share them."""

    def __init__(self, metrics: Metrics) -> None:
        self._written = metrics.counter("producer.records.acknowledged", unit="{record}")
        self._lost = metrics.counter("producer.records.failed", unit="{record}")
        self._records = metrics.by_topic("producer.topic.records", unit="{record}")
        self._bytes = metrics.by_topic("producer.topic.bytes", unit="By")
        self._failed = metrics.by_topic("producer.topic.failed", unit="{record}")
        self._queued = metrics.histogram("producer.queue.seconds", unit="s")
        self._batch_bytes = metrics.histogram("producer.batch.bytes", BYTES, unit="By")

    def sent(self, batch: ProducerBatch, now: float) -> None:
        """Take note of a batch that is being sent for the first time."""
        self._queued.observe(now - batch.created)
        self._batch_bytes.observe(batch.size)

    def written(self, batch: ProducerBatch) -> None:
        """Take note of a batch that was acknowledged, or sent where nobody acknowledges."""
        topic, count = batch.topic, batch.count
        self._written.value += count
        self._records.of(topic).value += count
        self._bytes.of(topic).value += batch.size

    def lost(self, batch: DeliveryBatch) -> None:
        """Take note of a batch whose records that are still in it will not be delivered."""
        self._lost.add(batch.unretrieved)
        self._failed.of(batch.topic).add(batch.unretrieved)
