"""Each benchmark runs with a few messages, other clients included. The figures mean nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import ExternalKafka

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
PEERS = ("confluent_kafka", "aiokafka", "kafka")
ALONE = ("scale", "command_line", "worker", "share")
"""The benchmarks without other clients of Python."""
PYTHON = "aiokclient,confluent,aiokafka,kafka-python,socket"
WAYS = "as users write it,aiokclient send_many,AIOProducer,aiokafka send,kafka-python"
ALL_WAYS = "as users write it,await each,send_many,callbacks,AIOProducer,get each,loop of"
READERS = "aiokclient lists,aiokclient Arrow,AIOConsumer,aiokafka getmany,kafka-python"
SMALL = {
    "produce": ["--count", "60", "--cases", "100 B", "--only", WAYS],
    "consume": ["--count", "60", "--cases", "100 B", "--only", READERS],
    "latency": ["--count", "10"],
    "concurrency": ["--count", "50"],
    "echo": ["--count", "10"],
    "codec": ["--count", "2000", "--cases", "100 B lz4"],
    "startup": [],
    "command_line": ["--only", "python -c pass,aiokclient,completion"],
    "rebalance": ["--cases", "eager,KIP-848", "--only", "aiokclient,aiokafka"],
    "members": ["--count", "4", "--cases", "eager"],
    "transactions": ["--count", "10", "--cases", "1 record,transform"],
    "worker": ["--count", "60", "--cases", "50,lists"],
    "share": ["--count", "60", "--cases", "100 B,handlers,release", "--only", "aiokclient"],
}
if os.environ.get("AIOKCLIENT_EXPLORE"):  # These take too long for every test run.
    SMALL |= {
        "produce": ["--count", "60", "--cases", "100 B", "--only", ALL_WAYS],
        "consume": ["--count", "60", "--cases", "100 B"],
        "transactions": ["--count", "10"],
        "scale": ["--count", "20", "--only", "send_many,lists"],
        "tls": [
            "--cases",
            "100 B",
            "--only",
            "aiokclient,callbacks,consume,aiokafka",
            "--count",
            "60",
        ],
        "logins": ["--cases", "plaintext,SCRAM-SHA-512 over TLS,OAUTHBEARER"],
    }


def run(
    name: str, folder: Path, kafka: ExternalKafka, *arguments: str
) -> dict[str, dict[str, Any]]:
    """Run a benchmark in its own process, and return its figures by work and subject."""
    for peer in PEERS:
        pytest.importorskip(peer)
    saved = folder / f"{name}.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--runs", "1", "--json", str(saved)]
    command += ["--bootstrap", kafka.bootstrap, *arguments]
    # One of the other clients calls the event loop from a thread. In asyncio's debug mode, that
    # raises an error, and the client hangs.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDEVMODE"}
    # Nothing is installed for a run whose figures mean nothing.
    environment |= {"AIOKCLIENT_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    figures: dict[str, dict[str, Any]] = json.loads(saved.read_text())["numbers"]
    return figures


@pytest.mark.parametrize("name", list(SMALL))
def test_runs(name: str, tmp_path: Path, kafka: ExternalKafka) -> None:
    found = run(name, tmp_path, kafka, "--only", PYTHON, *SMALL[name])
    assert found
    for work in found.values():
        assert any(subject.startswith("aiokclient") for subject in work)
        assert name in ALONE or any(subject.startswith("aiokafka") for subject in work)


def test_each_row_that_a_target_names_exists() -> None:
    program = """
import consume, echo, produce, targets, tls

of_tls = {"produce": tls.PRODUCERS, "consume": tls.CONSUMERS}
assert len({(each.what, each.theirs) for each in targets.TARGETS}) == len(targets.TARGETS)
for target in targets.AS_WRITTEN:
    way, _, case = target.work.partition(" ")
    if way == "echo":
        measured = echo.ECHOES
    elif " over " in case:
        size, _, protocol = case.partition(" over ")
        assert size in {each.name for each in tls.CASES}, target
        assert protocol in {each.protocol for each in tls.PROTOCOLS}, target
        measured = of_tls[way]
    else:
        module = {"produce": produce, "consume": consume}[way]
        found = next(each for each in module.CASES if each.name == case)
        measured = module.SUBJECTS if found.whole else module.MAIN
    assert {target.theirs, *target.ours} <= {each.name for each in measured}, target
"""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'harness'}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS, env=environment)
    assert done.returncode == 0, done.stderr


def test_java(tmp_path: Path, kafka: ExternalKafka, java: str) -> None:
    arguments = ("--only", "Java", "--count", "60", "--cases", "1 KB lz4")
    assert run("produce", tmp_path, kafka, *arguments)["produce 1 KB lz4"]
    assert run("consume", tmp_path, kafka, *arguments)["consume 1 KB lz4"]


def test_transactions_of_other_languages(tmp_path: Path, kafka: ExternalKafka, java: str) -> None:
    arguments = ("--only", "Java,franz-go", "--count", "4")
    found = run("transactions", tmp_path, kafka, *arguments)
    assert all("Java" in work for work in found.values())
    assert len(found) == 4


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed.")
def test_franz_go_over_tls(tmp_path: Path, kafka: ExternalKafka) -> None:
    arguments = ("--only", "franz-go", "--count", "60", "--cases", "1 KB")
    found = run("tls", tmp_path, kafka, *arguments)
    assert len(found) == 4
    assert all("franz-go, same settings" in work for work in found.values())


def test_memory_stays_the_same_over_transactions(tmp_path: Path) -> None:
    script = str(BENCHMARKS / "transactions_memory.py")
    command = [sys.executable, script, "--transactions", "3000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_subject_that_fails_is_left_out() -> None:
    program = """
from types import SimpleNamespace
from measuring.report import Report, Table
from measuring.runner import Job, Run, RunFailedError, rounds
from measuring.spec import Counts

def execute(job):
    if job.subject.name == "failing":
        raise RunFailedError("It hangs.")
    return Run(Counts(messages=1, bytes=1, cpu_s=1.0, wall_s=1.0), None)

subjects = [SimpleNamespace(name=name, family="f") for name in ("failing", "working")]
found = rounds([Job(subject, None) for subject in subjects], 2, execute)
report = Report("")
report.add("work", found, Table("", []))
assert list(report.numbers["work"]) == ["working"], report
assert report.failed == ["work: failing"], report
assert found["failing", ""].missing == "3 runs failed", found
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_of_schemas_prints_each_row(tmp_path: Path) -> None:
    pytest.importorskip(
        "confluent_kafka.schema_registry", reason="a peer of the newest Python only"
    )
    command = [sys.executable, str(BENCHMARKS / "schemas.py"), "--no-instructions", "--count", "20"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[2:]
    rows = (
        "avro, two fields",
        "avro, an order",
        "avro, an event",
        "avro, evolution",
        "json schema",
        "protobuf",
        "pydantic",
    )
    for line, (row, way) in zip(
        lines, [(row, way) for row in rows for way in ("write", "read")], strict=True
    ):
        assert line.startswith(f"{row:18} {way} ")
        figures = [float(cell) for cell in line[25:].split() if cell != "-"]
        assert len(figures) == (4 if row == "pydantic" else 6)
        assert all(figure > 0 for figure in figures)
