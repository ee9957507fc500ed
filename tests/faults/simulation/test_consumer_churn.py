"""Members that join and leave all the time.

No committed offset is beyond the processed records, no record is delivered after its partition was
revoked (promises F and G of `tests/faults.md`), and no record is lost.
"""

import asyncio
import random
from typing import Any

import pytest
from ownership import Member, Ownership
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, TopicPartition

COUNT = 150
PARTITIONS = 6
STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}


class Group:
    """A group whose members start, leave, are killed, and are cut off, as the seed determines."""

    def __init__(self, world: World, seed: int, **options: Any) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.options = options
        self.ownership = Ownership(lambda: world.now)
        self.running: dict[str, tuple[Consumer[Any, Any], asyncio.Task[None], Member]] = {}
        self.made = 0

    def join(self, how: str = "loop") -> str:
        self.made += 1
        name = f"m{self.made}"
        member = self.ownership.member(name)
        consumer = self.world.consumer(
            "t",
            group_id="g",
            connector=self.world.network.connector(name),
            listener=member,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            auto_commit_interval_ms=1000,
            max_poll_interval_ms=20_000,
            checked=False,  # Members that have stopped release nothing before they close.
            **self.options,
        )
        work = self.loop if how == "loop" else self.tracked
        task = asyncio.create_task(work(consumer, member))
        self.running[name] = consumer, task, member
        return name

    async def loop(self, consumer: Consumer[Any, Any], member: Member) -> None:
        async with consumer:
            async for record in consumer:
                member.delivered(record)
                try:
                    await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.05)))
                except asyncio.CancelledError:
                    member.dropped(record)
                    raise
                member.ended(record)

    async def tracked(self, consumer: Consumer[Any, Any], member: Member) -> None:
        async def handle(record: Any) -> None:
            try:
                await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.3)))
            except asyncio.CancelledError:
                member.dropped(record)
                raise
            member.ended(record)
            consumer.done(record)

        async with consumer, asyncio.TaskGroup() as handlers:
            async for record in consumer.tracked(max_outstanding=50):
                member.delivered(record)
                handlers.create_task(handle(record))

    async def leave(self, name: str) -> None:
        consumer, task, _ = self.running.pop(name)
        consumer.stop()
        await task

    async def kill(self, name: str) -> None:
        """Kill a member as if its process died: none of its packets arrive any more."""
        _, task, member = self.running.pop(name)
        self.world.network.part([name], self.broker_addresses)
        member.kill()
        task.cancel()
        await asyncio.wait([task])

    @property
    def broker_addresses(self) -> list[str]:
        return [self.world.address(broker) for broker in self.world.cluster.brokers]

    def check(self) -> None:
        self.ownership.check_committed(self.world.cluster.committed("g"))
        self.ownership.check()


async def churn(world: World, group: Group, how: str) -> None:
    for partition in range(PARTITIONS):
        values = [b"%d" % i for i in range(COUNT)]
        world.cluster.produce("t", values, partition)
    group.join(how)
    for _ in range(12):
        await asyncio.sleep(group.rng.uniform(0.1, 3.0))
        group.check()
        names = list(group.running)
        action = group.rng.choice(["join", "join", "leave", "kill", "part", "coordinator"])
        if action == "join" or len(names) < 2:
            group.join(how)
        elif action == "leave":
            await group.leave(group.rng.choice(names))
        elif action == "kill":
            await group.kill(group.rng.choice(names))
        elif action == "part":
            world.network.part([group.rng.choice(names)], group.broker_addresses)
            await asyncio.sleep(group.rng.uniform(0.5, 10.0))
            world.network.heal()
        else:
            world.cluster.move_coordinator("g")
    world.network.heal()
    if not group.running:
        group.join(how)
    complete = {TopicPartition("t", partition): COUNT for partition in range(PARTITIONS)}
    async with asyncio.timeout(600):
        while {tp: s.offset for tp, s in world.cluster.committed("g").items()} != complete:
            await asyncio.sleep(0.5)
            group.check()
    assert group.ownership.count() == COUNT * PARTITIONS
    for name in list(group.running):
        await group.leave(name)
    group.check()


@pytest.mark.fault(5, 40, 41)
@pytest.mark.parametrize("seed", one_in(6, range(6)))
@pytest.mark.parametrize("how", ["loop", "tracked"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_no_record_is_lost_while_members_come_and_go(strategy: str, how: str, seed: int) -> None:
    async def scenario(world: World) -> None:
        group = Group(world, seed, partition_assignment_strategy=strategy)
        await churn(world, group, how)

    simulate(scenario, seed=seed, brokers=2, topics={"t": PARTITIONS})
