"""Tests that memory stays limited while records are streamed.

They run benchmarks/memory.py with a twentieth of its records, which would exceed its limit if
they stayed in memory, and with a tenth of them with `AIOKCLIENT_EXPLORE`.
"""

import importlib.util
import os
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"
RECORDS = 1_000_000 if os.environ.get("AIOKCLIENT_EXPLORE") else 500_000


@pytest.mark.timeout(900)
def test_memory_is_bounded_while_very_many_records_are_sent_and_read() -> None:
    spec = importlib.util.spec_from_file_location("memory_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    memory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(memory)
    figures = memory.measure(RECORDS, None)
    peaks = {name: figure for name, figure in figures.items() if name.endswith("peak MB")}
    assert len(peaks) == 4
    assert max(peaks.values()) < memory.LIMIT_MB, figures
