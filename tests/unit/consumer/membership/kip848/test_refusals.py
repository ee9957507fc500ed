"""Tests of refused requests and of patterns under KIP-848, on a simulated cluster."""

import re
from typing import Any

import pytest
from kip848_member import until_assigned
from kip848_world import ALL, HEARTBEAT, Group, run

from aiokclient.consumer.membership.kip848.states import Kip848State
from aiokclient.errors import (
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)


@pytest.mark.fault(44)
def test_two_static_members_with_one_instance_id() -> None:
    async def scenario(group: Group) -> None:
        async with group.member(group_instance_id="i") as first:
            await first.subscribe("t")
            await until_assigned([first], 4)
            async with group.member(group_instance_id="i") as second:
                await second.subscribe("t")
                await second.until(lambda: second.failure is not None)
                assert isinstance(second.failure, UnreleasedInstanceIdError)
            assert (first.has, first.failure) == (ALL, None)

    run(scenario)


@pytest.mark.fault(44)
def test_an_instance_id_that_another_has_taken_over() -> None:
    async def scenario(group: Group) -> None:
        async with group.member(group_instance_id="i") as member:
            await member.subscribe("t")
            await until_assigned([member], 4)
            with group.cluster.fail(HEARTBEAT, FencedInstanceIdError, times=1):
                await member.until(lambda: member.failure is not None)
            assert isinstance(member.failure, FencedInstanceIdError)
            assert member.epoch == -1

    run(scenario)


@pytest.mark.parametrize(
    ("options", "configs", "topic", "error"),
    [
        ({"group_remote_assignor": "mine"}, {}, "t", UnsupportedAssignorError),
        ({}, {"group.consumer.max.size": 1}, "t", GroupMaxSizeReachedError),
        ({}, {}, re.compile("(?=a)"), InvalidRegularExpressionError),
    ],
)
def test_what_only_a_person_can_mend_fails_the_member(
    options: Any, configs: Any, topic: Any, error: Any
) -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first:
            await first.subscribe("t")
            await until_assigned([first], 4)
            async with group.member(**options) as second:
                await second.subscribe(topic)
                await second.until(lambda: second.failure is not None)
                assert isinstance(second.failure, error)
                assert second.membership.member.state is Kip848State.FAILED

    run(scenario, configs=configs)


def test_who_fails_leaves_when_it_is_closed() -> None:
    """A member whose new subscription is refused is still in the group and has partitions."""

    async def scenario(group: Group) -> None:
        async with group.member() as first:
            await first.subscribe("t")
            async with group.member() as second:
                await second.subscribe("t")
                await until_assigned([first, second], 4)
                await second.subscribe(re.compile("(?=a)"))
                await second.until(lambda: second.failure is not None)
            await until_assigned([first], 4, timeout=10)

    run(scenario)


def test_a_broker_without_the_protocol_is_refused() -> None:
    async def scenario(group: Group) -> None:
        group.cluster.limit_versions({HEARTBEAT: None})
        async with group.member() as member:
            await member.subscribe("t")
            await member.until(lambda: member.failure is not None)
            assert isinstance(member.failure, UnsupportedVersionError)
            assert "group_protocol='classic'" in str(member.failure)

    run(scenario)


def test_a_member_joins_when_the_permission_is_granted_later() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            with group.cluster.fail(HEARTBEAT, GroupAuthorizationError, times=2):
                await member.subscribe("t")
                await until_assigned([member], 4)
            assert [type(each) for each in member.reports] == [GroupAuthorizationError] * 2

    run(scenario)


@pytest.mark.parametrize("old", [False, True], ids=["by the broker", "by the client"])
@pytest.mark.fault(43)
def test_a_topic_that_matches_the_pattern_appears_late(old: bool) -> None:
    async def scenario(group: Group) -> None:
        if old:
            group.cluster.limit_versions({HEARTBEAT: (0, 0)})
        group.cluster.create_topic("__consumer_offsets", 2)
        async with group.member(metadata_max_age_ms=1000) as member:
            await member.subscribe(re.compile("[a-z_]+"))
            await until_assigned([member], 4)
            group.cluster.create_topic("u", 2)
            group.cluster.create_topic("V", 2)
            await until_assigned([member], 6)
            assert member.has == [*ALL, ("u", 0), ("u", 1)]
            regexes = {each.subscribed_topic_regex for each in group.beats()}
            assert regexes == ({None} if old else {None, "[a-z_]+"})

    run(scenario)


def test_a_pattern_that_matches_nothing_yet() -> None:
    async def scenario(group: Group) -> None:
        group.cluster.limit_versions({HEARTBEAT: (0, 0)})
        async with group.member(metadata_max_age_ms=1000) as member:
            await member.subscribe(re.compile("u.*"))
            group.cluster.create_topic("u1", 2)
            await until_assigned([member], 2)
            await member.subscribe(re.compile("t  # all of it", re.VERBOSE))
            await until_assigned([member], 4)

    run(scenario)
