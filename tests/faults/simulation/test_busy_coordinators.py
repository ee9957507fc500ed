"""Coordinators that repeat a response, or whose responses are lost, cause no busy loop."""

import asyncio
import logging
from typing import Any

import pytest
from group_world import KIP848, Diary, fill, member, reading
from world import World, simulate

from aiokclient.errors import (
    FencedMemberEpochError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokclient.protocol import ApiKey

SLOW_KIP848: dict[str, Any] = {**KIP848, "max_poll_interval_ms": 600_000}
WATCH_S = 60
MOST_LINES = 20
"""The maximum number of log lines in a minute. The library must not log each attempt."""


async def watch(world: World, consumer: Any) -> None:
    """Run a consumer for `WATCH_S` seconds. The coordinator refuses it all the time."""
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(WATCH_S)
    starting.cancel()
    await asyncio.wait([starting])
    await consumer.close()


def count(world: World, *apis: ApiKey) -> int:
    return sum(len(world.requests(api)) for api in apis)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        (ApiKey.JOIN_GROUP, MemberIdRequiredError),
        (ApiKey.JOIN_GROUP, RebalanceInProgressError),
        (ApiKey.JOIN_GROUP, UnknownMemberIdError),
        (ApiKey.SYNC_GROUP, RebalanceInProgressError),
        (ApiKey.SYNC_GROUP, UnknownMemberIdError),
        (ApiKey.HEARTBEAT, RebalanceInProgressError),
        (ApiKey.HEARTBEAT, UnknownMemberIdError),
    ],
)
def test_a_member_slows_down_when_the_coordinator_repeats_an_error(
    api: ApiKey, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        with (
            caplog.at_level(logging.INFO, logger="aiokclient"),
            world.cluster.fail(api, error),
        ):
            await watch(world, member(world))
        assert count(world, ApiKey.JOIN_GROUP) < 2 * WATCH_S
        assert count(world, ApiKey.HEARTBEAT) < 6 * WATCH_S
        assert len(caplog.records) < MOST_LINES

    simulate(scenario)


@pytest.mark.parametrize("wanted_ms", [0, -1, -(2**31), 1])
def test_heartbeats_keep_a_reasonable_interval_when_the_coordinator_asks_for_none(
    wanted_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    def change(request: Any, response: Any) -> Any:
        response.heartbeat_interval_ms = wanted_ms
        return response

    async def scenario(world: World) -> None:
        fill(world, 1)
        with world.cluster.alter(ApiKey.CONSUMER_GROUP_HEARTBEAT, change):
            async with member(world, **SLOW_KIP848) as consumer:
                assert await consumer.get(timeout=10)
                await asyncio.sleep(WATCH_S)
        beats = count(world, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        assert beats < (12 * WATCH_S if wanted_ms > 0 else WATCH_S)
        assert len(caplog.records) <= 3

    simulate(scenario)


def test_heartbeats_are_sent_within_the_session_when_the_coordinator_asks_for_rare_ones() -> None:
    def change(request: Any, response: Any) -> Any:
        response.heartbeat_interval_ms = 2**31 - 1
        return response

    async def scenario(world: World) -> None:
        fill(world, 1)
        diary = Diary()
        with world.cluster.alter(ApiKey.CONSUMER_GROUP_HEARTBEAT, change):
            async with member(world, diary, **SLOW_KIP848) as consumer:
                assert await consumer.get(timeout=10)
                await asyncio.sleep(300)
                assert diary.pages == [("assigned", [0])]

    simulate(scenario)


def test_a_member_slows_down_when_it_is_fenced_at_every_heartbeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_member(request: Any) -> bool:
        return bool(request.member_epoch > 0)

    async def scenario(world: World) -> None:
        with (
            caplog.at_level(logging.INFO, logger="aiokclient"),
            world.cluster.fail(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, FencedMemberEpochError, where=is_member
            ),
        ):
            await watch(world, member(world, **SLOW_KIP848))
        assert count(world, ApiKey.CONSUMER_GROUP_HEARTBEAT) < 5 * WATCH_S
        assert len(caplog.records) < MOST_LINES

    simulate(scenario)


def test_a_member_slows_down_when_its_assignment_changes_at_every_heartbeat() -> None:
    given = [True]

    def change(request: Any, response: Any) -> Any:
        if response.assignment is not None and response.assignment.topic_partitions:
            kept.append(response.assignment.topic_partitions)
        if kept:
            given[0] = not given[0]
            assignment = type(response.assignment) if response.assignment else kinds[0]
            kinds.append(assignment)
            response.assignment = assignment(topic_partitions=kept[0] if given[0] else [])
        elif response.assignment is not None:
            kinds.append(type(response.assignment))
        return response

    kept: list[Any] = []
    kinds: list[Any] = []

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.CONSUMER_GROUP_HEARTBEAT, change):
            async with member(world, **SLOW_KIP848):
                await asyncio.sleep(WATCH_S)
        assert kept
        assert count(world, ApiKey.CONSUMER_GROUP_HEARTBEAT) < 3 * WATCH_S

    simulate(scenario)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_lost_response_to_sync_group_costs_no_more_than_the_request_timeout(leads: bool) -> None:
    """The connection stays open, and the member's heartbeats are answered."""

    def lose(request: Any, response: Any) -> Any:
        return None

    async def scenario(world: World) -> None:
        fill(world, 5, 2)
        options = {"request_timeout_ms": 5000, "max_poll_interval_ms": 300_000}
        first, diary = Diary(), Diary()
        if leads:
            with world.cluster.alter(ApiKey.SYNC_GROUP, lose, times=1):
                async with member(world, diary, **options):
                    began = world.now
                    await diary.until(lambda: diary.owned)
                    assert world.now - began < 10
            return
        async with member(world, first, **options) as one:
            await first.until(lambda: first.owned)
            with world.cluster.alter(
                ApiKey.SYNC_GROUP, lose, times=1, where=lambda call: not call.assignments
            ):
                async with member(world, diary, name="other", **options), reading(one):
                    began = world.now
                    await diary.until(lambda: diary.owned)
                    assert world.now - began < 20

    simulate(scenario, topics={"t": 2})
