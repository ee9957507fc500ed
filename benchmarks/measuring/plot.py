"""A picture of the most important results: a point for each client, on logarithmic axes."""

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
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

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
        # On a logarithmic axis, the length of a bar would have no meaning.
        axis.scatter([costs[name] for name in ordered], ordered, color=colours, s=45, zorder=2)
        for name in ordered:
            axis.annotate(
                f"{costs[name]:.2f}",
                (costs[name], name),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(axis="y", color="0.9", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.set_title(f"{work}: CPU seconds of the client per million messages", loc="left")
        axis.tick_params(axis="y", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True
