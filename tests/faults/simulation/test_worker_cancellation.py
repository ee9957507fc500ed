"""Calls of workers beside each other, and cancelled runs, lose no record and leave nothing.

`make workers` runs more seeds, and cancels runs of all kinds at all suspensions in both ways.
"""

from __future__ import annotations

import os

import pytest
import worker_pairs

FIRST = int(os.environ.get("AIOKCLIENT_WORKER_SEED") or 0)
SEEDS = int(os.environ.get("AIOKCLIENT_WORKER_SEEDS") or 20)
WAYS = ("asyncio", "anyio")
MOST = 1000


@pytest.mark.fault(35, 36, 63)
@pytest.mark.parametrize("seed", [0, 3, 9, 14])
def test_calls_of_workers_beside_each_other_end_and_lose_nothing(seed: int) -> None:
    assert worker_pairs.run(seed).seed == seed


@pytest.mark.fault(35)
@pytest.mark.parametrize("kind", ["key", "topics", "transactions", "share"])
def test_a_run_can_be_cancelled_at_every_sixth_suspension(kind: str) -> None:
    for n in range(1, MOST, 6):
        outcome = worker_pairs.cancel_run(kind, WAYS[n // 6 % 2], n)
        if not outcome.cancelled:
            break
    assert outcome.error is None
    assert 10 < n < MOST


@pytest.mark.workers
@pytest.mark.parametrize("seed", range(FIRST, FIRST + 10 * SEEDS))
def test_calls_of_workers_beside_each_other_end_for_many_seeds(seed: int) -> None:
    assert worker_pairs.run(seed).seed == seed


@pytest.mark.workers
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", worker_pairs.KINDS)
def test_a_run_of_each_kind_can_be_cancelled_at_every_suspension(kind: str, way: str) -> None:
    for n in range(1, MOST):
        outcome = worker_pairs.cancel_run(kind, way, n)
        if not outcome.cancelled:
            break
    assert outcome.error is None
    assert 10 < n < MOST
