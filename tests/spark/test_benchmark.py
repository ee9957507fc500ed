"""The benchmark of the source and the sink runs with a few rows. The figures mean nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--runs", "1", "--first", "0", "--rows", "1000", "--batches", "1", "--memory", "10"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_benchmark_measures_each_job_and_each_limit(tmp_path: Path, java: str) -> None:
    saved = tmp_path / "spark.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "spark.py"), *SMALL, "--json", str(saved)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(saved.read_text())
    limits = next(table for table in report["tables"] if table["title"] == "Limits")
    numbers = report["numbers"]
    for job in (*{row[0].partition(":")[0] for row in limits["rows"]}, "toArrow, all columns"):
        assert {"kafka", "aiokclient"} <= set(numbers[job]), job
    memory = {name: work for name, work in numbers.items() if name.startswith("memory of")}
    assert [set(work) for work in memory.values()] == [{"1", "10"}] * 2
    own = next(work for name, work in memory.items() if "aiokclient" in name)
    assert all(figure > 0 for figures in own.values() for figure in figures.values())
