"""The programs of `benchmarks/callgrind.py` run, and it compares as it says. Nothing is counted."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("callgrind", ROOT / "benchmarks" / "callgrind.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["callgrind"] = module
    spec.loader.exec_module(module)
    return module


callgrind: Any = load()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    command = [sys.executable, "-c", callgrind.BROKERS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as brokers:
        assert brokers.stdout is not None
        yield brokers.stdout.readline().strip()
        brokers.communicate("")


@pytest.mark.parametrize("name", list(callgrind.ROWS))
def test_each_program_of_the_count_of_instructions_runs(name: str, servers: str) -> None:
    row = callgrind.ROWS[name]
    size = min(row.large, 1000)
    command = [sys.executable, "-c", callgrind.program_of(row), str(size), servers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class Counts:
    """Figures for each measurement of each checkout, in order."""

    def __init__(self, figures: dict[str, list[float]]) -> None:
        self._figures = {name: iter(each) for name, each in figures.items()}

    def measure(self, checkout: str, row: object) -> float:
        return next(self._figures[checkout])


@pytest.mark.parametrize(
    ("base", "change", "expected"),
    [
        ([100.0], [103.0], [100.0, 103.0]),
        ([100.0, 99.0], [104.0, 101.0], [99.0, 101.0]),
        ([100.0, 101.0, 100.0], [104.0, 105.0, 104.0], [100.0, 104.0]),
    ],
)
def test_a_row_over_the_limit_is_measured_three_times(
    monkeypatch: pytest.MonkeyPatch, base: list[float], change: list[float], expected: list[float]
) -> None:
    counts = Counts({"base": base, "change": change})
    monkeypatch.setattr(callgrind, "measure", counts.measure)
    assert callgrind.measure_row(["base", "change"], object(), 1.03) == expected


def test_the_table_of_instructions_names_the_build_of_the_interpreter(tmp_path: Path) -> None:
    table = tmp_path / "callgrind.md"
    callgrind.write_markdown(table, {"an awaited send": [120_000.0, 90_000.4]})
    text = table.read_text()
    assert "| an awaited send | 90,000 |" in text
    assert f"| interpreter | CPython {sys.version.split()[0]} |" in text
    assert "| build | " in text
    assert "| compiler of the native modules | " in text
