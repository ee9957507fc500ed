"""The metrics of a consumer, updated for each chunk and response, never for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.measures import EMPTY, Measures, Reading, Spread, gauged
from aiokclient.metrics import Counter, Labels, Metrics

if TYPE_CHECKING:
    from aiokclient.consumer.delivery.in_progress import InProgress
    from aiokclient.consumer.delivery.read_lock import ReadLock
    from aiokclient.consumer.state.fetch_state import FetchState
    from aiokclient.consumer.state.partition import PartitionState

__all__ = ["ConsumerGauges", "FetchMeters", "ReadMeters", "measure"]

NOTED = 64
"""Number of collected responses at which they are counted even if nobody reads the metrics."""


class ReadMeters:
    """Counters of delivered records. Consumers with the same client share the metrics.

    `measures` are those of this consumer alone. Delivered records are collected by topic first,
    and are counted when they are read.
    """

    def __init__(self, metrics: Metrics, measures: Measures | None = None) -> None:
        self.damaged = metrics.counter("consumer.batches.damaged")
        self._records = metrics.counter("consumer.records", unit="{record}")
        self._by_topic = metrics.by_topic("consumer.topic.records", unit="{record}")
        self._own = Measures("consumer") if measures is None else measures
        self._own_records = self._own.quantity("records")
        self._own_bytes = self._own.quantity("bytes")
        self._noted: dict[str, int] = {}
        self._unpacked: dict[str, int] = {}
        self._own.before_reading(self._count)
        self.end = metrics.before_reading(self._count)
        """A function that counts the collected records, and ends the collection."""

    def delivered(self, topic: str, count: int) -> None:
        """Note records that were delivered to the application."""
        noted = self._noted
        # Without a further call, because `get()` calls this for each record.
        if topic in noted:
            noted[topic] += count
        else:
            noted[topic] = count

    def unpacked(self, topic: str, size: int) -> None:
        """Note the bytes of records that were unpacked for the application."""
        self._unpacked[topic] = self._unpacked.get(topic, 0) + size

    def _count(self) -> None:
        noted, self._noted = self._noted, {}
        unpacked, self._unpacked = self._unpacked, {}
        for topic, size in unpacked.items():
            self._own_bytes.add(size)
            self._own.quantity("topic.bytes", topic=topic).add(size)
        for topic, count in noted.items():
            self._records.add(count)
            self._by_topic.of(topic).add(count)
            self._own_records.add(count)
            self._own.quantity("topic.records", topic=topic).add(count)

    def table(self, topic: str, table: Any, size: int) -> None:
        """Count the records of an Arrow table that was delivered, and the bytes of its batches."""
        self.delivered(topic, getattr(table, "num_rows", 0))
        self.unpacked(topic, size)


class FetchMeters:
    """Counters of what fetch responses contained, for one consumer.

    Responses are collected first, and are counted when the metrics are read.
    """

    def __init__(self, metrics: Metrics, measures: Measures | None = None) -> None:
        self._bytes = metrics.by_topic("consumer.topic.bytes", unit="By")
        self._own = own = Measures("consumer") if measures is None else measures
        self._sizes = own.spread("fetches")
        self._seconds = own.spread("fetches.seconds")
        self._throttles = own.spread("fetches.throttles")
        self._requests = own.quantity("fetches.requests")
        self._useful = own.quantity("fetches.useful")
        self._noted: list[tuple[Counter, list[tuple[str, int]], int]] = []
        self._positions: list[tuple[FetchState, int, int]] = []
        self._lags, self._leads = own.spread("lags.all"), own.spread("leads.all")
        self._moved: WeakSet[FetchState] = WeakSet()
        """The partitions that were measured in this time span."""
        own.at_restart(self._restart)
        own.before_reading(self._count)
        self.end = metrics.before_reading(self._count)
        """A function that counts the collected responses, and ends the collection."""

    def answered(self, seconds: float) -> None:
        """Note the time that a fetch has taken."""
        self._seconds.observe(seconds)

    def fetched(self, broker: Counter, sizes: list[tuple[str, int]], throttle_ms: int) -> None:
        """Note a response, with the topic and the bytes of each partition that has batches."""
        noted = self._noted
        noted.append((broker, sizes, throttle_ms))
        if len(noted) >= NOTED:
            self._count()

    def positioned(self, fetch: FetchState, lag: int, lead: int) -> None:
        """Note a fetched offset: its distances to the high watermark, and from the log's start."""
        positions = self._positions
        positions.append((fetch, lag, lead))
        if len(positions) >= NOTED:
            self._count_positions()

    def _count_positions(self) -> None:
        positions, self._positions = self._positions, []
        for fetch, lag, lead in positions:
            fetch.measure(lag, lead)
            self._moved.add(fetch)
        self._lags.observe_all(lag for _, lag, _ in positions)
        self._leads.observe_all(lead for _, _, lead in positions if lead >= 0)

    def _restart(self) -> None:
        for fetch in list(self._moved):
            fetch.restart_measuring()
        self._moved.clear()

    def _count(self) -> None:
        self._count_positions()
        noted, self._noted = self._noted, []
        own = self._own
        for broker, sizes, throttle_ms in noted:
            self._requests.add()
            self._throttles.observe(throttle_ms / 1000)
            if not sizes:
                continue
            self._useful.add()
            by_topic: dict[str, int] = {}
            for topic, size in sizes:
                by_topic[topic] = by_topic.get(topic, 0) + size
            for topic, size in by_topic.items():
                self._bytes.of(topic).add(size)
                own.spread("topic.fetches", topic=topic).observe(size)
            total = sum(by_topic.values())
            broker.add(total)
            self._sizes.observe(total)


