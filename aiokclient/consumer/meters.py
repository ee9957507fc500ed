"""The metrics of a consumer, updated for each chunk and response, never for each record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokclient.consumer.state.partition import FetchState
from aiokclient.metrics import (
    Counter,
    Labels,
    OwnMetrics,
    Reading,
    Series,
    SeriesByKey,
    gauged,
)
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.types import TopicPartition

NOTED = 128
"""The number of responses and partitions to collect before they are counted."""

FetchedPartition: TypeAlias = tuple[FetchState, str, int, int, int, int]
"""The state of a partition, its topic, the fetched offset, the high watermark, the log's start, and
the size of the batches, which is 0 if there are none."""


class ReadMeters:
    """Counters of delivered records.

    Delivered records are collected by topic first, and are counted when the metrics are read.
    """

    def __init__(self, own_metrics: OwnMetrics) -> None:
        self.damaged = own_metrics.metrics.counter("consumer.batches.damaged")
        self._own = own_metrics
        self._records = own_metrics.counter("records")
        self._bytes = own_metrics.counter("bytes")
        own_metrics.show_series("records", "consumer.records", unit="{record}")
        own_metrics.show_series("topic.records", "consumer.topic.records", unit="{record}")
        self._noted: dict[str, int] = {}
        self._unpacked: dict[str, int] = {}
        own_metrics.add_updater(self._sum_counts)

    def count_delivered(self, topic: str, count: int) -> None:
        """Note records that were delivered to the application."""
        noted = self._noted
        # `dict.get()` would be slower, and `get()` calls this for each record.
        if topic in noted:
            noted[topic] += count
        else:
            noted[topic] = count

    def count_unpacked(self, topic: str, size: int) -> None:
        """Note the bytes of records that were unpacked for the application."""
        self._unpacked[topic] = self._unpacked.get(topic, 0) + size

    def _sum_counts(self) -> None:
        noted, self._noted = self._noted, {}
        unpacked, self._unpacked = self._unpacked, {}
        for topic, size in unpacked.items():
            self._bytes.add(size)
            self._own.counter("topic.bytes", topic=topic).add(size)
        for topic, count in noted.items():
            self._records.add(count)
            self._own.counter("topic.records", topic=topic).add(count)

    def count_table(self, topic: str, table: Any, size: int) -> None:
        """Count the records of an Arrow table that was delivered, and the bytes of its batches."""
        self.count_delivered(topic, getattr(table, "num_rows", 0))
        self.count_unpacked(topic, size)


class FetchMeters:
    """Counters of the contents of fetch responses, for one consumer.

    Responses are collected first, and are counted when the metrics are read.
    """

    def __init__(self, own_metrics: OwnMetrics) -> None:
        self._own = own = own_metrics
        self._bytes = own.metrics.get_topic_counters("consumer.topic.bytes", unit="By")
        self._sizes = own.spread("fetches")
        self._seconds = own.spread("fetches.seconds")
        self._throttles = own.spread("fetches.throttles")
        self._requests = own.counter("fetches.requests")
        self._useful = own.counter("fetches.useful")
        self._lags, self._leads = own.spread("lags.all"), own.spread("leads.all")
        self._noted: list[tuple[Counter, float | None, int, list[FetchedPartition]]] = []
        self._room = NOTED
        own.add_updater(self._count_responses)

    def on_response(
        self,
        broker: Counter,
        seconds: float | None,
        throttle_ms: int,
        partitions: list[FetchedPartition],
    ) -> None:
        """Note a response, the time that it has taken if known, and the partitions in it."""
        self._noted.append((broker, seconds, throttle_ms, partitions))
        self._room -= 1 + len(partitions)
        if self._room <= 0:
            self._count_responses()

    def _count_responses(self) -> None:
        noted, self._noted, self._room = self._noted, [], NOTED
        if not noted:
            return
        by_topic: dict[str, list[int]] = {}
        totals = []
        lags: defaultdict[FetchState, list[int]] = defaultdict(list)
        leads: defaultdict[FetchState, list[int]] = defaultdict(list)
        for broker, _, _, partitions in noted:
            sizes: dict[str, int] = {}
            for fetch, topic, offset, end, start, size in partitions:
                lags[fetch].append(end - offset)
                if start >= 0:
                    leads[fetch].append(offset - start)
                if size:
                    sizes[topic] = sizes.get(topic, 0) + size
            if sizes:
                totals.append(total := sum(sizes.values()))
                broker.value += total
                for topic, size in sizes.items():
                    by_topic.setdefault(topic, []).append(size)
        for topic, found in by_topic.items():
            self._bytes.get_counter(topic).add(sum(found))
            self._own.spread("topic.fetches", topic=topic).observe_all(found)
        self._sizes.observe_all(totals)
        self._useful.add(len(totals))
        self._requests.add(len(noted))
        self._seconds.observe_all([each for _, each, _, _ in noted if each is not None])
        self._throttles.observe_all([throttle_ms / 1000 for _, _, throttle_ms, _ in noted])
        for fetch, measured in lags.items():
            fetch.lags.observe_all(measured)
        for fetch, measured in leads.items():
            fetch.leads.observe_all(measured)
        # Only the longest lag and the shortest lead are pushed.
        if lags:
            self._lags.observe(max(map(max, lags.values())))
        if leads:
            self._leads.observe(min(map(min, leads.values())))


class _PartitionRow(NamedTuple):
    """The measured numbers of one partition at one moment. Unknown offsets are negative."""

    tp: TopicPartition
    position: int
    high_watermark: int
    log_start: int
    replica: int
    lags: Reading
    leads: Reading


class _PartitionRows:
    """A copy of the measured numbers of all partitions at one moment, which a thread reads."""

    def __init__(self, rows: Sequence[_PartitionRow]) -> None:
        self._rows = rows

    @cached_property
    def _labelled(self) -> list[tuple[Labels, _PartitionRow]]:
        return [
            ((("topic", row.tp.topic), ("partition", str(row.tp.partition))), row)
            for row in self._rows
        ]

    def measure_lag(self) -> Series:
        for labels, row in self._labelled:
            if row.position >= 0 and row.high_watermark >= 0:
                yield labels, gauged(max(row.high_watermark - row.position, 0))

    def measure_lead(self) -> Series:
        for labels, row in self._labelled:
            if row.position >= 0 and row.log_start >= 0:
                yield labels, gauged(max(row.position - row.log_start, 0))

    def measure_lags(self) -> Series:
        for labels, row in self._labelled:
            yield labels, row.lags

    def measure_leads(self) -> Series:
        for labels, row in self._labelled:
            yield labels, row.leads

    def measure_replica(self) -> Series:
        for labels, row in self._labelled:
            yield labels, gauged(row.replica)


class ConsumerGauges:
    """Values that are computed from a consumer's state when they are read.

    `metrics()` has the lag, the time since the last poll, the number of assigned partitions, and
    the bytes in the buffer. Only assigned partitions have a lag. Pushes have more.
    """

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine
        self._subscription = subscription = engine.subscription
        own_metrics, group_id = subscription.own_metrics, engine.config.group_id
        self._labels = {} if group_id is None else {"group": group_id}
        self._waited = own_metrics.counter("idle.seconds")
        metrics = own_metrics.metrics
        buffered = metrics.gauge("consumer.buffer.bytes", unit="By")
        self._ends = [
            metrics.collect_series("consumer.lag", self._measure_lags, unit="{record}"),
            metrics.collect_series("consumer.poll.age.seconds", self._measure_age, unit="s"),
            metrics.collect_series("consumer.partitions", self._count_assigned),
            buffered.add_source(lambda: engine.buffer.size),
        ]
        if self._labels:
            self._ends.append(metrics.share_labels(**self._labels))
        own_metrics.offer_series(self._measure_polls)
        own_metrics.offer_partitions(self._measure_partitions)
        own_metrics.gauge("poll.age", self._find_poll_age)
        own_metrics.gauge("assigned", lambda: len(subscription.partitions))
        own_metrics.gauge("in.progress", lambda: float(engine.in_progress.count_records()))
        for key in ("commit.seconds", "committed.seconds"):
            own_metrics.counter(key)

    def remove_values(self) -> None:
        """Remove the values from `metrics()`."""
        for end in self._ends:
            end()

    def _find_poll_age(self) -> float:
        since = self._engine.read_lock.away_since
        return 0.0 if since is None else max(self._engine.cluster.clock.monotonic() - since, 0.0)

    def _measure_age(self) -> Iterator[tuple[dict[str, str], float]]:
        yield self._labels, self._find_poll_age()

    def _count_assigned(self) -> Iterator[tuple[dict[str, str], int]]:
        yield self._labels, len(self._subscription.partitions)

    def _measure_lags(self) -> Iterator[tuple[dict[str, Any], int]]:
        self._subscription.update_positions()
        for state in self._subscription.partitions.values():
            end = state.fetch.high_watermark
            if state.is_located and end >= 0:
                topic, partition = state.tp
                labels = {**self._labels, "topic": topic, "partition": partition}
                yield labels, max(end - state.position, 0)

    def _measure_polls(self, again: bool | None) -> SeriesByKey:
        reading = self._engine.read_lock.take_reading(again=again)
        return {
            "polls": [((), reading)],
            "poll.idle": [((), Reading(reading.total, self._waited.value))],
        }

    def _measure_partitions(self, again: bool | None) -> SeriesByKey:
        rows = []
        for state in self._subscription.partitions.values():
            fetch, position = state.fetch, state.position if state.is_located else -1
            end, start, replica = fetch.high_watermark, fetch.log_start, fetch.preferred
            lags = fetch.lags.take_reading(again=again)
            leads = fetch.leads.take_reading(again=again)
            rows.append(_PartitionRow(state.tp, position, end, start, replica, lags, leads))
        copied = _PartitionRows(rows)
        return {
            "lag": copied.measure_lag,
            "lead": copied.measure_lead,
            "lags": copied.measure_lags,
            "leads": copied.measure_leads,
            "replica": copied.measure_replica,
        }
