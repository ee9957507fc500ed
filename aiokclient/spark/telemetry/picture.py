"""The picture of a dashboard: six panels over time, in which the clients with a problem are named.

All clients are thin gray lines. Those that the title names are in color in every panel, with their
names beside the ends of their lines.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from aiokclient.spark.telemetry.dashboard import Dashboard

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Line: TypeAlias = list[tuple[datetime, float]]
Span: TypeAlias = tuple[datetime, datetime]

GRAY: Final = "0.75"
DARK: Final = "0.25"
COLORS: Final = ("tab:red", "tab:blue", "tab:orange", "tab:purple", "tab:green", "tab:brown")
MOST_NAMED: Final = 2
"""The largest number of clients that are named for each kind of problem."""
MOST_LINES: Final = 200
"""The largest number of lines in one panel."""
PERIODS: Final = 20
"""The number of periods into which the time is divided, for lines of all clients together."""
LARGEST_DRAWN: Final = 1e12
LONGEST_LABEL: Final = 24
"""The number of characters of a name that the picture shows."""
NAME_HEIGHT: Final = 0.05
"""The least distance of two names, as a part of the height of a panel."""
LOGARITHMIC: Final = 50
"""The ratio of the largest to the smallest value from which an axis is logarithmic."""


def draw(found: Dashboard, path: Any) -> None:
    """Write the picture. Needs matplotlib."""
    from matplotlib.figure import Figure

    named = _named(found)
    colors = dict(zip(named, COLORS, strict=False))
    figure = Figure(figsize=(14, 7.5), layout="constrained", dpi=110)
    figure.suptitle(_label(title(found), 160), x=0.01, ha="left", fontsize=13, fontweight="bold")
    span = _span(found)
    panels = [_Panel(axes, span) for axes in figure.subplots(2, 3).flat]
    panels[0].draw_lines(
        "Throughput, records per second", _lines_of(found.throughput, "per_second"), colors
    )
    panels[1].draw_lines("Lag of consumers, records", _lines_of(found.lag, "lag"), colors)
    panels[2].draw_lines(
        "Latency of produce requests, ms", _lines_of(found.history, "value"), colors
    )
    panels[2].draw_percentiles(found.history)
    panels[3].draw_lines("Errors, total", _summed(found.error_history, "client_id"), colors)
    rebalances = _summed(found.rebalance_history, "group_id")
    groups = dict(zip(rebalances, COLORS[1:], strict=False))
    panels[4].draw_lines("Rebalances by group, total", rebalances, groups)
    versions = _by_version(found.lives)
    panels[5].draw_lines("Instances by version", versions, dict.fromkeys(versions, DARK))
    for panel in panels:
        panel.finish_axes()
    figure.savefig(path)


def title(found: Dashboard) -> str:
    """Return a sentence that says how many clients push, and names those with a problem."""
    count = sum(row["instances"] for row in found.fleet)
    problems = [
        text
        for rows, one, several in (
            (found.slow, "is slow", "are slow"),
            (found.errors, "has errors", "have errors"),
            (found.silent, "is silent", "are silent"),
        )
        if (text := _clause(rows, one, several))
    ]
    if not problems:
        return f"All of {count} client instances push, and none of them is slow or has errors."
    *some, last = problems
    listed = f"{', '.join(some)}, and {last}" if some else last
    return f"Of {count} client instances, {listed}."


def _clause(rows: Rows, one: str, several: str) -> str | None:
    names = list(dict.fromkeys(str(row["client_id"]) for row in rows))
    if not names:
        return None
    short = [_label(name) for name in names[:MOST_NAMED]]
    rest = len(names) - len(short)
    if rest:
        short.append(f"{rest} more")
    return f"{' and '.join(short)} {several if len(names) > 1 else one}"


def _named(found: Dashboard) -> list[str]:
    """Return the clients that have a problem, without repetitions."""
    kinds = (found.slow, found.errors, found.silent)
    return list(dict.fromkeys(str(row["client_id"]) for rows in kinds for row in rows[:MOST_NAMED]))


class _Panel:
    """One panel of the picture: its lines, and the names beside their ends."""

    def __init__(self, axes: Any, span: Span) -> None:
        self._axes = axes
        self._span = span
        self._values: list[float] = []
        self._names: list[tuple[str, tuple[datetime, float], str]] = []

    def draw_lines(
        self, heading: str, lines: Mapping[str, Line], colors: Mapping[str, str]
    ) -> None:
        """Draw gray lines, and on them those in color, which are named."""
        self._axes.set_title(heading, loc="left", fontsize=10)
        shown = [name for name in lines if name in colors]
        others = [name for name in lines if name not in colors][: MOST_LINES - len(shown)]
        for name in others:
            self._draw_line(sorted(lines[name], key=_time), color=GRAY, linewidth=0.8)
        for name in shown:
            line = sorted(lines[name], key=_time)
            self._draw_line(line, color=colors[name], linewidth=1.8)
            self._names.append((name, line[-1], colors[name]))

    def draw_percentiles(self, rows: Rows) -> None:
        """Draw the median and the 99th percentile of all clients."""
        periods: dict[datetime, list[float]] = defaultdict(list)
        for time, value in _periods([(row["time"], _drawable(row["value"])) for row in rows]):
            periods[time].append(value)
        for name, share, style in (("p50", 0.5, "-"), ("p99", 0.99, "--")):
            line = [(time, _percentile(found, share)) for time, found in sorted(periods.items())]
            if line:
                self._draw_line(line, color=DARK, linewidth=1.5, linestyle=style)
                self._names.append((name, line[-1], DARK))

    def _draw_line(self, line: Line, **style: Any) -> None:
        marker = "o" if len(line) == 1 else ""
        self._axes.plot(*zip(*line, strict=True), marker=marker, markersize=3, **style)
        self._values.extend(value for _, value in line)

    def finish_axes(self) -> None:
        """Scale the axes, and write the names."""
        axes = self._axes
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(labelsize=8)
        if not self._values:
            axes.text(0.5, 0.5, "none", ha="center", color=DARK, transform=axes.transAxes)
            axes.set(xticks=[], yticks=[])
            return
        self._scale_times()
        self._scale_values()
        self._write_names()

    def _scale_times(self) -> None:
        from matplotlib import dates

        # The types of matplotlib do not cover its dates.
        untyped: Any = dates
        first, last = self._span
        # The names beside the lines need room.
        self._axes.set_xlim(first, last + 0.3 * (last - first))
        places = untyped.AutoDateLocator(minticks=3, maxticks=6)
        self._axes.xaxis.set_major_locator(places)
        self._axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(places))

    def _scale_values(self) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

        axes, least = self._axes, min(self._values)
        positive = [value for value in self._values if value >= 1]
        if positive and least >= 0 and max(positive) > LOGARITHMIC * min(positive):
            axes.set_yscale("symlog", linthresh=1)
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if least >= 0:
            axes.set_ylim(0, max(1.0, 1.08 * max(self._values)))

    def _write_names(self) -> None:
        """Write the names beside the ends of the lines, one above another where they are close."""
        from matplotlib import dates

        untyped: Any = dates
        axes = self._axes
        inverted = axes.transAxes.inverted()
        placed = []
        for name, (time, value), color in self._names:
            number = untyped.date2num(time)
            height = inverted.transform(axes.transData.transform((number, value)))[1]
            placed.append((height, number, name, color))
        placed.sort(key=lambda label: label[0])
        heights = _spread([label[0] for label in placed])
        for height, (_, number, name, color) in zip(heights, placed, strict=True):
            axes.annotate(
                _label(name),
                (number, height),
                xycoords=axes.get_xaxis_transform(),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=color,
                annotation_clip=False,
            )


# -- lines


def _span(found: Dashboard) -> Span:
    """Return the first and the last time of all rows."""
    rows = (found.throughput, found.lag, found.history, found.error_history)
    times = [row["time"] for each in (*rows, found.rebalance_history) for row in each]
    times += [row[name] for row in found.lives for name in ("first", "last")]
    if not times:
        return datetime.min, datetime.max
    # A span of no length could not be drawn.
    return min(times), max(max(times), min(times) + timedelta(seconds=1))


def _spread(heights: list[float]) -> list[float]:
    """Return heights in ascending order that are far enough from each other, up to the top."""
    lowest, raised = -1.0, []
    for height in heights:
        lowest = max(height, lowest + NAME_HEIGHT)
        raised.append(lowest)
    highest, lowered = 1.0 + NAME_HEIGHT, []
    for height in reversed(raised):
        highest = min(height, highest - NAME_HEIGHT)
        lowered.append(highest)
    return lowered[::-1]


def _time(at: tuple[datetime, float]) -> datetime:
    return at[0]


def _lines_of(rows: Rows, column: str) -> dict[str, Line]:
    """Return the values of a column for each client."""
    lines: dict[str, Line] = defaultdict(list)
    for row in rows:
        lines[str(row["client_id"])].append((row["time"], _drawable(row[column])))
    return lines


def _summed(rows: Rows, column: str) -> dict[str, Line]:
    """Return the total of each client or group at each time, with the largest total first."""
    found: dict[str, Line] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["time"]):
        found[str(row[column])].append((row["time"], _drawable(row["increase"])))
    lines = {
        name: list(
            zip((time for time, _ in line), accumulate(value for _, value in line), strict=True)
        )
        for name, line in found.items()
    }
    return dict(sorted(lines.items(), key=lambda item: -item[1][-1][1]))


def _by_version(lives: Rows) -> dict[str, Line]:
    """Return the number of instances of each version in each period."""
    if not lives:
        return {}
    first, last = min(row["first"] for row in lives), max(row["last"] for row in lives)
    step = max((last - first) / PERIODS, timedelta(milliseconds=1))
    times = [first + number * step for number in range(PERIODS + 1)]
    lines: dict[str, Line] = {}
    for name in dict.fromkeys(f"{row['software']} {row['version']}" for row in lives):
        spans = [
            (row["first"], row["last"])
            for row in lives
            if f"{row['software']} {row['version']}" == name
        ]
        lines[name] = [
            (time, float(sum(begin <= time <= end + step for begin, end in spans)))
            for time in times
        ]
    return lines


def _periods(line: Line) -> Line:
    """Replace each time by the beginning of its period."""
    if not line:
        return []
    first, last = min(line, key=_time)[0], max(line, key=_time)[0]
    step = max((last - first) / PERIODS, timedelta(milliseconds=1))
    return [(first + ((time - first) // step) * step, value) for time, value in line]


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _drawable(value: float | None) -> float:
    """Return a number that matplotlib can draw: 0 for NaN, and at most `LARGEST_DRAWN` in size."""
    if value is None or math.isnan(value):
        return 0.0
    return float(max(-LARGEST_DRAWN, min(value, LARGEST_DRAWN)))


def _label(name: object, longest: int = LONGEST_LABEL) -> str:
    """Shorten a long name. Escape "$", so that matplotlib does not show the name as a formula."""
    text = str(name)
    shown = text if len(text) <= longest else f"{text[:longest]}..."
    return shown.replace("\\$", "$").replace("$", r"\$")
