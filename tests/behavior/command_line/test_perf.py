"""The measurements have figures that can be right."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokclient.cli.records.perf import remove_rates

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no line about the connection, however slow the machine is."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 600.0)


ORDERED = (
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "latency_p999_ms",
    "latency_max_ms",
)


def new_topic(run: Run) -> str:
    name = f"perf-{uuid.uuid4().hex[:12]}"
    ended = run("topics", "create", name, "-p", "1", "-r", "1")
    assert ended.code == 0, ended.err
    return name


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    ended = run("perf", *words, "--json")
    found: list[dict[str, Any]] = json.loads(ended.out)
    has_rates = all(row.get("records_per_second", 1) is not None for row in found)
    assert ended.code == 0
    assert ("There are no rates: " in ended.err) is not has_rates
    assert ended.err.count("\n") == (0 if has_rates else 1)
    return found


def test_sent_records_are_counted_and_read_again(run: Run) -> None:
    topic = new_topic(run)
    both = rows(run, "produce", topic, "-n", "500", "--size", "100", "--warmup", "100")
    assert [row["phase"] for row in both] == ["all", "steady"]
    assert [(row["records"], row["bytes"]) for row in both] == [(500, 50_000), (400, 40_000)]
    for row in both:
        latencies = [row[name] for name in ORDERED]
        assert latencies[0] > 0
        assert latencies == sorted(latencies)
        assert row["records_per_second"] > 0
    (read,) = rows(run, "consume", topic, "-n", "500")
    assert (read["records"], read["bytes"]) == (500, 50_000)
    (part,) = rows(run, "consume", topic, "-n", "10", "-g", f"group-{topic}", "-o", "start")
    assert part["records"] == 10
    ended = run("perf", "consume", topic, "-n", "501", "--idle", "0.2s")
    assert ended.code == 1
    assert "500 of 501" in ended.err


def test_a_share_group_accepts_what_is_measured(run: Run, group: str) -> None:
    topic = new_topic(run)
    assert run("perf", "produce", topic, "-n", "50", "--size", "100").code == 0
    begin = "share.auto.offset.reset=earliest"
    assert run("configs", "set", f"group:{group}", begin).code == 0
    (part,) = rows(run, "consume", topic, "-n", "20", "--share-group", group)
    assert (part["records"], part["bytes"]) == (20, 2_000)
    (rest,) = rows(run, "consume", topic, "-n", "30", "--share-group", group)
    assert (rest["records"], rest["bytes"]) == (30, 3_000)
    ended = run("perf", "consume", topic, "-n", "1", "--share-group", group, "-g", group)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--share-group does not go with -g" in ended.err


@pytest.mark.parametrize(
    ("seconds", "records", "rate"), [(0.0, 1, None), (0.099, 50, None), (0.1, 50, 500.0)]
)
def test_a_time_that_is_too_short_has_no_rates(
    seconds: float, records: int, rate: float | None
) -> None:
    row = {"records": records, "seconds": seconds}
    row |= {"records_per_second": 500.0, "megabytes_per_second": 1.0}
    notes = remove_rates(row)
    assert row["records_per_second"] == rate
    assert (row["megabytes_per_second"] is None) is (rate is None)
    assert ["larger -n" in note for note in notes] == [True] * (rate is None)


def test_payloads_and_keys_are_those_asked_for(run: Run, tmp_path: Path) -> None:
    topic = new_topic(run)
    file = tmp_path / "payloads"
    file.write_bytes(b"aa\nbb\n")
    keys = ("--keys", "range", "--key-range", "2", "-n", "4")
    assert run("perf", "produce", topic, *keys, "--payload-monotonic").code == 0
    assert run("perf", "produce", topic, "-n", "4", "--payload-file", str(file)).code == 0
    ended = run("consume", topic, "-o", "start", "--until", "end", "-f", r"%k:%s\n")
    lines = ended.out.splitlines()
    assert lines[:4] == ["0:0", "1:1", "0:2", "1:3"]
    assert set(lines[4:]) <= {":aa", ":bb"}
    assert len(lines) == 8


def test_transactions_and_rates_are_kept(run: Run) -> None:
    topic = new_topic(run)
    more = ("--transaction-duration", "1ms", "--rate", "2000", "--interval", "1ms")
    ended = run("perf", "produce", topic, "-n", "600", "--size", "10", *more)
    assert ended.code == 0
    assert "records/s" in ended.err
    ended = run("consume", topic, "-o", "start", "-n", "600", "--isolation-level", "read_committed")
    assert len(ended.out.splitlines()) == 600


def test_latencies_are_those_of_records_that_were_read(run: Run) -> None:
    topic = new_topic(run)
    headers = ("--headers", "2", "--header-key-size", "3", "--header-size", "-1")
    words = ("latency", topic, "-n", "5", "--size", "10", "--key-size", "4", *headers, "--metrics")
    (row,) = rows(run, *words)
    assert row["records"] == 5
    assert 0 < row["latency_avg_ms"] <= row["latency_max_ms"]
    assert row["metrics"]
    ended = run("consume", topic, "-o", "start", "--until", "end", "-f", r"%K %S %h\n")
    assert ended.out == "4 10 hhh=NULL,hhh=NULL\n" * 5


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "t", "--size", "1"),
        ("produce", "t", "-n", "1"),
        ("produce", "t", "-n", "1", "--size", "1", "--payload-monotonic"),
        ("produce", "t", "-n", "1", "--size", "1", "--keys", "range"),
        ("produce", "t", "-n", "1", "--size", "1", "--warmup", "1"),
        ("consume", "t"),
        ("latency", "t", "-n", "1"),
    ],
)
def test_wrong_use_of_perf_is_refused_in_one_line(
    run_on: Callable[[str], Run], words: tuple[str]
) -> None:
    ended = run_on("127.0.0.1:1")("perf", *words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
