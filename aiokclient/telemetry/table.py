"""The table of all metrics that are pushed: names, kinds, labels, and how each is computed.

A row reads one key of `aiokclient.metrics.OwnMetrics`. The names, kinds, and labels are those of
Kafka's own clients, so that an operator sees clients of all languages together. Metrics that only
this library has are under `aiokclient.`. Names are without the prefix `org.apache.kafka.`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from aiokclient.types.named_tuple import NamedTuple

PREFIX = "org.apache.kafka."
PREFIXES = {"producer": "producer.", "consumer": "consumer.", "admin": "admin.client."}
"""The prefix that the names of the connections' metrics have for each kind of client."""

COUNT = f"{PREFIX}kafka.count.count"
"""The number of series, which the collector itself counts."""

MS = 1e3
NS = 1e9


class Way(Enum):
    """The way in which a value is computed from metrics.

    TOTAL, SUM, and HISTOGRAM are cumulative, and GAUGE and INT are present values. All others
    concern the present time span.
    """

    TOTAL = "number of observations"
    SUM = "sum of observations"
    RATE = "observations per second"
    SUM_RATE = "sum of observations, per second"
    PER_HOUR = "observations per hour"
    AVERAGE = "sum of observations, divided by their number"
    MAXIMUM = "largest observation"
    MINIMUM = "smallest observation"
    GAUGE = "present value"
    INT = "present value, as an integer"
    RATIO = "sum of observations, divided by that of another key"
    EACH = "number of observations, divided by that of another key"
    HISTOGRAM = "observations in buckets"


class Row(NamedTuple):
    """One metric. `divisor` is the other key that RATIO and EACH need."""

    name: str
    way: Way
    key: str
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    divisor: str = ""
    groups: tuple[str, ...] = ("assigned", "classic", "consumer")
    """The kinds of membership with which a consumer has the metric."""


def _meter(name: str, key: str, *labels: str) -> Iterable[Row]:
    """Return the rows for the rate and the total number of observations."""
    return Row(f"{name}.rate", Way.RATE, key, labels), Row(f"{name}.total", Way.TOTAL, key, labels)


def _sums(name: str, key: str, *labels: str) -> Iterable[Row]:
    """Return the rows for the sum of observations, per second and in total."""
    return Row(f"{name}.rate", Way.SUM_RATE, key, labels), Row(
        f"{name}.total", Way.SUM, key, labels
    )


def _spread(name: str, key: str, *labels: str, scale: float = 1.0) -> Iterable[Row]:
    """Return the rows for the average and the maximum of observations."""
    average, maximum = Way.AVERAGE, Way.MAXIMUM
    return Row(f"{name}.avg", average, key, labels, scale), Row(
        f"{name}.max", maximum, key, labels, scale
    )


def _nanoseconds(*rows: tuple[str, str]) -> Iterable[Row]:
    return [Row(f"{name}.time.ns.total", Way.SUM, key, scale=NS) for name, key in rows]


def _grouped(*rows: Row, classic: bool = False) -> Iterable[Row]:
    """Return rows that only members of a group have; with `classic`, only in a classic group."""
    groups = ("classic", "member") if classic else ("classic", "consumer", "member")
    return [row._replace(groups=groups) for row in rows]


COMMON = (
    Row("app.info.start.time.ms", Way.INT, "start"),
    Row("kafka.count.count", Way.GAUGE, ""),
)
"""Metrics of every producer, consumer, and admin."""

NETWORK = (
    *_meter("connection.close", "connections.closed"),
    Row("connection.count", Way.GAUGE, "connections"),
    *_meter("connection.creation", "connections.opened"),
    *_meter("failed.authentication", "authentications.failed"),
    *_meter("failed.reauthentication", "reauthentications.failed"),
    *_meter("successful.authentication", "authentications"),
    # In brokers, this metric counts only clients that cannot reauthenticate. In a client, it counts
    # all authentications.
    Row("successful.authentication.no.reauth.total", Way.TOTAL, "authentications"),
    *_meter("successful.reauthentication", "reauthentications"),
    *_spread("reauthentication.latency", "reauthentications.seconds", scale=MS),
    *_sums("incoming.byte", "responses"),
    *_sums("outgoing.byte", "requests"),
    *_meter("network.io", "io"),
    *_meter("request", "requests"),
    *_spread("request.size", "requests"),
    *_meter("response", "responses"),
    *_sums("node.incoming.byte", "node.responses", "node_id"),
    *_sums("node.outgoing.byte", "node.requests", "node_id"),
    *_meter("node.request", "node.requests", "node_id"),
    *_spread("node.request.latency", "node.latencies", "node_id", scale=MS),
    *_spread("node.request.size", "node.requests", "node_id"),
    *_meter("node.response", "node.responses", "node_id"),
)
"""Metrics of the connections, for each kind of client that uses them."""

