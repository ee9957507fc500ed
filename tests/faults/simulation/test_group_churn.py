"""Workers and writers that start, leave, and are cut off, over many seeds.

No item has two owners at a time, and there are never two writers. Soon after the faults are over,
every item has an owner and the ledger has a writer. The workers of these tests stop using their
items as soon as their generation ends. Coordinators that forget their group in a failover are not
tested here: they assign everything again at once, while earlier owners may still be at work.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient.errors import KafkaError, NotWriterError
from aiokclient.patterns import single_writer, work_pool
from aiokclient.testing.simulation.network import Weather

ITEMS = {f"item-{n}": 1.0 + n % 3 for n in range(10)}
TIMES: dict[str, Any] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
    "rebalance_timeout_ms": 8_000,
}
SEEDS = one_in(4, range(8))


class ItemOwners:
    """The owner of each item at any moment."""

    def __init__(self) -> None:
        self.by_item: dict[str, str] = {}
        self.taken = 0

    def take(self, who: str, what: str) -> None:
        assert what not in self.by_item, (
            f"{self.by_item[what]} still owns {what}, which {who} takes"
        )
        self.by_item[what] = who
        self.taken += 1

    def release(self, who: str, what: str) -> None:
        assert self.by_item.pop(what) == who


Run = Callable[[World, ItemOwners, str, dict[str, Any]], Any]


async def work(world: World, owners: ItemOwners, who: str, options: dict[str, Any]) -> None:
    pool = work_pool("pool", ITEMS, **options)
    async with aclosing(pool):
        async for items in pool:
            async with items as mine:
                for item in mine:
                    owners.take(who, item)
                try:
                    await asyncio.Event().wait()
                finally:
                    for item in mine:
                        owners.release(who, item)


async def write(world: World, owners: ItemOwners, who: str, options: dict[str, Any]) -> None:
    while True:
        try:
            async with single_writer("ledger", **options) as producer:
                owners.take(who, "ledger")
                try:
                    while True:
                        producer.send("t", who.encode())
                        await asyncio.sleep(0.5)
                finally:
                    owners.release(who, "ledger")
        except NotWriterError:
            continue


class Crowd:
    """Members that run in tasks, and faults that ``rng`` determines."""

    def __init__(self, world: World, run: Run, rng: random.Random) -> None:
        self.world, self.run, self.rng = world, run, rng
        self.owners = ItemOwners()
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        self.number = 0

    def come(self) -> None:
        who = f"m{self.number}"
        self.number += 1
        options = self.world.options(**TIMES)
        options["connector"] = self.world.sim.network.connector(who)
        self.tasks[who] = asyncio.create_task(self.run(self.world, self.owners, who, options))

    async def go(self) -> None:
        if len(self.tasks) > 1:
            task = self.tasks.pop(self.rng.choice(sorted(self.tasks)))
            task.cancel()
            await asyncio.wait([task])

    async def cut_off(self) -> None:
        """Cut one member off from the brokers, for less or more than its session timeout."""
        who = self.rng.choice(sorted(self.tasks))
        self.world.network.part({who}, set(map(self.world.address, self.world.cluster.brokers)))
        await asyncio.sleep(self.rng.choice([1, 4, 9, 20]))
        self.world.network.heal()

    async def fail_over(self) -> None:
        group = "pool" if self.run is work else "ledger"
        coordinator = self.world.cluster.coordinator(group)
        self.world.cluster.move_coordinator(group)
        if self.rng.random() < 0.5:
            self.world.cluster.disconnect(coordinator)

    async def lose_connections(self) -> None:
        self.world.network.cut(self.rng.choice(sorted(self.tasks)))

    async def trouble(self) -> None:
        match self.rng.randrange(6):
            case 0:
                await self.go()
            case 1:
                await self.cut_off()
            case 2:
                await self.fail_over()
            case 3:
                await self.lose_connections()
            case _:
                if len(self.tasks) < 6:
                    self.come()
        await asyncio.sleep(self.rng.choice([0.01, 0.3, 2, 5]))

    def check(self) -> None:
        for task in self.tasks.values():
            if task.done():
                task.result()

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.wait(self.tasks.values())
        for task in self.tasks.values():
            assert task.cancelled() or isinstance(task.exception(), KafkaError)


@pytest.mark.fault(5)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("run", "wanted"), [(work, sorted(ITEMS)), (write, ["ledger"])])
def test_no_item_has_two_owners_while_members_come_and_go(
    run: Run, wanted: list[str], seed: int
) -> None:
    async def scenario(world: World) -> None:
        crowd = Crowd(world, run, random.Random(seed))
        for _ in range(3):
            crowd.come()
        for _ in range(25):
            await crowd.trouble()
            crowd.check()
        world.network.heal()
        await asyncio.sleep(40)
        crowd.check()
        assert sorted(crowd.owners.by_item) == wanted
        await crowd.end()
        assert crowd.owners.by_item == {}

    weather = Weather(latency_s=(0.001, 0.2)) if seed % 2 else None
    simulate(scenario, brokers=3, seed=seed, weather=weather)
