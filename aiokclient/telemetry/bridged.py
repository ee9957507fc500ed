"""The table of the metrics that other tools get: names, kinds, units, and descriptions.

It has all metrics of `metrics()`, with the prefix `aiokclient.`, and the metrics that only pushes
have (`table.py`), with `aiokclient.` in place of `org.apache.kafka.`. The metrics of connections
are pushed under the name of each kind of client. Here they exist once, under `client.`.

Rates, averages, and extreme values are left out, because tools compute them themselves. The metrics
in `SAME` are left out, because each one has the same value as another metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from aiokclient.telemetry.table import (
    COMMON,
    CONSUMER,
    NETWORK,
    OWN,
    OWN_CONSUMER,
    OWN_PRODUCER,
    OWN_SHARE,
    PRODUCER,
    SHARE,
    Row,
    Way,
)
from aiokclient.types.named_tuple import NamedTuple

NAMESPACE: Final = "aiokclient."
RECORD: Final = "{record}"


class Description(NamedTuple):
    """The description of a metric in a tool. `kind` is "counter", "gauge", or "histogram"."""

    kind: str
    unit: str
    text: str


def _counter(text: str, unit: str = "") -> Description:
    return Description("counter", unit, text)


def _gauge(text: str, unit: str = "") -> Description:
    return Description("gauge", unit, text)


def _histogram(text: str, unit: str = "s") -> Description:
    return Description("histogram", unit, text)


OWN_METRICS: Final[Mapping[str, Description]] = {
    "client.connections": _gauge("Open connections."),
    "client.received.bytes": _counter("Bytes of responses.", "By"),
    "client.request.retries": _counter("Requests that were sent again."),
    "client.request.seconds": _histogram("Time from writing a request to its response."),
    "client.sent.bytes": _counter("Bytes of requests.", "By"),
    "client.throttle.seconds": _histogram("Throttle times that the broker has requested."),
    "consumer.batches.damaged": _counter("Batches that could not be read."),
    "consumer.buffer.bytes": _gauge("Fetched bytes that were not yet delivered.", "By"),
    "consumer.commits": _counter("Requests to commit offsets."),
    "consumer.commits.failed": _counter("Partitions whose offsets could not be committed."),
    "consumer.fetch.bytes": _counter("Bytes of record batches in responses.", "By"),
    "consumer.fetch.requests": _counter("Fetch requests."),
    "consumer.lag": _gauge("Records between the position and the end offset.", RECORD),
    "consumer.partitions": _gauge("Partitions that are currently assigned."),
    "consumer.partitions.assigned": _counter("Partitions that were assigned."),
    "consumer.partitions.lost": _counter("Partitions that were lost."),
    "consumer.partitions.revoked": _counter("Partitions that were revoked."),
    "consumer.poll.age.seconds": _gauge("Time since the last request for records.", "s"),
    "consumer.position.resets": _counter("Positions that were reset."),
    "consumer.rebalances": _counter("Rebalances in which the member took part."),
    "consumer.records": _counter("Records that were delivered to the application.", RECORD),
    "consumer.topic.bytes": _counter("Bytes that were fetched, by topic.", "By"),
    "consumer.topic.records": _counter("Records that were delivered, by topic.", RECORD),
    "consumer.truncations": _counter("Positions that were moved back after a truncation."),
    "group.generations": _counter("Generations in which the member took part."),
    "group.loop.blocked.seconds": _histogram("Times for which the event loop was blocked."),
    "group.losses": _counter("Losses of the membership."),
    "producer.batch.bytes": _histogram("Size of a batch after compression.", "By"),
    "producer.buffer.bytes": _gauge("Memory that the buffer uses.", "By"),
    "producer.overflow.bytes": _gauge("Memory that the overflow queue uses.", "By"),
    "producer.queue.seconds": _histogram("Time until the first request of a batch."),
    "producer.records.acknowledged": _counter("Records that were acknowledged.", RECORD),
    "producer.records.failed": _counter("Records that failed.", RECORD),
    "producer.retries": _counter("Batches that failed and are sent again."),
    "producer.topic.bytes": _counter("Bytes of acknowledged records, by topic.", "By"),
    "producer.topic.failed": _counter("Records that were not delivered, by topic.", RECORD),
    "producer.topic.records": _counter("Records that were acknowledged, by topic.", RECORD),
    "producer.transaction.abort.seconds": _histogram("Seconds that aborts took."),
    "producer.transaction.commit.seconds": _histogram("Seconds that commits took."),
    "producer.transaction.restarts": _counter("Calls of restart()."),
    "producer.transactions": _counter("Transactions, by outcome."),
    "schema.registry.request.seconds": _histogram("Time of an attempt of a request."),
    "schema.registry.requests": _counter("Attempts of requests to registries, by outcome."),
    "share.acknowledgements": _counter("Records that were settled, by type.", RECORD),
    "share.bytes": _counter("Bytes of record batches in share fetches.", "By"),
    "share.fetch.throttled": _counter("Share fetches whose records a quota has lost."),
    "share.late.successes": _counter("Settlements that were confirmed too late.", RECORD),
    "share.lock.renewals": _counter("Locks that were renewed.", RECORD),
    "share.locks.lost": _counter("Locks that were lost, by reason.", RECORD),
    "share.records": _counter("Records that share consumers have delivered.", RECORD),
    "share.records.redelivered": _counter("Records that were acquired again.", RECORD),
    "share.records.undelivered.released": _counter(
        "Records that were released because they had waited too long.", RECORD
    ),
    "telemetry.partitions.omitted": _counter("Pushes without the series by partition."),
    "telemetry.pushes.split": _counter("Client metrics that were split over several pushes."),
    "telemetry.series.skipped": _counter("Series that could not be pushed."),
    "telemetry.topics.omitted": _counter("Pushes without the series by topic."),
    "worker.dead.letters": _counter("Records that were written to the dead letters.", RECORD),
    "worker.failures": _counter("Runs of handlers that failed, by the class of the error."),
    "worker.handler.seconds": _histogram("Time that a run of a handler took."),
    "worker.lag": _gauge("Records between the lowest one not done and the end offset.", RECORD),
    "worker.lane.seconds": _histogram("Time from the delivery of a record to its run."),
    "worker.lanes.busy": _gauge("Lanes in which a handler runs."),
    "worker.oldest.seconds": _gauge("Age of the oldest record that is not done.", "s"),
    "worker.ready": _gauge("1 if the worker is ready, otherwise 0."),
    "worker.retries": _counter("Records that will be processed again."),
    "worker.retries.waiting": _gauge("Records that wait for a retry.", RECORD),
    "worker.runs": _counter("Runs of handlers that have ended."),
}
"""The metrics of `metrics()`. docs/metrics.md describes them in more detail."""

SAME: Final[Mapping[str, str]] = {
    "client.connection.count": "client.connections",
    "client.request.retries.total": "client.request.retries",
    "consumer.coordinator.assigned.partitions": "consumer.partitions",
    "consumer.fetch.manager.records.consumed.total": "consumer.topic.records",
    "consumer.fetch.manager.records.lag": "consumer.lag",
    "consumer.last.poll.seconds.ago": "consumer.poll.age.seconds",
    "consumer.share.acknowledgements.total": "share.acknowledgements",
    "consumer.share.fetch.manager.bytes.consumed.total": "share.bytes",
    "consumer.share.fetch.manager.records.consumed.total": "share.records",
    "consumer.share.fetch.throttled.total": "share.fetch.throttled",
    "consumer.share.late.successes.total": "share.late.successes",
    "consumer.share.lock.renewals.total": "share.lock.renewals",
    "consumer.share.locks.lost.total": "share.locks.lost",
    "consumer.share.records.redelivered.total": "share.records.redelivered",
    "consumer.share.records.undelivered.released.total": "share.records.undelivered.released",
    "producer.batch.retries.total": "producer.retries",
    "producer.overflow.bytes": "producer.overflow.bytes",
    "producer.record.error.total": "producer.records.failed",
    "producer.topic.record.error.total": "producer.topic.failed",
    "producer.transactions.total": "producer.transactions",
}
"""Pushed metrics that are left out, each with the metric that has the same value."""

LASTING: Final = {
    Way.TOTAL: "counter",
    Way.SUM: "counter",
    Way.GAUGE: "gauge",
    Way.INT: "gauge",
    Way.HISTOGRAM: "histogram",
}
"""The kinds of metrics, by those ways to compute a value that need no time span."""
UNITS: Final = (
    ("time.ns", "ns"),
    (".ms", "ms"),
    ("latency", "ms"),
    ("byte", "By"),
    ("seconds", "s"),
    (".age", "s"),
    ("record", RECORD),
)
"""Parts of the names of pushed metrics, each with the unit of the metrics that contain it."""


def _added(prefix: str, *rows: Row) -> tuple[Row, ...]:
    named = [row._replace(name=f"{prefix}.{row.name}") for row in rows if row.key]
    # A sum by topic and the sum of all topics have the same name. A tool would add up both.
    by_label = {row.name for row in named if row.labels}
    return tuple(
        row
        for row in named
        if row.way in LASTING and row.name not in SAME and (row.labels or row.name not in by_label)
    )


PUSHED: Final[Mapping[str, tuple[Row, ...]]] = MappingProxyType(
    {
        "": _added("client", *COMMON, *NETWORK, *OWN),
        "producer": _added("producer", *PRODUCER, *OWN_PRODUCER),
        "consumer": _added("consumer", *CONSUMER, *SHARE, *OWN_CONSUMER, *OWN_SHARE),
        "admin": (),
    }
)
"""The rows that only pushes have, by the kind of their object; "" stands for connections."""


def _described(rows: Iterable[Row]) -> Iterable[tuple[str, Description]]:
    for row in rows:
        unit = next((unit for part, unit in UNITS if part in row.name), "")
        text = f"The value that clients push as {row.name} of their kind."
        yield row.name, Description(LASTING[row.way], unit, text)


DESCRIPTIONS: Final[Mapping[str, Description]] = MappingProxyType(
    {
        f"{NAMESPACE}{name}": description
        for name, description in (
            *OWN_METRICS.items(),
            *(pair for rows in PUSHED.values() for pair in _described(rows)),
        )
    }
)
"""All metrics that other tools get, except those of the application."""


def largest_counts(name: str) -> bool:
    """Return whether the largest value is used if several objects have the same labels.

    This is so for times and timestamps, whose sum has no meaning. Other values are added up.
    """
    description = DESCRIPTIONS.get(f"{NAMESPACE}{name}")
    return description is not None and description.kind == "gauge" and description.unit in TIMES


TIMES: Final = ("s", "ms")
