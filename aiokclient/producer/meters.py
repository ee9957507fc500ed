"""The metrics of a producer and of its transactions.

Written batches are collected in a list first, and are counted when the metrics are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, truediv
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.measures import Measures, Reading, Timed
from aiokclient.metrics import BYTES, Counter, Histogram, Labels, Metrics
from aiokclient.producer.batching.stages import BatchStage

if TYPE_CHECKING:
    from aiokclient.clock import Clock
    from aiokclient.producer.batching.queue import QueuedBatch
    from aiokclient.producer.delivery.delivery import DeliveryBatch
    from aiokclient.producer.transaction.status import TransactionOutcome

__all__ = ["ProducerMeters", "TransactionMeters"]

NOTED = 64
"""Number of collected batches at which they are counted even if nobody reads the metrics."""


class _TopicMeters(NamedTuple):
    """The counters of one topic: those of `metrics()`, and those of this producer alone."""

    acknowledged: Counter
    written: Counter
    records: Counter
    bytes: Counter
    plain: Counter


class ProducerMeters:
    """The instruments of a producer. All producers of a `Client` use the same ones.

    `measures` has the instruments of this producer alone.
    """

    def __init__(self, metrics: Metrics, measures: Measures | None = None) -> None:
        self._written = metrics.counter("producer.records.acknowledged", unit="{record}")
        self._lost = metrics.counter("producer.records.failed", unit="{record}")
        self._records = metrics.by_topic("producer.topic.records", unit="{record}")
        self._bytes = metrics.by_topic("producer.topic.bytes", unit="By")
        self._failed = metrics.by_topic("producer.topic.failed", unit="{record}")
        self._queued = metrics.histogram("producer.queue.seconds", unit="s")
        self._batch_bytes = metrics.histogram("producer.batch.bytes", BYTES, unit="By")
        self._noted: list[tuple[str, int, int, float, int]] = []
        self.measures = own = Measures("producer") if measures is None else measures
        self.requests = own.quantity("produce.requests")
        self.exhausted = own.quantity("exhausted")
        self.splits = own.quantity("splits")
        self.flushing = own.quantity("flush.seconds")
        self._own_records = own.quantity("records")
        self._own_failed = own.quantity("failed")
        self._own_retried = own.quantity("retried")
        self._own_queued = own.spread("queued")
        self._own_batches = own.spread("batches")
        self._own_sizes = own.spread("sizes")
        self._plain = own.quantity("plain.bytes")
        self._own_attempted = own.quantity("attempted")
        own.compute("sizes.average", self._average)
        # Like Kafka's clients, these count each attempt to send a record.
        own.add_up("sent", "records", "attempted", "retried")
        own.add_up("topic.sent", "topic.records", "topic.attempted", "topic.retried")
        self._topics: dict[str, _TopicMeters] = {}
        own.at_forgetting(self._topics.clear)
        own.before_reading(self._count)
        self.end = metrics.before_reading(self._count)
        """The function that counts the collected batches and then stops collecting them."""

    def written(self, batch: QueuedBatch) -> None:
        """Record a batch that was acknowledged, or that needs no acknowledgement."""
        noted = self._noted
        queued = batch.first_sent - batch.created
        noted.append((batch.topic, batch.count, batch.size, queued, batch.builder.size))
        if len(noted) >= NOTED:
            self._count()

    def _count(self) -> None:
        if not self._noted:
            return
        topics, counts, sizes, queued, plain = zip(*self._noted, strict=True)
        self._noted.clear()
        self._queued.observe_all(queued)
        self._batch_bytes.observe_all(sizes)
        self._written.add(sum(counts))
        self._own_queued.observe_all(queued)
        self._own_batches.observe_all(sizes)
        self._own_sizes.observe_all(map(truediv, plain, counts))
        self._own_records.add(sum(counts))
        self._plain.add(sum(plain))
        for topic, (count, size, before) in _by_topic(topics, counts, sizes, plain).items():
            meters = self._topics.get(topic) or self._topic(topic)
            meters.acknowledged.value += count
            meters.written.value += size
            meters.records.value += count
            meters.bytes.value += size
            meters.plain.value += before

    def _topic(self, topic: str) -> _TopicMeters:
        records = self.measures.quantity("topic.records", topic=topic)
        shown = self._records.of(topic), self._bytes.of(topic)
        made = self._topics[topic] = _TopicMeters(*shown, records, *self._sent_to(topic))
        return made

    def _sent_to(self, topic: str) -> tuple[Counter, Counter]:
        """Return the counters of the bytes that were sent to a topic, compressed and plain.

        The other counters of the topic are created, too, as in Kafka's clients.
        """
        own = self.measures
        own.quantity("topic.failed", topic=topic)
        own.quantity("topic.retried", topic=topic)
        return own.quantity("topic.bytes", topic=topic), own.quantity(
            "topic.plain.bytes", topic=topic
        )

    def _average(self) -> list[tuple[Labels, Reading]]:
        return [((), Reading(self._sent_records, self._plain.value))]

    @property
    def _sent_records(self) -> float:
        """The number of records in all attempts."""
        return self._own_records.value + self._own_attempted.value + self._own_retried.value

    def retried(self, batch: QueuedBatch) -> None:
        """Count the records of a batch that is sent again."""
        self._attempted(batch)
        self._own_retried.add(batch.count)
        self.measures.quantity("topic.retried", topic=batch.topic).add(batch.count)

    def failed(self, batch: QueuedBatch) -> None:
        """Record a batch that failed, unless it was never sent."""
        if batch.attempt:
            self._queued.observe(batch.first_sent - batch.created)
            self._batch_bytes.observe(batch.size)
            self._own_queued.observe(batch.first_sent - batch.created)
        if batch.stage is BatchStage.IN_FLIGHT:
            # The earlier attempts were counted when they were retried.
            self._attempted(batch)
            self._own_attempted.add(batch.count)
            self.measures.quantity("topic.attempted", topic=batch.topic).add(batch.count)

    def _attempted(self, batch: QueuedBatch) -> None:
        """Count the bytes of a failed attempt, in the same way as those of a successful one."""
        plain = batch.builder.size
        self._own_batches.observe(batch.size)
        self._own_sizes.observe(plain / batch.count)
        self._plain.add(plain)
        compressed_bytes, plain_bytes = self._sent_to(batch.topic)
        compressed_bytes.add(batch.size)
        plain_bytes.add(plain)

    def lost(self, batch: DeliveryBatch) -> None:
        """Count the records that are still in a failed batch as failed."""
        self._lost.add(batch.unretrieved)
        self._failed.of(batch.topic).add(batch.unretrieved)
        self._own_failed.add(batch.unretrieved)
        self.measures.quantity("topic.failed", topic=batch.topic).add(batch.unretrieved)


def _by_topic(topics: Sequence[str], *columns: Sequence[int]) -> dict[str, list[int]]:
    """Return the sums of the columns for each topic. Row i belongs to the topic `topics[i]`."""
    if len(set(topics)) == 1:
        return {topics[0]: list(map(sum, columns))}
    sums: dict[str, list[int]] = {}
    for topic, *values in zip(topics, *columns, strict=True):
        found = sums.get(topic)
        sums[topic] = values if found is None else list(map(add, found, values))
    return sums


class TransactionMeters:
    """The metrics of one producer's transactions. Each is created when it is first needed."""

    def __init__(self, metrics: Metrics, measures: Measures) -> None:
        self._metrics = metrics
        self._measures = measures
        self._counters: dict[TransactionOutcome, tuple[Counter, Counter]] = {}
        self._durations: dict[str, tuple[Histogram, Counter]] = {}

    def count_end(self, outcome: TransactionOutcome | None) -> None:
        """Count a transaction that ended."""
        assert outcome is not None
        counters = self._counters.get(outcome)
        if counters is None:
            counters = self._counters[outcome] = (
                self._metrics.counter("producer.transactions", outcome=outcome.value),
                self._measures.quantity("transactions", outcome=outcome.value),
            )
        for counter in counters:
            counter.add()

    def observe_duration(self, call: str, seconds: float) -> None:
        """Observe the duration of a "commit" or an "abort"."""
        meters = self._durations.get(call)
        if meters is None:
            name = f"producer.transaction.{call}.seconds"
            meters = self._durations[call] = (
                self._metrics.histogram(name, unit="s"),
                self._measures.quantity(f"{call}.seconds"),
            )
        histogram, sum_s = meters
        histogram.observe(seconds)
        sum_s.add(seconds)

    def time_block(self, name: str, clock: Clock) -> Timed:
        """Return a context manager that adds the duration of its block to a counter."""
        return self._measures.timed(name, clock.monotonic)

    def count_restart(self) -> None:
        """Count a restart."""
        self._metrics.counter("producer.transaction.restarts").add()
