"""Share groups under kills, failing handlers, partings, stalls, moved leaders, and dead brokers.

`make share` runs more seeds.
"""

from __future__ import annotations

import os

import pytest
from share_fleet import DEAD, PARTITIONS, ShareFleet
from world import World, simulate

FIRST = int(os.environ.get("AIOKCLIENT_SHARE_SEED") or 0)
SEEDS = int(os.environ.get("AIOKCLIENT_SHARE_SEEDS") or 200)


def run_fleet(seed: int, *, count: int = 25, disturbances: int = 12, broken: str = "") -> None:
    """Let a fleet handle `count` records of each partition amid disturbances."""

    async def scenario(world: World) -> None:
        fleet = ShareFleet(world, seed, most=1 + seed % 20, broken=broken)
        await fleet.fill(count)
        await fleet.run(disturbances, 2.0)

    simulate(scenario, seed=seed, brokers=3, topics={"t": PARTITIONS, DEAD: 1})


@pytest.mark.fault(1, 3, 5, 11, 13, 18, 37)
@pytest.mark.parametrize("seed", range(3))
def test_each_record_ends_as_its_handlers_say(seed: int) -> None:
    run_fleet(seed)


def test_a_member_that_accepts_what_it_has_lost_is_noticed() -> None:
    def run_all() -> None:
        # Such a member does no harm in a run in which it loses nothing that another member has.
        for seed in range(3, 11):
            run_fleet(seed, count=10, broken="believing")

    with pytest.raises(AssertionError, match="is held by"):
        run_all()


@pytest.mark.share
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_each_record_ends_as_its_handlers_say_for_many_seeds(seed: int) -> None:
    run_fleet(seed, count=40, disturbances=20)
