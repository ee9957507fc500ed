"""Tests of the picture of the dashboard, which may contain any name and any number."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiokclient.spark.telemetry.dashboard import Dashboard
from aiokclient.spark.telemetry.picture import title
from aiokclient.spark.telemetry.views import LATENCIES

pytest.importorskip("matplotlib")

from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure

NUMBERS = ("p50", "p90", "p99", "highest", "usual", "errors", "missed", "rebalances", "value")
HISTORY = ("per_second", "lag", "increase")


def dashboard(*rows: tuple[str | None, float]) -> Dashboard:
    """Return a dashboard in which all views have the same rows, of a name and a number."""
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made: list[dict[str, Any]] = [
        {
            **dict.fromkeys(("client_id", "group_id", "software", "version"), name),
            **dict.fromkeys((*NUMBERS, *HISTORY), number),
            "metric": LATENCIES[0],
            "instances": 3,
            "pushes": 1,
            "time": time,
            "status": "broken",
            "first": time,
            "last": time,
        }
        for name, number in rows
    ]
    return Dashboard(made, made, made, made, made, made, [], [], *[made] * 7)


def fleet(**problems: list[str]) -> Dashboard:
    """Return a dashboard of 20 instances, with the names of those that have a problem."""
    named = {kind: [{"client_id": name} for name in names] for kind, names in problems.items()}
    empty: dict[str, Any] = dict.fromkeys(Dashboard.__dataclass_fields__, ())
    return Dashboard(**{**empty, "fleet": [{"instances": 15}, {"instances": 5}], **named})


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (fleet(), "All of 20 client instances push, and none of them is slow or has errors."),
        (fleet(slow=["a"]), "Of 20 client instances, a is slow."),
        (fleet(slow=["a", "b"]), "Of 20 client instances, a and b are slow."),
        (
            fleet(slow=["a", "a"], errors=["b", "c", "d"], silent=["e"]),
            "Of 20 client instances, a is slow, b and c and 1 more have errors, and e is silent.",
        ),
    ],
)
def test_title_is_a_sentence_that_names_the_clients_with_a_problem(
    found: Dashboard, sentence: str, tmp_path: Path
) -> None:
    assert title(found) == sentence
    found.draw(tmp_path / "fleet.png")


def test_each_panel_has_a_time_axis_whole_numbers_and_names_in_color(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: figures.append(figure))
    times = [datetime.datetime(2026, 1, 1, 0, 0, n, tzinfo=datetime.UTC) for n in range(30)]
    made = [
        {
            **dict.fromkeys(("client_id", "group_id"), name),
            **dict.fromkeys((*NUMBERS, *HISTORY), number),
            "time": time,
            "first": times[0],
            "last": time,
            "software": "s",
            "version": "1",
        }
        for name, number in (("ledger", 2.5), ("shop", 1.0))
        for time in times
    ]
    found = fleet(slow=["ledger"])
    names = ("history", "throughput", "lag", "error_history", "rebalance_history", "lives")
    replace(found, **dict.fromkeys(names, made)).draw(tmp_path / "fleet.png")
    (figure,) = figures
    assert figure.get_suptitle() == "Of 20 client instances, ledger is slow."
    assert len(figure.axes) == 6
    for axes in figure.axes:
        figure.canvas.draw()
        assert isinstance(axes.xaxis.get_major_formatter(), ConciseDateFormatter)
        ticks = [label.get_text() for label in axes.get_yticklabels()]
        assert all(re.fullmatch("[0-9,]+", tick) for tick in ticks), ticks
        assert axes.lines
        assert not axes.patches
    for axes in figure.axes[:4]:
        colors = {text.get_text(): text.get_color() for text in axes.texts}
        assert colors["ledger"] == "tab:red"
        assert "shop" not in colors
        assert any(line.get_color() == "tab:red" for line in axes.lines)
    assert {"p50", "p99"} <= {text.get_text() for text in figure.axes[2].texts}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("a$\\foo$", math.inf),
        (None, -math.inf),
        ("$", math.nan),
        ("x" * 100_000, 1e308),
        ("", -1.0),
    ],
)
def test_any_name_and_number_can_be_drawn(name: str | None, number: float, tmp_path: Path) -> None:
    shown = dashboard((name, number))
    assert list(shown.summary())
    shown.draw(tmp_path / "fleet.png")
    assert (tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")
