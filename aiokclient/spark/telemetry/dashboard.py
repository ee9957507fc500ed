"""The dashboard: all views of the tables in one object, as text, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from aiokclient.spark.telemetry import picture, views
from aiokclient.spark.telemetry.tables import Tables

Rows: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The results of all views at one time. Each row is a mapping from column names to values."""

    fleet: Rows
    latencies: Rows
    slow: Rows
    errors: Rows
    silent: Rows
    rebalances: Rows
    restarts: Rows
    lost: Rows
    rejected: Rows
    history: Rows
    """The latency of produce requests that each client pushed, by time."""
    throughput: Rows = ()
    lag: Rows = ()
    error_history: Rows = ()
    """The errors that each client has added, by time."""
    rebalance_history: Rows = ()
    """The rebalances that each group has added, by time."""
    lives: Rows = ()
    """The first and the last push of each client instance, with its version."""

    def summary(self) -> Iterator[str]:
        """Yield a line about the fleet of clients, and one line for each problem."""
        instances = sum(row["instances"] for row in self.fleet)
        yield f"{instances} client instances in {len(self.fleet)} versions of clients"
        for row in self.slow:
            metric = row["metric"].removeprefix(views.PREFIX)
            yield (
                f"slow: {row['client_id']}, {row['p90']:,.0f} ms, usual are "
                f"{row['usual']:,.0f} ms ({metric}, 90th percentile)"
            )
        for row in self.silent:
            yield f"silent: {row['client_id']}, no push for {row['missed']:.1f} intervals"
        for row in self.errors:
            yield f"errors: {row['client_id']}, {row['errors']:,.0f}"
        for row in self.rebalances:
            yield f"rebalances: {row['group_id']}, {row['rebalances']:,.0f}"
        for row in self.restarts:
            yield f"restarted: {row['client_id']} at {row['began']:%H:%M:%S}"
        for row in self.lost:
            yield f"lost: about {row['pushes']:,.0f} pushes of {row['client_id']}"
        for row in self.rejected:
            yield f"{row['status']}: {row['pushes']} pushes of {row['client_id']}"

    def draw(self, path: str | Path) -> None:
        """Write the picture. Needs matplotlib."""
        picture.draw(self, path)


def make_dashboard(tables: Tables, now: str | None = None) -> Dashboard:
    """Return the results of all views of the tables. `now` is passed to `silent_clients`."""
    points = tables.points.persist()
    try:
        latencies = points.where(
            f"metric = '{views.LATENCIES[0]}' AND value IS NOT NULL AND NOT isnan(value)"
        )
        counted = points.where(views.COUNTED)
        errors = views.increases(
            counted.where(f"metric RLIKE '{views.ERRORS}' AND size(labels) = 0")
        ).where("increase > 0")
        rebalances = views.increases(counted.where(f"metric RLIKE '{views.REBALANCES}'")).where(
            "increase > 0 AND attributes['group_id'] IS NOT NULL"
        )
        frames = (
            views.fleet_by_version(points),
            views.latency_by_client(points),
            views.slow_clients(points),
            views.top_errors(points),
            views.silent_clients(points, now),
            views.rebalances_by_group(points),
            views.restarts(points),
            views.lost_pushes(points),
            views.rejections(tables.rejected),
            latencies.select("client_id", "time", "value").orderBy("time"),
            views.throughput_by_client(points),
            views.lag_by_client(points),
            errors.select("client_id", "time", "increase"),
            rebalances.selectExpr("attributes['group_id'] AS group_id", "time", "increase"),
            views.instances(points).select("software", "version", "first", "last"),
        )
        return Dashboard(*([row.asDict() for row in frame.collect()] for frame in frames))
    finally:
        points.unpersist()
