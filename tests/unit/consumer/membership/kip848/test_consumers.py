"""Tests of consumers under KIP-848 in simulations: commits, epochs, poll interval, and listener."""

import asyncio
import re
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, State, TopicPartition
from aiokclient.errors import (
    ConfigError,
    GroupIdNotFoundError,
    InvalidRegularExpressionError,
    StaleMemberEpochError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def _tell(self, what: str, tps: Any) -> None:
        self.told.append((what, sorted(tp.partition for tp in tps)))

    async def on_assigned(self, tps: Any) -> None:
        self._tell("assigned", tps)

    async def on_revoked(self, tps: Any) -> None:
        self._tell("revoked", tps)

    def on_lost(self, tps: Any) -> None:
        self._tell("lost", tps)


def run(scenario: Any, **options: Any) -> None:
    simulate(scenario, topics={"t": 2}, **options)


def fill(world: World, count: int = 10) -> None:
    for partition in range(2):
        world.cluster.produce("t", [b"%d" % i for i in range(count)], partition)


async def take(consumer: Consumer[Any, Any], count: int) -> None:
    found = 0
    async with asyncio.timeout(60):
        while found < count:
            found += len(await consumer.poll(timeout=1.0))


def test_commits_have_the_member_epoch() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        async with world.consumer("t", **OPTIONS, enable_auto_commit=False) as consumer:
            await take(consumer, 20)
            await consumer.commit()
            member = consumer.group_metadata()
            (commit,) = world.requests(ApiKey.OFFSET_COMMIT)
            assert commit.message.generation_id_or_member_epoch == member.generation_id > 0
            assert commit.message.member_id == member.member_id
            with world.cluster.fail(ApiKey.OFFSET_COMMIT, StaleMemberEpochError, times=2):
                world.cluster.rebalance("g")
                await consumer.commit({T0: 5})
            found = await consumer.committed([T0, T1])
            assert [found[tp].offset for tp in (T0, T1)] == [5, 10]

    run(scenario)


@pytest.mark.fault(42)
def test_a_member_leaves_when_a_handler_takes_too_long() -> None:
    """The member leaves in time, and joins again when the program requests more records."""

    async def scenario(world: World) -> None:
        fill(world)
        listener = Listener()
        consumer = world.consumer("t", **OPTIONS, listener=listener, max_poll_interval_ms=5000)
        async with consumer:
            await take(consumer, 20)
            await consumer.poll(timeout=0.1)
            await world.cluster.until(lambda: world.cluster.groups["g"].state == "Empty", 30)
            assert listener.told == [("assigned", [0, 1]), ("lost", [0, 1])]
            assert consumer.group_metadata().generation_id == -1
            fill(world, 5)
            await take(consumer, 10)
            assert listener.told[2:] == [("assigned", [0, 1])]

    run(scenario)


def test_what_is_in_progress_is_committed_before_the_revocation() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        listener = Listener()
        async with world.consumer("t", **OPTIONS, listener=listener) as first:
            await take(first, 20)
            async with world.consumer("t", **OPTIONS) as second:
                # The last records count as processed when the program requests the next ones.
                while not second.assignment():
                    assert await first.poll(timeout=0.5) == []
                assert await second.poll(timeout=5.0) == []
            assert listener.told == [("assigned", [0, 1]), ("revoked", [1])]

    run(scenario)


@pytest.mark.fault(44)
def test_errors_of_the_group_reach_the_program() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t", **OPTIONS, group_instance_id="i") as first:
            await first.poll(timeout=1.0)
            for topic, options, error in (
                ("t", {"group_instance_id": "i"}, UnreleasedInstanceIdError),
                (re.compile("(?=a)b"), {}, InvalidRegularExpressionError),
            ):
                second = world.consumer(topic, **OPTIONS, **options)
                with pytest.raises(error):
                    async with second:
                        await second.poll(timeout=30.0)
            assert first.state is State.RUNNING

    run(scenario)


def test_a_cluster_without_the_protocol_is_refused() -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
        consumer = world.consumer("t", **OPTIONS)
        with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
            async with consumer:
                await consumer.poll(timeout=30.0)

    run(scenario)


@pytest.mark.parametrize("option", ["session_timeout_ms", "heartbeat_interval_ms"])
def test_options_that_brokers_decide_are_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        Consumer("t", bootstrap_servers="k:1", **OPTIONS, **{option: 1000})


def test_a_subscription_that_changes_and_ends() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        world.cluster.create_topic("u", 2)
        listener = Listener()
        async with world.consumer(**OPTIONS) as consumer:
            consumer.subscribe(["t"], listener)
            await take(consumer, 20)
            consumer.subscribe(re.compile("[tu]"), listener)
            await world.cluster.until(lambda: len(consumer.assignment()) == 4, 30)
            consumer.unsubscribe()
            # This poll() marks the current records as processed, so that the consumer can leave.
            assert await consumer.poll(timeout=0.1) == []
            await world.cluster.until(lambda: world.cluster.groups["g"].state == "Empty", 30)
            assert listener.told[-1][0] == "revoked"
            assert {tp: at.offset for tp, at in world.cluster.committed("g").items()} == {
                T0: 10,
                T1: 10,
            }

    run(scenario)


def test_a_group_of_classic_consumers_that_may_not_change() -> None:
    async def scenario(world: World) -> None:
        async with world.consumer("t", group_id="g") as classic:
            await classic.poll(timeout=5.0)
            with pytest.raises(GroupIdNotFoundError, match="not a consumer group"):
                async with world.consumer("t", **OPTIONS) as consumer:
                    await consumer.poll(timeout=30.0)
            assert classic.state is State.RUNNING

    run(scenario, configs={"group.consumer.migration.policy": "disabled"})