PRODUCER = (
    *_spread("batch.size", "batches"),
    *_meter("batch.split", "splits"),
    Row("buffer.available.bytes", Way.GAUGE, "buffer.free"),
    *_meter("buffer.exhausted", "exhausted"),
    Row("buffer.total.bytes", Way.GAUGE, "buffer.total"),
    Row("compression.rate.avg", Way.RATIO, "batches", divisor="plain.bytes"),
    *_nanoseconds(
        ("flush", "flush.seconds"),
        ("metadata.wait", "metadata.seconds"),
        ("txn.abort", "abort.seconds"),
        ("txn.begin", "begin.seconds"),
        ("txn.commit", "commit.seconds"),
        ("txn.init", "init.seconds"),
        ("txn.prepare", "prepare.seconds"),
        ("txn.send.offsets", "offsets.seconds"),
    ),
    Row("metadata.age", Way.GAUGE, "metadata.age"),
    *_spread("produce.throttle.time", "throttles", scale=MS),
    *_meter("record.error", "failed"),
    *_spread("record.queue.time", "queued", scale=MS),
    *_meter("record.retry", "retried"),
    *_meter("record.send", "sent"),
    Row("record.size.avg", Way.AVERAGE, "sizes.average"),
    Row("record.size.max", Way.MAXIMUM, "sizes"),
    Row("records.per.request.avg", Way.EACH, "sent", divisor="produce.requests"),
    *_spread("request.latency", "latencies.Produce", scale=MS),
    Row("requests.in.flight", Way.GAUGE, "in.flight"),
    *_meter("topic.byte", "topic.bytes", "topic"),
    Row("topic.compression.rate", Way.RATIO, "topic.bytes", ("topic",), 1, "topic.plain.bytes"),
    *_meter("topic.record.error", "topic.failed", "topic"),
    *_meter("topic.record.retry", "topic.retried", "topic"),
    *_meter("topic.record.send", "topic.sent", "topic"),
)
"""Metrics of a producer."""

_PARTITION = ("topic", "partition")
_FETCHES = (
    *_meter("bytes.consumed", "bytes"),
    *_meter("bytes.consumed", "topic.bytes", "topic"),
    *_spread("fetch.latency", "fetches.seconds", scale=MS),
    *_meter("fetch", "fetches.requests"),
    *_spread("fetch.size", "fetches"),
    *_spread("fetch.size", "topic.fetches", "topic"),
    *_spread("fetch.throttle.time", "fetches.throttles", scale=MS),
    Row("preferred.read.replica", Way.INT, "replica", _PARTITION),
    *_meter("records.consumed", "records"),
    *_meter("records.consumed", "topic.records", "topic"),
    Row("records.lag", Way.GAUGE, "lag", _PARTITION),
    *_spread("records.lag", "lags", *_PARTITION),
    Row("records.lag.max", Way.MAXIMUM, "lags.all"),
    Row("records.lead", Way.GAUGE, "lead", _PARTITION),
    Row("records.lead.avg", Way.AVERAGE, "leads", _PARTITION),
    Row("records.lead.min", Way.MINIMUM, "leads", _PARTITION),
    Row("records.lead.min", Way.MINIMUM, "leads.all"),
    Row("records.per.request.avg", Way.EACH, "records", divisor="fetches.useful"),
    Row("records.per.request.avg", Way.EACH, "topic.records", ("topic",), 1, "topic.fetches"),
)
_COORDINATOR = (
    *_grouped(
        Row("assigned.partitions", Way.GAUGE, "assigned"),
        *_spread("commit.latency", "commits", scale=MS),
        *_meter("commit", "commits"),
        Row("failed.rebalance.rate.per.hour", Way.PER_HOUR, "rebalances.failed"),
        Row("failed.rebalance.total", Way.TOTAL, "rebalances.failed"),
        *_meter("heartbeat", "heartbeats"),
        Row("heartbeat.response.time.max", Way.MAXIMUM, "heartbeats", (), MS),
        Row("last.heartbeat.seconds.ago", Way.GAUGE, "heartbeat.age"),
        Row("last.rebalance.seconds.ago", Way.GAUGE, "rebalance.age"),
        *_spread("partition.assigned.latency", "listener.on_assigned", scale=MS),
        *_spread("partition.lost.latency", "listener.on_lost", scale=MS),
        *_spread("partition.revoked.latency", "listener.on_revoked", scale=MS),
        *_spread("rebalance.latency", "rebalances", scale=MS),
        Row("rebalance.latency.total", Way.SUM, "rebalances", (), MS),
        Row("rebalance.rate.per.hour", Way.PER_HOUR, "rebalances"),
        Row("rebalance.total", Way.TOTAL, "rebalances"),
    ),
    *_grouped(
        *_meter("join", "joins"),
        *_spread("join.time", "joins", scale=MS),
        *_meter("sync", "syncs"),
        *_spread("sync.time", "syncs", scale=MS),
        classic=True,
    ),
)
_SHARE = (
    *_meter("coordinator.heartbeat", "heartbeats"),
    Row("coordinator.heartbeat.response.time.max", Way.MAXIMUM, "heartbeats", (), MS),
    Row("coordinator.last.heartbeat.seconds.ago", Way.GAUGE, "heartbeat.age"),
    Row("coordinator.rebalance.rate.per.hour", Way.PER_HOUR, "rebalances"),
    Row("coordinator.rebalance.total", Way.TOTAL, "rebalances"),
    *_meter("fetch.manager.acknowledgements.error", "acknowledgements.failed"),
    *_meter("fetch.manager.acknowledgements.send", "acknowledgements.sent"),
    *_meter("fetch.manager.bytes.consumed", "bytes"),
    *_spread("fetch.manager.fetch.latency", "fetches.seconds", scale=MS),
    *_meter("fetch.manager.fetch", "fetches.requests"),
    *_spread("fetch.manager.fetch.size", "fetches"),
    *_spread("fetch.manager.fetch.throttle.time", "fetches.throttles", scale=MS),
    *_meter("fetch.manager.records.consumed", "records"),
    *_spread("fetch.manager.records.per.request", "fetches.records"),
    Row("last.poll.seconds.ago", Way.GAUGE, "poll.age"),
    Row("poll.idle.ratio.avg", Way.AVERAGE, "poll.idle"),
    *_spread("time.between.poll", "polls", scale=MS),
)
SHARE = tuple(row._replace(name=f"share.{row.name}", groups=("share",)) for row in _SHARE)
"""Metrics of a share consumer."""

