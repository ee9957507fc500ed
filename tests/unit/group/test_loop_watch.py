"""Tests of the watch on the event loop, in virtual time."""

import asyncio
import logging

import pytest
from world import World, simulate

from aiokclient.group.loop_watch import LoopWatch
from aiokclient.metrics import Metrics


def test_a_stall_is_told_once_for_all_groups_of_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()

    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as tasks:
            watches = []
            for number in range(20):
                watches.append(tasks.create_task(LoopWatch(metrics, f"g{number}").run()))
                await asyncio.sleep(0.01)
            for _ in range(2):
                await asyncio.sleep(3)
                world.sim.loop.leap(5)
            await asyncio.sleep(3)
            for watch in watches:
                watch.cancel()

    caplog.set_level(logging.WARNING, "aiokclient.group")
    simulate(scenario)
    texts = [r.getMessage() for r in caplog.records if r.name == "aiokclient.group"]
    assert len(texts) == 2
    assert all("the event loop stood still for " in text for text in texts)
    assert all(text.startswith("client aiokclient, group g") for text in texts)
    (held,) = [v for k, v in metrics.snapshot().items() if "blocked" in k]
    assert held["count"] == 40
