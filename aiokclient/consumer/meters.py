"""The metrics of a consumer, updated for each chunk and response, never for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.metrics import Metrics

__all__ = ["ConsumerGauges", "ReadMeters"]


class ReadMeters:
    """Counters of delivered and fetched records. Consumers with the same client share them."""

    def __init__(self, metrics: Metrics) -> None:
        self.damaged = metrics.counter("consumer.batches.damaged")
        self._records = metrics.counter("consumer.records", unit="{record}")
        self._by_topic = metrics.by_topic("consumer.topic.records", unit="{record}")
        self._bytes = metrics.by_topic("consumer.topic.bytes", unit="By")

    def delivered(self, topic: str, count: int) -> None:
        """Count records that were delivered to the application."""
        # Without calls of `add`, because `get()` calls this for each record.
        self._records.value += count
        self._by_topic.of(topic).value += count

    def table(self, topic: str, table: Any) -> None:
        """Count the records of an Arrow table that was delivered."""
        self.delivered(topic, getattr(table, "num_rows", 0))

    def fetched(self, topic: str, size: int) -> None:
        """Count the batches of one partition in a response, which have `size` bytes."""
        self._bytes.of(topic).add(size)


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
