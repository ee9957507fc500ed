"""A running group changes its strategy member by member: no record is lost or repeated."""

import asyncio
from typing import Any

import pytest
from group_world import QUICK, fill
from owned import until
from ownership import Member, Ownership
from world import World, simulate

from aiokclient import Consumer, TopicPartition

PARTITIONS = 6
STEPS = {
    "to another eager one": [["range"], ["roundrobin", "range"], ["roundrobin"]],
    "to cooperative": [["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"]],
    "and back": [["cooperative-sticky"], ["range", "cooperative-sticky"], ["range"]],
    "by way of sticky": [["sticky"], ["cooperative-sticky", "sticky"], ["cooperative-sticky"]],
}


class Group:
    """A group of three members, which are replaced one by one by members with other strategies."""

    def __init__(self, world: World) -> None:
        self.world, self.ownership, self.made = world, Ownership(lambda: world.now), 0

    async def read(self, consumer: Consumer[Any, Any], listener: Member) -> None:
        async with consumer:
            async for record in consumer:
                listener.delivered(record)
                await asyncio.sleep(0.01)
                listener.ended(record)

    def join(self, strategies: list[str]) -> tuple[Consumer[Any, Any], asyncio.Task[None]]:
        self.made += 1
        listener = self.ownership.member(f"m{self.made}")
        options = {**QUICK, "listener": listener, "partition_assignment_strategy": strategies}
        consumer = self.world.consumer("t", checked=False, **options)
        return consumer, asyncio.create_task(self.read(consumer, listener))


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_no_record_is_lost_in_a_rolling_upgrade(steps: list[list[str]]) -> None:
    async def scenario(world: World) -> None:
        group = Group(world)
        members = [group.join(steps[0]) for _ in range(3)]
        for strategies in steps[1:]:
            for _ in range(3):
                fill(world, 20, PARTITIONS)
                await asyncio.sleep(3)
                consumer, task = members.pop(0)
                consumer.stop()
                await task
                members.append(group.join(strategies))
        await until(lambda: group.ownership.count() == 2 * 3 * 20 * PARTITIONS)
        group.ownership.check_committed(world.cluster.committed("g"))
        await until(lambda: all(len(consumer.assignment()) == 2 for consumer, _ in members))
        assert world.cluster.groups["g"].protocol == steps[-1][0]
        for consumer, task in members:
            consumer.stop()
            await task
        group.ownership.check()
        assert group.ownership.doubles == 0
        ends = {tp: stored.offset for tp, stored in world.cluster.committed("g").items()}
        assert ends == {TopicPartition("t", p): 120 for p in range(PARTITIONS)}

    simulate(scenario, brokers=2, topics={"t": PARTITIONS})
