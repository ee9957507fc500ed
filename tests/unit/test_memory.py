"""Tests that memory stays limited while records are streamed.

They run benchmarks/memory.py with a tenth of its records.
"""

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"


@pytest.mark.timeout(900)
def test_a_million_records_there_and_back() -> None:
    spec = importlib.util.spec_from_file_location("memory_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    memory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(memory)
    figures = memory.measure(1_000_000, None)
    peaks = {name: figure for name, figure in figures.items() if name.endswith("peak MB")}
    assert len(peaks) == 4
    assert max(peaks.values()) < memory.LIMIT_MB, figures
