"""Subscriptions that change while the partitions of earlier ones are being released."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from group_world import PROTOCOLS, Diary, every_protocol, fill, member
from owned import check_owned_and_read, until
from thinned import in_turns
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.protocol import ApiKey

T0 = TopicPartition("t", 0)


class SlowDiary(Diary):
    """A listener whose `on_revoked` takes a second."""

    async def on_revoked(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        await asyncio.sleep(1)
        super().on_revoked(tps)


async def read_slowly(consumer: Consumer[Any, Any], work_s: float) -> None:
    async for _ in consumer:
        await asyncio.sleep(work_s)


@pytest.mark.parametrize(
    ("protocol", "pause_s", "slow", "topics"),
    in_turns(
        5,
        PROTOCOLS,
        [0.0, 0.001, 0.02, 0.3, 1.5],
        ["record", "listener", "commit"],
        [["t"], ["t", "more"], ["more"]],
    ),
)
def test_partitions_are_owned_and_read_after_subscribe_while_they_are_released(
    protocol: str, pause_s: float, slow: str, topics: list[str]
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 5, 2)
        diary = SlowDiary() if slow == "listener" else Diary()
        consumer = member(world, diary, **PROTOCOLS[protocol])
        async with consumer:
            await diary.until(lambda: diary.owned)
            if slow == "commit":
                world.cluster.delay(ApiKey.OFFSET_COMMIT, 0.2)
            work_s = 0.5 if slow == "record" else 0.0
            task = asyncio.create_task(read_slowly(consumer, work_s))
            await asyncio.sleep(0.1)
            for _ in range(3):
                consumer.unsubscribe()
                await asyncio.sleep(pause_s)
                consumer.subscribe(topics, diary)
                await asyncio.sleep(pause_s / 2)
            await asyncio.sleep(10)
            task.cancel()
            await asyncio.wait([task])
            await check_owned_and_read(world, [consumer])

    simulate(scenario, topics={"t": 2, "more": 2})


@every_protocol
@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.5])
@pytest.mark.parametrize("pattern", [False, True])
def test_assignment_for_an_earlier_subscription_is_not_delivered(
    protocol: str, pause_s: float, pattern: bool
) -> None:
    async def scenario(world: World) -> None:
        for topic in ("t", "more"):
            fill(world, 100, 2, topic)
        consumer = member(world, None, **PROTOCOLS[protocol], enable_auto_commit=False)
        async with consumer:
            if protocol == "kip848":
                # The coordinator answers for the earlier subscription when the later one is made.
                world.cluster.delay(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0.3, when="after")
            for topics in (["t"], ["more"], ["t"], ["more"], ["t"]):
                consumer.subscribe(re.compile("|".join(topics)) if pattern else topics)
                records = await consumer.poll(timeout=pause_s)
                assert {record.topic for record in records} <= {*topics}
            for _ in range(10):
                records += await consumer.poll(timeout=1)
            assert {record.topic for record in records} <= {"t"}
            await check_owned_and_read(world, [consumer])

    simulate(scenario, topics={"t": 2, "more": 2})


@pytest.mark.parametrize("lost", range(1, 4))
@pytest.mark.parametrize("instance", [None, "one"])
def test_pattern_is_cancelled_at_the_coordinator_after_a_lost_heartbeat(
    lost: int, instance: str | None
) -> None:
    async def scenario(world: World) -> None:
        for topic in ("a", "b"):
            fill(world, 10, 1, topic)
        heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
        consumer = member(world, None, **PROTOCOLS["kip848"], group_instance_id=instance)
        consumer.subscribe(re.compile("[ab]"))
        async with consumer:
            await until(lambda: len(consumer.assignment()) == 2)
            world.cluster.drop(heartbeat, when="before", times=lost)
            consumer.subscribe(["b"])
            await asyncio.sleep(20)
            assert {tp.topic for tp in consumer.assignment()} == {"b"}
            await check_owned_and_read(world, [consumer])
            world.cluster.drop(heartbeat, when="after", times=lost)
            consumer.subscribe(re.compile("[ab]"))
            await asyncio.sleep(1)
            consumer.subscribe(["a"])
            await asyncio.sleep(20)
            await check_owned_and_read(world, [consumer])
        # The next member with this instance id does not inherit a pattern either.
        consumer = member(world, None, **PROTOCOLS["kip848"], group_instance_id=instance)
        consumer.subscribe(re.compile("[ab]"))
        async with consumer:
            await until(lambda: len(consumer.assignment()) == 2)
        consumer = member(world, None, **PROTOCOLS["kip848"], group_instance_id=instance)
        consumer.subscribe(["b"])
        async with consumer:
            await asyncio.sleep(10)
            await check_owned_and_read(world, [consumer])

    simulate(scenario, topics={"a": 1, "b": 1})
