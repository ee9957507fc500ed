"""The dashboard: all views of the tables in one object, as text, and as a picture."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiokclient.spark.telemetry import views
from aiokclient.spark.telemetry.tables import Tables

__all__ = ["Dashboard", "make_dashboard"]

Rows: TypeAlias = Sequence[Mapping[str, Any]]
RED: Final = "tab:red"
GRAY: Final = "tab:gray"
BLUE: Final = "tab:blue"
MOST_BARS: Final = 25
"""The maximum number of clients in one panel of the picture."""
LARGEST_DRAWN: Final = 1e12
LONGEST_LABEL: Final = 40
"""The number of characters of a name that the picture shows."""


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
        from matplotlib.figure import Figure

        figure = Figure(figsize=(14, 10), layout="constrained")
        panels = figure.subplots(2, 3)
        figure.suptitle("Kafka clients, by what they push (KIP-714)")
        self._draw_history(panels[0][0])
        slow = {row["client_id"] for row in self.slow}
        produce = [row for row in self.latencies if row["metric"] == views.LATENCIES[0]]
        _bars(panels[0][1], "90th percentile of produce latency, ms", produce, "p90", slow)
        versions = [
            {"client_id": f"{row['software']}\n{row['version']}", "instances": row["instances"]}
            for row in self.fleet
        ]
        _bars(panels[0][2], "instances by version", versions, "instances", set())
        failing = {row["client_id"] for row in self.errors}
        _bars(panels[1][0], "most errors", self.errors, "errors", failing)
        groups = [{"client_id": row["group_id"], **row} for row in self.rebalances]
        _bars(panels[1][1], "rebalances by group", groups, "rebalances", set())
        silent = {row["client_id"] for row in self.silent}
        _bars(panels[1][2], "silent: missed intervals", self.silent, "missed", silent)
        figure.savefig(path)

    def _draw_history(self, panel: Any) -> None:
        slow = {row["client_id"] for row in self.slow}
        lines: dict[str, list[tuple[Any, float]]] = defaultdict(list)
        for row in self.history:
            lines[row["client_id"]].append((row["time"], _drawable(row["value"])))
        for client, line in lines.items():
            color = RED if client in slow else GRAY
            panel.plot(*zip(*line, strict=True), marker=".", color=color)
            if client in slow:
                panel.annotate(_label(client), line[-1], color=color)
        panel.set_title("produce latency, ms")
        panel.tick_params(axis="x", rotation=30)
        if any(value > 0 for line in lines.values() for _, value in line):
            panel.set_yscale("log")


def make_dashboard(tables: Tables, now: str | None = None) -> Dashboard:
    """Return the results of all views of the tables. `now` is passed to `silent_clients`."""
    points = tables.points.persist()
    try:
        latencies = points.where(
            f"metric = '{views.LATENCIES[0]}' AND value IS NOT NULL AND NOT isnan(value)"
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
        )
        return Dashboard(*([row.asDict() for row in frame.collect()] for frame in frames))
    finally:
        points.unpersist()


def _drawable(value: float) -> float:
    """Return a number that matplotlib can draw: 0 for NaN, and at most `LARGEST_DRAWN` in size."""
    return 0.0 if math.isnan(value) else float(max(-LARGEST_DRAWN, min(value, LARGEST_DRAWN)))


def _label(name: object) -> str:
    """Shorten a long name. Escape "$", so that matplotlib does not show the name as a formula."""
    text = str(name)
    shown = text if len(text) <= LONGEST_LABEL else f"{text[:LONGEST_LABEL]}..."
    return shown.replace("$", r"\$")


def _bars(panel: Any, title: str, rows: Rows, column: str, red: set[str]) -> None:
    shown = rows[:MOST_BARS][::-1]
    colors = [RED if row["client_id"] in red else BLUE for row in shown]
    # The labels are set afterwards, because bars of the same name would be drawn as one.
    panel.barh(range(len(shown)), [_drawable(row[column]) for row in shown], color=colors)
    panel.set_yticks(range(len(shown)), [_label(row["client_id"]) for row in shown])
    panel.set_title(title)
    if not shown:
        panel.text(0.5, 0.5, "none", ha="center", transform=panel.transAxes)
        panel.set(xticks=[], yticks=[])
