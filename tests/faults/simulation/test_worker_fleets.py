"""Workers of one group under kills, rebalances, failures, and brokers that die.

`make workers` runs more seeds, and one run of 100,000 records.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from thinned import in_turns
from worker_fleet import PARTITIONS, VARIANTS, WorkerFleet, place_in
from world import World, simulate

ORDERS = [("partition", False), ("key", False), (None, False), ("partition", True), ("key", True)]
FIRST = int(os.environ.get("AIOKCLIENT_WORKER_SEED") or 0)
SEEDS = int(os.environ.get("AIOKCLIENT_WORKER_SEEDS") or 20)


@pytest.fixture(autouse=True)
def failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Log no failed run. To format all tracebacks takes longer than the runs."""
    caplog.set_level(logging.ERROR, "aiokclient.worker")


def run_fleet(
    order: Any,
    seed: int,
    *,
    batch: bool,
    count: int,
    disturbances: int,
    pause_s: float,
    **options: Any,
) -> None:
    """Let a fleet handle `count` records of each partition amid disturbances."""

    async def scenario(world: World) -> None:
        fleet = WorkerFleet(world, seed, order, batch=batch, **options)
        await fleet.fill(count)
        await fleet.run(disturbances, pause_s)
        assert len(fleet.done) == fleet.total
        poison = {place for place, (_, fate) in fleet.records.items() if fate < 0}
        assert {place_in(record.value) for record in world.cluster.records("dead")} == poison

    topics = {"t": PARTITIONS, "dead": PARTITIONS, "out": 1}
    simulate(scenario, seed=seed, brokers=2, topics=topics)


by_order = pytest.mark.parametrize(("order", "batch"), ORDERS)


@pytest.mark.fault(5, 40, 41)
@pytest.mark.parametrize(
    ("order", "batch", "variant"),
    [(*each, variant) for each, variant in in_turns(2, ORDERS, range(len(VARIANTS)))],
)
def test_each_record_is_done_or_dead_while_workers_come_and_go(
    order: Any, batch: bool, variant: int
) -> None:
    run_fleet(
        order, variant, batch=batch, count=60, disturbances=8, pause_s=2.0, **VARIANTS[variant]
    )


@pytest.mark.workers
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@by_order
def test_each_record_is_done_or_dead_for_many_seeds(order: Any, batch: bool, seed: int) -> None:
    variant = VARIANTS[seed % len(VARIANTS)]
    run_fleet(order, seed, batch=batch, count=200, disturbances=14, pause_s=4.0, **variant)


@pytest.mark.workers
@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@by_order
def test_a_hundred_thousand_records_are_done_or_dead(order: Any, batch: bool, variant: int) -> None:
    run_fleet(
        order,
        FIRST,
        batch=batch,
        count=16_667,
        disturbances=60,
        pause_s=20.0,
        concurrency=50,
        **VARIANTS[variant],
    )
