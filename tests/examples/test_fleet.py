"""Tests that the fleet example finds the three faulty clients, from their pushed metrics alone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import JavaTool
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient.testing import ClientTelemetryContext, ClientTelemetryPayload

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WRONG = {"depot": "silent", "ledger-2": "slow", "shop-1": "fails"}
SECONDS = 120


def run_fleet(png: Path, *python: str, **env: str) -> tuple[str, dict[str, list[str]]]:
    """Run the example without a terminal. Return its output, and the table by client id."""
    program = python or (str(EXAMPLES / "fleet.py"),)
    done = subprocess.run(
        [sys.executable, "-W", "error", *program, "--png", str(png), "--seconds", str(SECONDS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    rows = [line.split("\u2502")[1:-1] for line in done.stdout.splitlines()]
    table = {cells[0].strip(): [cell.strip() for cell in cells] for cells in rows if cells}
    return done.stdout, table


def check_fleet(table: dict[str, list[str]], png: Path) -> None:
    """Check that the table has twenty clients, and names the three faulty ones."""
    assert len(table) == 20
    assert {client: cells[-1].split()[0] for client, cells in table.items() if cells[-1]} == WRONG
    kinds = {cells[2] for cells in table.values()}
    assert kinds >= {"producer", "transactional producer", "consumer", "admin"}
    assert kinds >= {"consumer in billing", "consumer in search"}
    assert png.read_bytes().startswith(b"\x89PNG")


def test_fleet_names_the_slow_the_failing_and_the_silent_client(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    png = tmp_path / "fleet.png"
    printed, table = run_fleet(png, PATH="")
    check_fleet(table, png)
    assert "left out: Java (kafka-console-producer.sh is not on the PATH)" in printed
    assert "left out: librdkafka" not in printed
    assert "rdkafka" in table["kiosk"][1]
    assert "rdkafka" in table["archive"][1]
    assert sum(cells[1].startswith("aiokclient") for cells in table.values()) == 18


@pytest.mark.java
def test_fleet_has_clients_of_java_and_without_librdkafka_a_line_says_so(
    tmp_path: Path, kafka_tools_jars: Any
) -> None:
    for tool in ("console-producer", "console-consumer"):
        script = tmp_path / f"kafka-{tool}.sh"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(JavaTool(tool).command)} "$@"\n')
        script.chmod(0o755)
    png = tmp_path / "fleet.png"
    hidden = tmp_path / "without_librdkafka.py"
    hidden.write_text(
        "import runpy, sys\n"
        "sys.modules['confluent_kafka'] = None\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        f"runpy.run_path({str(EXAMPLES / 'fleet.py')!r}, run_name='__main__')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    printed, table = run_fleet(png, str(hidden), PATH=path)
    check_fleet(table, png)
    assert "left out: librdkafka" in printed
    assert "left out: Java" not in printed
    for client in ("console-producer", "console-consumer"):
        assert table[client][1].startswith("apache-kafka-java 4.")


# -- what is found in pushes -------------------------------------------------------------------

LATENCY = "org.apache.kafka.producer.request.latency.avg"
ERRORS = "org.apache.kafka.producer.record.error.total"


class Pushing:
    """A fleet whose clock the test sets, with clients that push to it."""

    def __init__(self, fleet_type: Any) -> None:
        self.now = 0.0
        self.fleet = fleet_type(lambda: self.now)

    def push(self, name: str, latency: float = 5.0, errors: float = 0.0, **more: Any) -> None:
        data: Any = MetricsData()
        metrics = data.resource_metrics.add().scope_metrics.add().metrics
        metrics.add(name=LATENCY).gauge.data_points.add(as_double=latency)
        metrics.add(name=ERRORS).sum.data_points.add(as_double=errors)
        labelled = metrics.add(name=LATENCY).gauge.data_points.add(as_double=9e9)
        labelled.attributes.add(key="node_id").value.string_value = "1"
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        context = ClientTelemetryContext(name, identity, "::1", "software", "1", "User:a", "L")
        terminating = more.get("terminating", False)
        payload = ClientTelemetryPayload(terminating, "OTLP", data.SerializeToString())
        self.fleet.export(context, payload)

    def found(self) -> dict[str, tuple[str, float]]:
        return {name: tuple(finding) for name, finding in self.fleet.findings().items()}


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> Pushing:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import fleet_metrics

    return Pushing(fleet_metrics.Fleet)


def test_the_slow_client_is_found_with_the_time_since_when_it_is_slow(pushing: Pushing) -> None:
    for pushing.now in range(10):
        pushing.push("a")
        pushing.push("b", latency=900 if pushing.now >= 4 else float("nan"))
        pushing.push("c", latency=900 if pushing.now in (2, 3, 8) else 7)
    assert pushing.found() == {"b": ("slow", 4)}


def test_nobody_is_slow_if_all_are(pushing: Pushing) -> None:
    for pushing.now in range(5):
        for number, name in enumerate("abcd"):
            pushing.push(name, latency=500 + 100 * number)
    assert pushing.found() == {}


def test_the_failing_client_is_found(pushing: Pushing) -> None:
    for pushing.now in range(5):
        pushing.push("a")
        pushing.push("b", errors=3 if pushing.now == 2 else 0)
    assert pushing.found() == {"b": ("fails", 2)}


def test_the_silent_client_is_found_unless_it_was_closed(pushing: Pushing) -> None:
    for pushing.now in range(20):
        pushing.push("a")
        pushing.push("b")
        if pushing.now < 3:
            pushing.push("killed")
            pushing.push("closed", terminating=pushing.now == 2)
        if pushing.now % 4 == 0:
            pushing.push("rare")
    assert pushing.found() == {"killed": ("silent", 2)}


def test_the_picture_and_the_table_have_every_client(pushing: Pushing, tmp_path: Path) -> None:
    for pushing.now in range(10):
        pushing.push("a")
        pushing.push("b", latency=900)
    pushing.fleet.draw(tmp_path / "fleet.png")
    assert (tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")
    assert pushing.fleet.table().row_count == 2
    assert re.match("slow", pushing.found()["b"][0])