class ConsumerGauges:
    """Gauges that are computed when they are read: the lag, and the time since the last poll.

    Only assigned partitions have a lag. `away_since` returns the time at which the application's
    last request for records ended, or None during a request. `buffered` returns the bytes in the
    buffer.
    """

    def __init__(
        self,
        metrics: Metrics,
        subscription: SubscriptionState,
        away_since: Callable[[], float | None],
        buffered: Callable[[], int],
        time: Callable[[], float],
        group_id: str | None,
    ) -> None:
        self._subscription = subscription
        self._away_since = away_since
        self._time = time
        self._labels = {} if group_id is None else {"group": group_id}
        self._ends = [
            metrics.collect("consumer.lag", self._lags, unit="{record}"),
            metrics.collect("consumer.poll.age.seconds", self._age, unit="s"),
            metrics.collect("consumer.partitions", self._assigned),
            metrics.gauge("consumer.buffer.bytes", unit="By").include(buffered),
        ]
        if self._labels:
            self._ends.append(metrics.share(**self._labels))

    def close(self) -> None:
        """Remove the gauges."""
        for end in self._ends:
            end()

    def _lags(self) -> Iterator[tuple[dict[str, Any], int]]:
        self._subscription.settle()
        for state in self._subscription.partitions.values():
            end = state.fetch.high_watermark
            if state.located and end >= 0:
                topic, partition = state.tp
                labels = {**self._labels, "topic": topic, "partition": partition}
                yield labels, max(end - state.position, 0)

    def _age(self) -> Iterator[tuple[dict[str, str], float]]:
        since = self._away_since()
        yield self._labels, 0.0 if since is None else max(self._time() - since, 0.0)

    def _assigned(self) -> Iterator[tuple[dict[str, str], int]]:
        yield self._labels, len(self._subscription.partitions)


def _reading(spread: Spread | None) -> Reading:
    return EMPTY if spread is None else spread.reading()


def measure(
    measures: Measures,
    subscription: SubscriptionState,
    lock: ReadLock,
    in_progress: InProgress,
    time: Callable[[], float],
) -> None:
    """Offer what is computed from the state of a consumer when it is pushed."""

    def of_partitions(
        read: Callable[[PartitionState], Reading | None],
    ) -> Callable[[], Iterator[tuple[Labels, Reading]]]:
        def compute() -> Iterator[tuple[Labels, Reading]]:
            for state in subscription.partitions.values():
                reading = read(state)
                if reading is not None:
                    labels = ("topic", state.tp.topic), ("partition", str(state.tp.partition))
                    yield labels, reading

        return compute

    def lag(state: PartitionState) -> Reading | None:
        end = state.fetch.high_watermark
        return gauged(max(end - state.position, 0)) if state.located and end >= 0 else None

    def lead(state: PartitionState) -> Reading | None:
        start = state.fetch.log_start
        return gauged(max(state.position - start, 0)) if state.located and start >= 0 else None

    measures.compute("lag", of_partitions(lag))
    measures.compute("lead", of_partitions(lead))
    measures.compute("lags", of_partitions(lambda state: _reading(state.fetch.lags)))
    measures.compute("leads", of_partitions(lambda state: _reading(state.fetch.leads)))
    measures.compute("replica", of_partitions(lambda state: gauged(state.fetch.preferred)))

    def idle() -> list[tuple[Labels, Reading]]:
        return [((), Reading(lock.between.reading().total, waited.value))]

    def polled() -> float:
        since = lock.away_since
        return 0.0 if since is None else max(time() - since, 0.0)

    waited = measures.quantity("idle.seconds")
    measures.compute("polls", lambda: [((), lock.between.reading())])
    measures.compute("poll.idle", idle)
    measures.present("poll.age", polled)
    measures.present("assigned", lambda: len(subscription.partitions))
    measures.present("in.progress", lambda: float(in_progress.count()))
    measures.at_restart(lock.between.restart)
    for key in ("commit.seconds", "committed.seconds"):
        measures.quantity(key)