CONSUMER = (
    *_nanoseconds(("commit.sync", "commit.seconds"), ("committed", "committed.seconds")),
    Row("last.poll.seconds.ago", Way.GAUGE, "poll.age"),
    Row("poll.idle.ratio.avg", Way.AVERAGE, "poll.idle"),
    *_spread("time.between.poll", "polls", scale=MS),
    *(row._replace(name=f"fetch.manager.{row.name}") for row in _FETCHES),
    *(row._replace(name=f"coordinator.{row.name}") for row in _COORDINATOR),
)
"""Metrics of a consumer."""

OWN = (
    Row("loop.lag.ms", Way.HISTOGRAM, "loop.lag"),
    Row("loop.held.time.ns.total", Way.SUM, "loop.held", (), NS),
    Row("cancelled.calls.total", Way.TOTAL, "cancelled"),
    Row("request.retries.total", Way.TOTAL, "retries", ("error",)),
    Row("rebootstraps.total", Way.TOTAL, "rebootstraps", ("trigger",)),
    Row("threads.calls.total", Way.TOTAL, "threads.calls", ("pool",)),
    Row("threads.waiting", Way.GAUGE, "threads.waiting", ("pool",)),
    Row("telemetry.partitions.left.out.total", Way.TOTAL, "left.out"),
)
"""Metrics of the connections that Kafka's clients do not have."""

OWN_PRODUCER = (
    Row("overflow.records", Way.GAUGE, "overflow.records"),
    Row("overflow.bytes", Way.GAUGE, "overflow.bytes"),
    Row("batch.retries.total", Way.TOTAL, "retries", ("error",)),
    Row("transactions.total", Way.TOTAL, "transactions", ("outcome",)),
)
OWN_CONSUMER = (Row("records.in.progress", Way.GAUGE, "in.progress"),)
_OWN_SHARE = (
    Row("acknowledgements.total", Way.TOTAL, "acknowledgements", ("type",)),
    Row("delivery.count", Way.HISTOGRAM, "delivery.count"),
    Row("fetch.throttled.total", Way.TOTAL, "throttled"),
    Row("late.successes.total", Way.TOTAL, "late"),
    Row("lock.remaining.ms", Way.HISTOGRAM, "lock.remaining"),
    Row("lock.renewals.total", Way.TOTAL, "renewals"),
    Row("locks.lost.total", Way.TOTAL, "locks.lost", ("reason",)),
    Row("records.held", Way.GAUGE, "held"),
    Row("records.redelivered.total", Way.TOTAL, "redelivered"),
    Row("records.undelivered.released.total", Way.TOTAL, "undelivered"),
)
OWN_SHARE = tuple(row._replace(name=f"share.{row.name}", groups=("share",)) for row in _OWN_SHARE)


def _named(prefix: str, rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row._replace(name=f"{PREFIX}{prefix}{row.name}") for row in rows)


ROWS: dict[str, tuple[Row, ...]] = {
    "producer": (*_named("producer.", PRODUCER), *_named("producer.aiokclient.", OWN_PRODUCER)),
    "consumer": (
        *_named("consumer.", (*CONSUMER, *SHARE)),
        *_named("consumer.aiokclient.", (*OWN_CONSUMER, *OWN_SHARE)),
    ),
    "admin": (),
}
"""The rows of one object, by its kind, with complete names."""

SHARED_ROWS = {
    kind: (
        *_named("", COMMON),
        *_named(prefix, NETWORK),
        *_named(f"{kind}.aiokclient.", OWN),
    )
    for kind, prefix in PREFIXES.items()
}
"""The rows of the connections, by the kind of the objects that use them, with complete names."""
