"""The metrics of a producer.

Written batches are collected in a list first, and are counted when the metrics are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import truediv
from typing import TYPE_CHECKING

from aiokclient.metrics import BYTES, Counter, Labels, OwnMetrics, Reading
from aiokclient.producer.batching.stages import BatchStage
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.producer.batching.accumulator import Memory
    from aiokclient.producer.batching.batch import ProducerBatch
    from aiokclient.producer.delivery.delivery import DeliveryBatch

NOTED = 64
"""Number of collected batches at which they are counted even if the metrics are not read."""
_NOTED = NOTED


class _TopicMeters(NamedTuple):
    """The counters of one topic."""

    records: Counter
    acknowledged_bytes: Counter


class _ByteMeters(NamedTuple):
    """The counters of the bytes of all attempts to send to one topic."""

    compressed: Counter
    plain: Counter


class ProducerMeters:
    """The instruments of a producer."""

    def __init__(self, own_metrics: OwnMetrics) -> None:
        self.own_metrics = own = own_metrics
        self._acknowledged_bytes = own.metrics.get_topic_counters("producer.topic.bytes", unit="By")
        self._batch_bytes = own.metrics.histogram("producer.batch.bytes", BYTES, unit="By")
        self._gauges: Sequence[Callable[[], None]] = ()
        self._noted: list[tuple[str, int, int, float, int]] = []
        self._requests = own.counter("produce.requests")
        self._sent = 0
        """The requests that are not counted yet."""
        self.exhausted = own.counter("exhausted")
        self.splits = own.counter("splits")
        self.flushing = own.counter("flush.seconds")
        self._records = own.counter("records")
        self._failed = own.counter("failed")
        self._retried = own.counter("retried")
        self._queued = own.histogram("queued")
        self._batches = own.spread("batches")
        self._sizes = own.spread("sizes")
        self._plain = own.counter("plain.bytes")
        self._attempted = own.counter("attempted")
        own.show_series("records", "producer.records.acknowledged", unit="{record}")
        own.show_series("failed", "producer.records.failed", unit="{record}")
        own.show_series("topic.records", "producer.topic.records", unit="{record}")
        own.show_series("topic.failed", "producer.topic.failed", unit="{record}")
        own.show_series("queued", "producer.queue.seconds", unit="s")
        own.compute_series("sizes.average", self._average_size)
        # Like Kafka's clients, these count each attempt to send a record.
        own.sum_series("sent", "records", "attempted", "retried")
        own.sum_series("topic.sent", "topic.records", "topic.attempted", "topic.retried")
        self._topics: dict[str, _TopicMeters] = {}
        self._bytes: dict[str, _ByteMeters] = {}
        own.add_forget_listener(self._topics.clear)
        own.add_forget_listener(self._bytes.clear)
        own.add_updater(self._count_batches)

    def measure_memory(self, memory: Memory, pending: Mapping[ProducerBatch, None]) -> None:
        """Show the bytes of the batches without an outcome, `pending`, from now on."""
        own, buffer, overflow = self.own_metrics, memory.buffer, memory.overflow
        total = buffer.limit
        own.gauge("buffer.total", lambda: total)
        own.gauge("buffer.free", lambda: total - buffer.total)
        own.gauge("overflow.bytes", lambda: overflow.total)
        own.gauge(
            "overflow.records", lambda: sum(batch.count for batch in pending if batch.in_overflow)
        )
        # All producers of a client share the client's metrics, so each producer adds its bytes.
        gauge = own.metrics.gauge
        self._gauges = [
            gauge("producer.buffer.bytes", unit="By").add_source(lambda: buffer.total),
            gauge("producer.overflow.bytes", unit="By").add_source(lambda: overflow.total),
        ]

    def end_measuring(self) -> None:
        """Stop adding the producer's bytes to the metrics of its client."""
        for end in self._gauges:
            end()

    def count_written(
        self, topic: str, count: int, size: int, queued_s: float, plain_size: int
    ) -> None:
        """Record a batch of `count` records that was acknowledged, or needs no acknowledgement.

        Its sizes are in bytes. It was sent `queued_s` seconds after its first record.
        """
        self._noted.append((topic, count, size, queued_s, plain_size))

    def on_request_sent(self) -> None:
        """Count a request, and the latest batches if there are many.

        Counting batches takes as long as sending one. So it is never done when a response has
        arrived, because tasks wait for that, but while the broker works.
        """
        self._sent += 1
        if len(self._noted) >= _NOTED:
            self._count_batches()

    def _count_batches(self) -> None:
        self._requests.value += self._sent
        self._sent = 0
        if not self._noted:
            return
        topics, counts, sizes, queued, plain = zip(*self._noted, strict=True)
        self._noted.clear()
        self._queued.observe_all(queued)
        self._batch_bytes.observe_all(sizes)
        self._batches.observe_all(sizes)
        self._sizes.observe_all(map(truediv, plain, counts))
        self._records.add(sum(counts))
        self._plain.add(sum(plain))
        for topic, (count, size, before) in _by_topic(topics, counts, sizes, plain).items():
            meters = self._topics.get(topic) or self._make_topic(topic)
            meters.records.value += count
            meters.acknowledged_bytes.value += size
            bytes_meters = self._bytes.get(topic) or self._make_bytes(topic)
            bytes_meters.compressed.value += size
            bytes_meters.plain.value += before

    def _make_topic(self, topic: str) -> _TopicMeters:
        records = self.own_metrics.counter("topic.records", topic=topic)
        made = self._topics[topic] = _TopicMeters(
            records, self._acknowledged_bytes.get_counter(topic)
        )
        return made

    def _make_bytes(self, topic: str) -> _ByteMeters:
        """Create the counters of a topic's bytes, and of its errors, as Kafka's clients do."""
        own = self.own_metrics
        own.counter("topic.failed", topic=topic)
        own.counter("topic.retried", topic=topic)
        made = self._bytes[topic] = _ByteMeters(
            own.counter("topic.bytes", topic=topic), own.counter("topic.plain.bytes", topic=topic)
        )
        return made

    def _average_size(self) -> list[tuple[Labels, Reading]]:
        return [((), Reading(self._sent_records, self._plain.value))]

    @property
    def _sent_records(self) -> float:
        """The number of records in all attempts."""
        return self._records.value + self._attempted.value + self._retried.value

    def count_retried(self, batch: ProducerBatch) -> None:
        """Count the records of a batch that is sent again."""
        self._count_attempt(batch)
        self._retried.add(batch.count)
        self.own_metrics.counter("topic.retried", topic=batch.topic).add(batch.count)

    def count_failed(self, batch: ProducerBatch) -> None:
        """Record a batch that failed, unless it was never sent."""
        if batch.stage is BatchStage.IN_FLIGHT:
            # The earlier attempts were counted when they were retried.
            self._count_attempt(batch)
            self._attempted.add(batch.count)
            self.own_metrics.counter("topic.attempted", topic=batch.topic).add(batch.count)
        if batch.attempt:
            self._queued.observe(batch.first_sent - batch.created)
            self._batch_bytes.observe(batch.size)

    def _count_attempt(self, batch: ProducerBatch) -> None:
        """Count the bytes of a failed attempt, in the same way as those of a successful one."""
        plain = batch.builder.size
        self._batches.observe(batch.size)
        self._sizes.observe(plain / batch.count)
        self._plain.value += plain
        meters = self._bytes.get(batch.topic) or self._make_bytes(batch.topic)
        meters.compressed.value += batch.size
        meters.plain.value += plain

    def count_lost(self, batch: DeliveryBatch) -> None:
        """Count the records that are still in a failed batch as failed."""
        self._failed.add(batch.unretrieved)
        self.own_metrics.counter("topic.failed", topic=batch.topic).add(batch.unretrieved)


def _by_topic(
    topics: Sequence[str], counts: Sequence[int], sizes: Sequence[int], plain_sizes: Sequence[int]
) -> dict[str, list[int]]:
    """Return the three sums for each topic. Row i belongs to the topic `topics[i]`."""
    if len(set(topics)) == 1:
        return {topics[0]: [sum(counts), sum(sizes), sum(plain_sizes)]}
    sums: dict[str, list[int]] = {}
    for topic, count, size, plain_size in zip(topics, counts, sizes, plain_sizes, strict=True):
        found = sums.get(topic)
        if found is None:
            sums[topic] = [count, size, plain_size]
        else:  # Not a loop: this runs for each batch.
            found[0] += count
            found[1] += size
            found[2] += plain_size
    return sums
