"""A bar chart of the most important results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from measuring.comparison import SAME
from measuring.report import Report

PANELS = ("produce 100 B", "produce 1 KB", "consume 100 B", "consume 1 KB")
OWN, OTHER = "#1b6ca8", "#b8bfc6"


def draw(reports: Sequence[Report], file: Path) -> bool:
    """Plot CPU seconds per million messages by workload. Return whether there was any data."""
    found = {work: of for report in reports for work, of in report.numbers.items()}
    panels = [work for work in PANELS if work in found]
    if not panels:
        return False
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(panels), 1, figsize=(10, 3.6 * len(panels)), squeeze=False)
    suffix = f", {SAME}"
    for axis, work in zip(axes[:, 0], panels, strict=True):
        costs = {
            name.removesuffix(suffix): figures["cpu"]
            for name, figures in found[work].items()
            if name.endswith(suffix) and "cpu" in figures
        }
        ordered = sorted(costs, key=lambda name: -costs[name])
        colours = [OWN if name.startswith("aiokclient") else OTHER for name in ordered]
        bars = axis.barh(ordered, [costs[name] for name in ordered], color=colours)
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.set_title(f"{work}: CPU seconds of the client per million messages", loc="left")
        axis.tick_params(axis="y", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True
