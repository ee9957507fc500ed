"""Fixtures of the producer's tests."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient.producer.batching.accumulator import Accumulator, Memory


@pytest.fixture
def memory_totals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the total bytes in both pools, one item for each change by a producer."""
    totals: list[int] = []

    class Watched(Memory):
        def take_bytes(self, *arguments: Any, **named: Any) -> None:
            super().take_bytes(*arguments, **named)
            totals.append(self.buffer.total + self.overflow.total)

    class WithWatched(Accumulator):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            pools = self.memory
            self.memory = Watched(pools.buffer.limit)
            # Those that the gauges read.
            self.memory.buffer, self.memory.overflow = pools.buffer, pools.overflow

    monkeypatch.setattr("aiokclient.producer.engine.Accumulator", WithWatched)
    return totals
