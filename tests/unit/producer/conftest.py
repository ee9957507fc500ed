"""Fixtures of the producer's tests."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient.producer.batching.accumulator import Memory


@pytest.fixture
def memory_totals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the total bytes in both pools, one item for each change by a producer."""
    totals: list[int] = []
    take = Memory.take_bytes

    def watched(self: Memory, *arguments: Any, **named: Any) -> None:
        take(self, *arguments, **named)
        totals.append(self.buffer.total + self.overflow.total)

    monkeypatch.setattr(Memory, "take_bytes", watched)
    return totals
