"""Views of the tidy table: what an operator of a fleet of clients wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokclient.spark.telemetry.tables import totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX: Final = "org.apache.kafka."
LATENCIES: Final = (
    f"{PREFIX}producer.request.latency.avg",
    f"{PREFIX}consumer.fetch.manager.fetch.latency.avg",
    f"{PREFIX}consumer.coordinator.commit.latency.avg",
)
COMPARED: Final = (LATENCIES[0], LATENCIES[2])
"""The latencies that are compared between clients. That of a fetch is mostly the time for which
the broker waits for records, so that a consumer of an idle topic would seem to be slow."""
ERRORS: Final = r"[.](error|failed([.][a-z]+)?)[.]total$"
REBALANCES: Final = r"[.](failed[.])?rebalance[.]total$"
SENT: Final = f"{PREFIX}producer.record.send.total"
CONSUMED: Final = f"{PREFIX}consumer.fetch.manager.records.consumed.total"
LAG: Final = f"{PREFIX}consumer.fetch.manager.records.lag"
COUNTED: Final = "value IS NOT NULL AND NOT isnan(value)"
"""The condition for points that are added up. One NaN would make the total of its series NaN."""


def instances(points: DataFrame) -> DataFrame:
    """Return one row for each client instance: who it is, and when and how often it pushed.

    The interval is the one that the receiver wrote, or else the median time between two pushes. If
    neither is known, because there is a single push, it is the median interval of all instances.
    """
    return _sql(
        """
        WITH pushes AS (
            SELECT instance_id, partition, offset, any_value(client_id) AS client_id,
                any_value(software) AS software, any_value(version) AS version,
                any_value(address) AS address, any_value(attributes['group_id']) AS group_id,
                max(received) AS received, min(start) AS start, max(terminating) AS terminating,
                max(interval_ms) AS interval_ms
            FROM {points} GROUP BY instance_id, partition, offset
        ), spaced AS (
            SELECT *, unix_millis(received) - lag(unix_millis(received)) OVER (
                PARTITION BY instance_id ORDER BY received, offset) AS space_ms
            FROM pushes
        ), each AS (
            SELECT instance_id, max(client_id) AS client_id, max(software) AS software,
                max(version) AS version, max(address) AS address, max(group_id) AS group_id,
                count(*) AS pushes, min(start) AS start, min(received) AS first,
                max(received) AS last, max(terminating) AS closed,
                coalesce(nullif(max(interval_ms), 0), nullif(median(space_ms), 0)) AS interval_ms
            FROM spaced GROUP BY instance_id
        )
        SELECT * EXCEPT (interval_ms), coalesce(
            interval_ms, (SELECT median(interval_ms) FROM each)) AS interval_ms
        FROM each
        """,
        points=points,
    )


def fleet_by_version(points: DataFrame) -> DataFrame:
    """Return the number of client instances of each software and version."""
    return _sql(
        """
        SELECT software, version, count(*) AS instances, count(DISTINCT client_id) AS clients,
            count_if(NOT closed) AS not_closed, max(last) AS last
        FROM {instances} GROUP BY software, version
        ORDER BY instances DESC, software, version
        """,
        instances=instances(points),
    )


def latency_by_client(points: DataFrame, metrics: tuple[str, ...] = LATENCIES) -> DataFrame:
    """Return percentiles of the latencies that each client pushed, in milliseconds.

    A client pushes the average latency of the requests since its last push. So the percentiles are
    those of averages, not those of single requests.
    """
    names = ", ".join(f"'{metric}'" for metric in metrics)
    return _sql(
        f"""
        SELECT client_id, metric, count(*) AS pushes, percentile(value, 0.5) AS p50,
            percentile(value, 0.9) AS p90, percentile(value, 0.99) AS p99, max(value) AS highest
        FROM {{points}}
        WHERE metric IN ({names}) AND value IS NOT NULL AND NOT isnan(value)
        GROUP BY client_id, metric ORDER BY metric, p90 DESC, client_id
        """,
        points=points,
    )


def throughput_by_client(points: DataFrame) -> DataFrame:
    """Return the records that each client sent and consumed, by the time of each push.

    `records` are those since the push before, and `per_second` is their number for each second.
    `direction` is "sent" or "consumed".
    """
    wanted = points.where(f"metric IN ('{SENT}', '{CONSUMED}') AND size(labels) = 0")
    return _sql(
        f"""
        SELECT client_id, if(metric = '{SENT}', 'sent', 'consumed') AS direction, time,
            sum(increase) AS records, sum(increase / seconds) AS per_second
        FROM {{increases}} WHERE seconds > 0
        GROUP BY client_id, metric, time ORDER BY time, client_id, direction
        """,
        increases=increases(wanted),
    )


def lag_by_client(points: DataFrame) -> DataFrame:
    """Return the lag of each consumer, by the time of each push.

    `lag` is the number of records after those that it has fetched, in all its partitions, and
    `highest` the number in one of them.
    """
    return _sql(
        f"""
        SELECT client_id, any_value(attributes['group_id']) AS group_id, time, sum(value) AS lag,
            max(value) AS highest, count(*) AS partitions
        FROM {{points}} WHERE metric = '{LAG}' AND size(labels) > 0 AND {COUNTED}
        GROUP BY client_id, instance_id, time ORDER BY time, client_id
        """,
        points=points,
    )


def increases(points: DataFrame) -> DataFrame:
    """Return how much each sum has increased since the push before, and the seconds of that time.

    The first point of a cumulative sum has no increase, because it is not known when it began.
    """
    return _sql(
        f"""
        SELECT *, greatest(0, if(temporality = 'delta', value, value - before)) AS increase,
            (unix_micros(time) - unix_micros(if(temporality = 'delta', start, earlier))) / 1e6
                AS seconds
        FROM (
            SELECT *, lag(value) OVER series AS before, lag(time) OVER series AS earlier
            FROM {{points}} WHERE temporality IS NOT NULL AND {COUNTED}
            WINDOW series AS (
                PARTITION BY instance_id, metric, labels::string ORDER BY time, offset)
        ) WHERE temporality = 'delta' OR before IS NOT NULL
        """,
        points=points,
    )


def slow_clients(points: DataFrame, *, ratio: float = 4, least_ms: float = 200) -> DataFrame:
    """Return the clients whose latency is at least `ratio` times the usual latency.

    The latency must also be at least `least_ms`. The 90th percentiles of the latencies of produce
    requests and of commits are compared. The usual latency is the median of the 90th percentiles of
    all clients.
    """
    return _sql(
        f"""
        WITH compared AS (
            SELECT *, median(p90) OVER (PARTITION BY metric) AS usual FROM {{latencies}}
        )
        SELECT client_id, metric, p50, p90, usual FROM compared
        WHERE p90 >= {float(least_ms)} AND p90 >= {float(ratio)} * usual
        ORDER BY p90 / nullif(usual, 0) DESC NULLS FIRST, client_id
        """,
        latencies=latency_by_client(points, COMPARED),
    )


def top_errors(points: DataFrame, count: int = 10) -> DataFrame:
    """Return the clients with the most errors: refused records, failed logins, and so on."""
    # The series without labels already contains those with labels, such as the one of a topic.
    errors = totals(points.where(f"metric RLIKE '{ERRORS}' AND size(labels) = 0 AND {COUNTED}"))
    return _sql(
        f"""
        SELECT client_id, sum(value) AS errors,
            map_from_entries(array_sort(collect_list(struct(metric, value)))) AS metrics
        FROM (
            SELECT client_id, metric, sum(value) AS value FROM {{errors}} GROUP BY client_id, metric
        )
        WHERE value > 0 GROUP BY client_id ORDER BY errors DESC, client_id LIMIT {int(count)}
        """,
        errors=errors,
    )


def silent_clients(points: DataFrame, now: str | None = None, *, intervals: float = 3) -> DataFrame:
    """Return the client instances that no longer push, although they were not closed.

    At the time `now`, they have not pushed for more than `intervals` times their interval. `now` is
    a timestamp as text, by default that of the newest push. The result includes clients that ended
    without being closed.
    """
    time = "(SELECT max(last) FROM {instances})" if now is None else f"TIMESTAMP '{now}'"
    return _sql(
        f"""
        SELECT client_id, instance_id, last, interval_ms,
            (unix_millis({time}) - unix_millis(last)) / interval_ms AS missed
        FROM {{instances}}
        WHERE NOT closed
            AND unix_millis({time}) - unix_millis(last) > {float(intervals)} * interval_ms
        ORDER BY last, client_id
        """,
        instances=instances(points),
    )


def rebalances_by_group(points: DataFrame) -> DataFrame:
    """Return the number of rebalances of each group, added up over its members."""
    return _sql(
        """
        SELECT attributes['group_id'] AS group_id, count(DISTINCT instance_id) AS members,
            coalesce(sum(value) FILTER (WHERE metric NOT LIKE '%.failed.%'), 0) AS rebalances,
            coalesce(sum(value) FILTER (WHERE metric LIKE '%.failed.%'), 0) AS failed
        FROM {rebalances} WHERE attributes['group_id'] IS NOT NULL
        GROUP BY attributes['group_id'] ORDER BY rebalances DESC, group_id
        """,
        rebalances=totals(points.where(f"metric RLIKE '{REBALANCES}' AND {COUNTED}")),
    )


def restarts(points: DataFrame) -> DataFrame:
    """Return the client instances that began after another one of the same client had ended.

    A client is one client id at one address.
    """
    return _sql(
        """
        SELECT new.client_id, new.instance_id, max_by(old.instance_id, old.last) AS previous,
            max(old.last) AS ended, any_value(new.first) AS began
        FROM {instances} AS new JOIN {instances} AS old
            ON new.client_id = old.client_id AND new.address = old.address
            AND new.instance_id <> old.instance_id AND old.last <= new.first
        GROUP BY new.client_id, new.instance_id ORDER BY began, client_id
        """,
        instances=instances(points),
    )


def lost_pushes(points: DataFrame) -> DataFrame:
    """Return the periods for which pushes of a client instance are missing between other pushes.

    `pushes` is the number of missing pushes, estimated from the interval. If the last pushes of an
    instance were lost, this cannot be recognized.
    """
    return _sql(
        """
        WITH gaps AS (
            SELECT instance_id, explode(gaps) AS gap FROM {totals}
        ), spans AS (
            SELECT instance_id, gap.start AS start, gap.end AS end, count(*) AS series
            FROM gaps GROUP BY instance_id, gap.start, gap.end
        )
        SELECT client_id, spans.*, greatest(1, round(
            (unix_millis(spans.end) - unix_millis(spans.start)) / interval_ms)) AS pushes
        FROM spans JOIN {instances} USING (instance_id) ORDER BY spans.start, instance_id
        """,
        totals=totals(points),
        instances=instances(points),
    )


def rejections(rejected: DataFrame) -> DataFrame:
    """Return the number of pushes that are broken, late, or copies, by client."""
    return _sql(
        """
        SELECT status, client_id, count(*) AS pushes, max(reason) AS example
        FROM {rejected} GROUP BY status, client_id ORDER BY status, pushes DESC, client_id
        """,
        rejected=rejected,
    )


def _sql(query: str, **frames: Any) -> DataFrame:
    first: DataFrame = next(iter(frames.values()))
    return first.sparkSession.sql(query, **frames)
