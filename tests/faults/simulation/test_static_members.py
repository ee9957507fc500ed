"""Static members that return: the coordinator answers with the present generation (KIP-345)."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from group_world import PROTOCOLS, QUICK, member, reading
from owned import check_owned_and_read, until
from thinned import IS_WHOLE, in_turns
from world import World, simulate

from aiokclient import Consumer, State
from aiokclient.errors import (
    FencedMemberEpochError,
    KafkaError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from aiokclient.protocol import ApiKey

CLASSIC = ("eager", "cooperative")
classic = pytest.mark.parametrize("protocol", CLASSIC)
# The leader is chosen at random. With these two seeds, each of two members leads once.
SEEDS = range(4 if IS_WHOLE else 2)
seeds = pytest.mark.parametrize("seed", SEEDS)
FAST = {"metadata_max_age_ms": 1000}
STATIC = {**QUICK, "session_timeout_ms": 30_000, "max_poll_interval_ms": 10_000, **FAST}


def static(world: World, name: str, topics: Any, protocol: str) -> Consumer[Any, Any]:
    options = {**STATIC, **PROTOCOLS[protocol], "group_instance_id": name}
    consumer = member(world, None, name, **options)
    consumer.subscribe(topics)
    return consumer


@contextlib.asynccontextmanager
async def group_of(
    world: World, protocol: str, *topics: Any
) -> AsyncIterator[list[Consumer[Any, Any]]]:
    """Start a static member for each item of `topics`, and close those in the list at the end."""
    consumers = [static(world, f"m{n}", each, protocol) for n, each in enumerate(topics)]
    for consumer in consumers:
        await consumer.start()
    try:
        await check_owned_and_read(world, consumers)
        yield consumers
    finally:
        for consumer in consumers:
            await consumer.close()


def generation(world: World) -> int:
    return int(world.cluster.groups["g"].generation)


RETURNS = {
    "others": (["a"], ["b"]),
    "more": (["a"], ["a", "b"]),
    "fewer": (["a", "b"], ["b"]),
    "pattern": (["a"], re.compile("[ab]")),
}


@pytest.mark.parametrize(
    ("protocol", "how", "returns", "seed"),
    in_turns(4, CLASSIC, ["restart", "unsubscribe", "lapse", "lost answer"], RETURNS, SEEDS),
)
def test_static_member_that_returns_with_other_topics_gets_them(
    protocol: str, how: str, returns: str, seed: int
) -> None:
    before, after = RETURNS[returns]

    async def scenario(world: World) -> None:
        async with group_of(world, protocol, before, ["a"]) as consumers:
            if how == "unsubscribe":
                consumers[0].unsubscribe()
                await asyncio.sleep(2)
                consumers[0].subscribe(after)
            elif how == "lapse":
                async with reading(consumers[1]):
                    await asyncio.sleep(12)
                    consumers[0].subscribe(after)
                    await asyncio.sleep(2)
            else:
                await consumers[0].close()
                if how == "lost answer":
                    world.cluster.drop(ApiKey.JOIN_GROUP, when="after", times=2)
                consumers[0] = static(world, "m0", after, protocol)
                await consumers[0].start()
            await check_owned_and_read(world, consumers)
            await asyncio.sleep(2)
            settled = generation(world)
            await asyncio.sleep(5)
            assert generation(world) == settled

    simulate(scenario, seed=seed, topics={"a": 2, "b": 2})


@pytest.mark.parametrize(
    ("protocol", "seed", "when", "skips"),
    in_turns(2, CLASSIC, SEEDS, ["after", "between"], [True, False]),
)
def test_new_partitions_are_assigned_after_static_members_have_returned(
    protocol: str, seed: int, when: str, skips: bool
) -> None:
    async def scenario(world: World) -> None:
        if not skips:
            # Coordinators before Kafka 3.2 name the former member as the leader.
            world.cluster.limit_versions({ApiKey.JOIN_GROUP: (0, 8)})
        async with group_of(world, protocol, ["a"], ["b"]) as consumers:
            before = generation(world)
            for index in range(2):
                await consumers[index].close()
                if when == "between" and index == 0:
                    world.cluster.add_partitions("a", 4)
                    world.cluster.add_partitions("b", 4)
                consumers[index] = static(world, f"m{index}", [["a"], ["b"]][index], protocol)
                await consumers[index].start()
                await asyncio.sleep(1)
            if when == "after":
                assert generation(world) == before
                world.cluster.add_partitions("a", 4)
                world.cluster.add_partitions("b", 4)
            await asyncio.sleep(10)
            await check_owned_and_read(world, consumers)

    simulate(scenario, seed=seed, topics={"a": 2, "b": 2})


@classic
@seeds
def test_restart_of_static_members_with_the_same_topics_causes_no_rebalance(
    protocol: str, seed: int
) -> None:
    async def scenario(world: World) -> None:
        # Of "b", the members own fewer partitions than there are members.
        async with group_of(world, protocol, ["a", "b"], ["a", "b"], ["a", "b"]) as consumers:
            await asyncio.sleep(3)
            before = generation(world)
            for index in range(3):
                await consumers[index].close()
                consumers[index] = static(world, f"m{index}", ["a", "b"], protocol)
                await consumers[index].start()
                await until(lambda index=index: consumers[index].health())  # type: ignore[misc]
            await asyncio.sleep(5)
            assert generation(world) == before
            await check_owned_and_read(world, consumers)

    simulate(scenario, seed=seed, topics={"a": 3, "b": 1})


HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


@pytest.mark.parametrize("lost", [1, 2, 5])
@pytest.mark.parametrize("how", ["cut", "silent"])
@pytest.mark.parametrize("when", ["first join", "later"])
def test_static_member_of_kip848_joins_after_lost_answers(lost: int, how: str, when: str) -> None:
    async def scenario(world: World) -> None:
        options = {"group_instance_id": "i", "request_timeout_ms": 3000}
        consumer = member(world, **PROTOCOLS["kip848"], **options)
        async with contextlib.AsyncExitStack() as stack:
            if when == "later":
                await stack.enter_async_context(consumer)
                await until(lambda: consumer.assignment())
            if how == "cut":
                world.cluster.drop(HEARTBEAT, when="after", times=lost)
            else:
                world.cluster.delay(HEARTBEAT, 10, when="after", times=lost)
            if when == "first join":
                await stack.enter_async_context(consumer)
            else:
                consumer.unsubscribe()
                await asyncio.sleep(0.1)
                consumer.subscribe(["t"])
            await check_owned_and_read(world, [consumer], within_s=100)

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("code", [FencedMemberEpochError, UnknownMemberIdError])
@pytest.mark.parametrize("times", [1, 3])
def test_static_member_of_kip848_joins_again_after_it_was_fenced(
    code: type[KafkaError], times: int
) -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, **PROTOCOLS["kip848"], group_instance_id="i")
        async with consumer:
            await check_owned_and_read(world, [consumer])
            world.cluster.fail(HEARTBEAT, code, times=times)
            await asyncio.sleep(10)
            await check_owned_and_read(world, [consumer], within_s=100)

    simulate(scenario, topics={"t": 2})


def test_static_member_of_kip848_says_that_it_waits_for_its_former_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, **PROTOCOLS["kip848"], group_instance_id="i")
        async with consumer:
            await check_owned_and_read(world, [consumer])
            world.cluster.fail(HEARTBEAT, FencedMemberEpochError, times=1)
            # The end of the earlier membership cannot be sent.
            world.cluster.drop(HEARTBEAT, where=lambda request: request.member_epoch == -2)
            await asyncio.sleep(20)
            assert not consumer.assignment()
            assert consumer.state is not State.FAILED
            await check_owned_and_read(world, [consumer], within_s=100)

    simulate(scenario, topics={"t": 2})
    told = [r for r in caplog.records if getattr(r, "event", "") == "group_instance_unreleased"]
    assert {record.levelname for record in told} == {"WARNING"}
    assert "until its session has ended" in told[0].getMessage()


def test_second_member_of_kip848_with_an_instance_id_is_refused_at_once() -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, **PROTOCOLS["kip848"], group_instance_id="i")
        async with consumer:
            await check_owned_and_read(world, [consumer])
            began = world.now
            with pytest.raises(UnreleasedInstanceIdError):
                async with member(world, None, "two", **PROTOCOLS["kip848"], group_instance_id="i"):
                    pass
            assert world.now - began < 1
            await check_owned_and_read(world, [consumer])

    simulate(scenario, topics={"t": 2})
