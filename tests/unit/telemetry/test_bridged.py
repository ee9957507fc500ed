"""Tests of the table of metrics for other tools, and of the extras that these tools need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokclient.telemetry.bridged import DESCRIPTIONS, NAMESPACE, OWN_METRICS, PUSHED, SAME
from aiokclient.telemetry.table import ROWS, SHARED_ROWS, Way

ROOT = Path(__file__).parents[3]
LASTING = {Way.TOTAL, Way.SUM, Way.GAUGE, Way.INT, Way.HISTOGRAM}


def test_the_table_has_the_metrics_of_the_page() -> None:
    listed: dict[str, str] = {}
    text = (ROOT / "docs" / "metrics.md").read_text()
    for names, kind in re.findall(r"^\| (`[^|]+) \|[^|]*\| (\w+) \|", text, re.M):
        listed |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), kind)
    assert {name: description.kind for name, description in OWN_METRICS.items()} == listed


def test_what_is_pushed_is_bridged_once_or_named_as_the_same() -> None:
    bridged = {row.name for rows in PUSHED.values() for row in rows}
    assert bridged.isdisjoint(SAME)
    assert set(SAME.values()) <= set(OWN_METRICS)
    assert {f"{NAMESPACE}{name}" for name in bridged | set(OWN_METRICS)} == set(DESCRIPTIONS)
    assert len(bridged) == sum(len({row.name for row in rows}) for rows in PUSHED.values())
    pushed = {row for rows in (*ROWS.values(), *SHARED_ROWS.values()) for row in rows}
    for row in pushed:
        if row.way not in LASTING or not row.key:
            continue
        rest = row.name.removeprefix("org.apache.kafka.").replace(".aiokclient.", ".")
        rest = rest.replace("admin.client.", "admin.")
        name = rest.partition(".")[2]
        name = name or rest
        candidates = {rest, f"client.{name}", f"client.{rest}"}
        assert candidates & (bridged | set(SAME)), row.name


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "prometheus")],
)
def test_import_without_the_package_names_the_extra(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import aiokclient.telemetry.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'aiokclient[{extra}]'" in done.stderr


def test_clients_import_no_bridge() -> None:
    code = (
        "import sys; from aiokclient import Admin, Client, Consumer, Producer\n"
        "print([name for name in sys.modules if 'telemetry.otel' in name or 'prometheus' in name"
        " or 'telemetry.series' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
