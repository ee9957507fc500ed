"""Resets and copies of offsets, and topics that must exist, amid faults and cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from interrupt import TWICE, Interrupted, interrupt
from world import World, simulate

from aiokclient import Admin, NewTopic, TopicPartition
from aiokclient.admin import EnsuredTopic, OffsetChange, Shift
from aiokclient.errors import (
    ApiTimeoutError,
    GroupAuthorizationError,
    LeaderNotAvailableError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = {"t": 1, "u": 1}
UNKNOWN = UnknownTopicOrPartitionError


def fill(world: World) -> None:
    for topic in world.cluster.topics:
        world.cluster.produce(topic, [b"1", b"2", b"3"])


def test_a_partition_without_leader_does_not_prevent_the_reset_of_the_others() -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"1", b"2", b"3"])
        led, lost = (world.cluster.leader("t", index) for index in (0, 1))
        assert led != lost
        for group in "g", "h":
            world.cluster.move_coordinator(group, to=led)
        async with Admin(**world.options()) as admin:
            (await admin.alter_consumer_group_offsets("g", {T0: 1, T1: 0})).raise_for_errors()
            world.cluster.stop(lost)
            began = world.now
            results = await admin.reset_offsets("g", "latest", timeout=8)
            assert world.now - began < 9
            assert results[T0] == OffsetChange(1, 3)
            assert isinstance(results[T1], ApiTimeoutError | LeaderNotAvailableError)
            assert "t-1" in str(results[T1])
            assert {tp: each.offset for tp, each in world.cluster.committed("g").items()} == {
                T0: 3,
                T1: 0,
            }
            # What needs no leader is possible.
            results = await admin.reset_offsets("g", {T1: 2}, check=False, timeout=8)
            assert results == {T1: OffsetChange(0, 2)}
            copied = await admin.copy_offsets("g", "h", timeout=8)
            assert copied.succeeded[T1].after == 2

    simulate(scenario, brokers=3, topics={"t": 2}, replication=1)


def test_a_member_that_joins_during_a_reset_keeps_its_offsets() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        async with Admin(**world.options()) as admin:
            (await admin.alter_consumer_group_offsets("g", {T0: 1})).raise_for_errors()
            fault = world.cluster.delay(ApiKey.LIST_OFFSETS, 20.0, times=1)
            call = asyncio.create_task(admin.reset_offsets("g", "latest"))
            await asyncio.sleep(1)
            async with world.consumer("t", group_id="g", enable_auto_commit=False) as consumer:
                while T0 not in consumer.assignment():
                    await consumer.poll(timeout=0.1)
                assert not call.done()
                await asyncio.wait([call])
            fault.remove()
            error = (await call)[T0]
            assert isinstance(error, UnknownMemberIdError)
            assert "The group has members" in str(error)
            assert world.cluster.committed("g")[T0].offset == 1

    simulate(scenario)


def test_errors_of_single_partitions_are_in_their_place() -> None:
    async def scenario(world: World) -> None:
        fill(world)
        async with Admin(**world.options()) as admin:
            with world.cluster.fail(ApiKey.OFFSET_COMMIT, TopicAuthorizationError, topic="t"):
                results = await admin.reset_offsets("g", "latest", topics=["t", "u"])
                assert isinstance(results[T0], TopicAuthorizationError)
                assert results[U0] == OffsetChange(None, 3, created_group=True)
                results = await admin.copy_offsets("g", "h")
                assert results == {U0: OffsetChange(None, 3, created_group=True)}
            with world.cluster.fail(ApiKey.LIST_OFFSETS, TopicAuthorizationError, topic="u"):
                results = await admin.reset_offsets("g", "earliest", topics=["t", "u"])
                assert isinstance(results[U0], TopicAuthorizationError)
                assert results[T0] == OffsetChange(None, 0)
            for api in ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH:
                with world.cluster.fail(api, GroupAuthorizationError):
                    with pytest.raises(GroupAuthorizationError):
                        await admin.reset_offsets("g", "earliest", topics=["t"])
                    with pytest.raises(GroupAuthorizationError):
                        await admin.copy_offsets("g", "h")
            committed = world.cluster.committed("g")
            assert {tp: each.offset for tp, each in committed.items()} == {T0: 0, U0: 3}

    simulate(scenario, topics=TOPICS)


def test_a_partition_that_a_response_lacks_has_an_error() -> None:
    def without_topics(request: Any, response: Any) -> Any:
        response.topics = []
        return response

    async def scenario(world: World) -> None:
        fill(world)
        async with Admin(**world.options()) as admin:
            world.cluster.alter(ApiKey.LIST_OFFSETS, without_topics)
            results = await admin.reset_offsets("g", "latest", topics=[T0])
            assert "does not contain" in str(results[T0])
            assert "g" not in world.cluster.groups

    simulate(scenario)


def test_a_topic_that_appears_late_after_another_client_has_created_it_is_compared() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            for dry_run in (True, False):
                with world.cluster.fail(ApiKey.METADATA, UNKNOWN, topic="t", times=3):
                    results = await admin.ensure_topics([NewTopic("t", 1)], dry_run=dry_run)
                    found = results.raise_for_errors()["t"]
                    assert found == EnsuredTopic(False, found.topic_id, 1, 1)

    simulate(scenario)


def test_a_topic_whose_options_cannot_be_read_has_the_error_beside_the_others() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            with world.cluster.fail(ApiKey.DESCRIBE_CONFIGS, TopicAuthorizationError):
                results = await admin.ensure_topics(
                    [NewTopic("t", configs={"retention.ms": 1}), NewTopic("u", 2), NewTopic("n", 1)]
                )
            assert isinstance(results["t"], TopicAuthorizationError)
            assert results.succeeded["u"].differences[0][1:] == (2, 1)
            assert results.succeeded["n"].created

    simulate(scenario, topics=TOPICS)


# -- cancellation


class Case(NamedTuple):
    """A call, and whether its outcome is that of the whole call, of a part, or of none of it."""

    call: Callable[[Admin], Coroutine[Any, Any, Any]]
    is_right: Callable[[World], bool]


def committed(world: World, group: str) -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in world.cluster.committed(group).items()}


CASES = {
    "reset_offsets": Case(
        lambda admin: admin.reset_offsets("g", "latest", topics=["t", "u"]),
        lambda world: committed(world, "g") in ({T0: 1}, {T0: 3, U0: 3}),
    ),
    "reset_offsets by a shift": Case(
        lambda admin: admin.reset_offsets("g", Shift(1)),
        lambda world: committed(world, "g") in ({T0: 1}, {T0: 2}, {T0: 3}),
    ),
    "copy_offsets": Case(
        lambda admin: admin.copy_offsets("g", "h"),
        lambda world: committed(world, "h") in ({}, {T0: 1}),
    ),
    "ensure_topics": Case(
        lambda admin: admin.ensure_topics([NewTopic("new", 1, 1, {"retention.ms": 5})]),
        lambda world: committed(world, "g") == {T0: 1},
    ),
    "a dry run of reset_offsets": Case(
        lambda admin: admin.reset_offsets("g", "latest", topics=["t", "u"], dry_run=True),
        lambda world: committed(world, "g") == {T0: 1},
    ),
}


def cancelled(case: Case, way: str, **when: Any) -> Interrupted:
    """Cancel the call, check what it has left, and repeat it."""

    async def scenario(world: World) -> Interrupted:
        fill(world)
        async with Admin(**world.options()) as admin:
            (await admin.alter_consumer_group_offsets("g", {T0: 1})).raise_for_errors()
            outcome = await interrupt(case.call(admin), way=way, **when)
            assert case.is_right(world)
            again = await case.call(admin)
            again.raise_for_errors()
            assert case.is_right(world)
        return outcome

    return simulate(scenario, topics=TOPICS, weather=Weather(latency_s=(0.001, 0.01)))


@pytest.mark.parametrize("way", ["asyncio", TWICE, "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_a_plan_can_be_cancelled_at_every_suspension(name: str, way: str) -> None:
    for n in range(1, 1_000):
        outcome = cancelled(CASES[name], way, suspension=n)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    assert n > 3
