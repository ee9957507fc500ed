"""Tests of the picture of the dashboard, which may contain any name and any number."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pytest

from aiokclient.spark.telemetry.dashboard import Dashboard
from aiokclient.spark.telemetry.views import LATENCIES

pytest.importorskip("matplotlib")

NUMBERS = ("p50", "p90", "p99", "highest", "usual", "errors", "missed", "rebalances", "value")


def dashboard(*rows: tuple[str | None, float]) -> Dashboard:
    """Return a dashboard in which all views have the same rows, of a name and a number."""
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made: list[dict[str, Any]] = [
        {
            **dict.fromkeys(("client_id", "group_id", "software", "version"), name),
            **dict.fromkeys(NUMBERS, number),
            "metric": LATENCIES[0],
            "instances": 3,
            "pushes": 1,
            "time": time,
            "status": "broken",
        }
        for name, number in rows
    ]
    return Dashboard(made, made, made, made, made, made, [], [], made, made)


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
