"""Tests of members under KIP-848 on a simulated cluster.

They join, reconcile, leave, and join again.
"""

import asyncio
import math
from typing import Any

import pytest
from kip848_member import Member, change, until, until_assigned
from kip848_world import ALL, HEARTBEAT, Group, run
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.consumer.membership.kip848.states import Kip848State
from aiokclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    NotCoordinatorError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownServerError,
)
from aiokclient.protocol import ApiKey


async def subscribe_both(first: Member, second: Member) -> None:
    """Subscribe two members to the topic, and wait until each has half of its partitions."""
    for each in (first, second):
        await each.subscribe("t")
    await until_assigned([first, second], 4)


def test_a_lone_member_owns_and_acknowledges_all_partitions() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            assert member.epoch == -1
            await member.subscribe("t")
            await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
            assert member.has == ALL
            assert member.membership.is_settled
            joined, told = group.beats()[:2]
            assert (joined.member_epoch, joined.topic_partitions) == (0, [])
            assert (told.member_epoch, told.subscribed_topic_names) == (member.epoch, None)
            assert told.topic_partitions[0].partitions == [0, 1, 2, 3]
            assert member.membership.metadata.member_id == joined.member_id
        assert group.beats()[-1].member_epoch == -1
        assert member.epoch == -1
        assert group.view.state == "Empty"

    run(scenario)


def test_partitions_have_one_owner_while_members_come_and_go() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            async with group.member() as third:
                await third.subscribe("t")
                await until_assigned([first, second, third], 4)
            await until_assigned([first, second], 4)
            assert "lose" not in [how for how, _ in first.reading.log + second.reading.log]

    run(scenario)


def test_heartbeats_are_sent_at_the_interval_of_the_broker() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t")
            await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
            since = group.world.now
            await asyncio.sleep(10.0)
            beats = group.beats(since)
            assert 9 <= len(beats) <= 11
            assert {len(each.topic_partitions or []) for each in beats} == {0}
            until = member.membership.confirmed_until
            assert 28.0 < until - group.world.now <= 30.0

    configs = {
        "group.consumer.heartbeat.interval.ms": 1000,
        "group.consumer.session.timeout.ms": 30_000,
    }
    run(scenario, configs=configs)


def test_the_session_of_a_group_whose_configs_may_not_be_read() -> None:
    """If the group's configs cannot be read, the member uses the consumer's session timeout."""

    async def scenario(group: Group) -> None:
        with group.cluster.fail(ApiKey.DESCRIBE_CONFIGS, GroupAuthorizationError):
            async with group.member() as member:
                await member.subscribe("t")
                await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
                left = member.membership.confirmed_until - group.world.now
                assert 44.0 < left <= 45.0
                assert member.reports == []

    run(scenario, configs={"group.consumer.session.timeout.ms": 10_000})


@pytest.mark.parametrize(("times", "session_s"), [(4, 10.0), (None, 45.0)])
def test_membership_is_unconfirmed_until_the_session_timeout_is_known(
    times: int | None, session_s: float
) -> None:
    """Until the group's configuration is known, the member cannot rely on a session timeout.

    The member does not ask forever if the broker does not return the configuration.
    """

    async def scenario(group: Group) -> None:
        with group.cluster.fail(ApiKey.DESCRIBE_CONFIGS, RequestTimedOutError, times=times):
            async with group.member() as member:
                await member.subscribe("t")
                await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
                assert member.membership.confirmed_until == -math.inf
                await member.until(lambda: member.membership.confirmed_until > -math.inf)
                assert group.world.now < 7.0
                left = member.membership.confirmed_until - group.world.now
                assert session_s - 6.0 < left <= session_s

    run(scenario, configs={"group.consumer.session.timeout.ms": 10_000})


def test_a_member_learns_a_changed_session_timeout() -> None:
    """A member learns a new session timeout within `metadata_max_age_ms`.

    A member that joins again learns the timeout sooner.
    """

    async def scenario(group: Group) -> None:
        async with group.member(metadata_max_age_ms=60_000) as member:

            def session_s() -> float:
                left = member.membership.confirmed_until - group.world.now
                return left if left == -math.inf else round(left)

            await member.subscribe("t")
            await member.until(lambda: session_s() == 45)
            await change(member.cluster, "g", {"session_timeout_ms": 20_000})
            await member.until(lambda: session_s() == 20, timeout=61.0)
            await change(member.cluster, "g", {"session_timeout_ms": 30_000})
            with group.cluster.fail(HEARTBEAT, UnknownMemberIdError, times=1):
                await member.until(lambda: session_s() == 30, timeout=10.0)

    run(scenario, configs={"group.consumer.heartbeat.interval.ms": 200})


@pytest.mark.fault(43)
def test_nobody_gets_what_another_has_not_given_up() -> None:
    """While the program processes a record, heartbeats continue and the other member waits."""

    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await first.subscribe("t")
            await until_assigned([first], 4)
            first.reading.hold.clear()
            asked = group.world.now
            await second.subscribe("t")
            await first.reading.revoking.wait()
            (deadline,) = first.reading.deadlines
            assert 0 <= deadline - asked - first.config.max_poll_interval_ms / 1000 < 2
            await asyncio.sleep(60.0)
            assert (len(first.has), second.has) == (4, [])
            assert first.membership.confirmed_until > group.world.now
            first.reading.hold.set()
            await until_assigned([first, second], 4)

    run(scenario)


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError])
@pytest.mark.fault(43)
def test_a_fenced_member_loses_all_and_joins_anew(error: Any) -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t")
            await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
            with group.cluster.fail(HEARTBEAT, error, times=1):
                await member.until(lambda: len(member.reading.log) == 3)
            assert [how for how, _ in member.reading.log] == ["assign", "lose", "assign"]
            assert member.has == ALL
            assert member.failure is None

    run(scenario)


@pytest.mark.fault(43)
def test_a_member_whose_session_ended_meanwhile() -> None:
    """A member that was disconnected for longer than its session joins again as a new member.

    The rest of the group continues without it.
    """

    async def scenario(group: Group) -> None:
        network = group.world.network
        async with group.member(connector=network.connector("far")) as far, group.member() as near:
            await subscribe_both(far, near)
            network.part(["far"], [group.world.address(1)])
            await until_assigned([near], 4)
            assert far.membership.confirmed_until <= group.world.now
            assert len(far.has) == 2
            network.heal()
            await until_assigned([far, near], 4)
            assert "lose" in [how for how, _ in far.reading.log]

    run(scenario, configs={"group.consumer.session.timeout.ms": 6000})


@pytest.mark.parametrize(
    "error",
    [
        NotCoordinatorError,
        CoordinatorNotAvailableError,
        CoordinatorLoadInProgressError,
    ],
)
def test_a_coordinator_that_is_not_ready_changes_nothing(error: Any) -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            with group.cluster.fail(HEARTBEAT, error, times=3):
                await member.subscribe("t")
                await until_assigned([member], 4)
            await member.until(lambda: member.membership.member.state is Kip848State.STABLE)
            epoch = member.epoch
            with group.cluster.fail(HEARTBEAT, error, times=3) as fault:
                await member.until(lambda: fault.hits == 3)
                since = group.world.now
                await member.until(lambda: group.beats(since))
            assert group.beats(since)[0].subscribed_topic_names == ["t"]
            assert (member.epoch, member.has, len(member.reading.log)) == (epoch, ALL, 1)

    run(scenario, brokers=3)


def test_what_nobody_understands_means_to_join_anew() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t")
            await until_assigned([member], 4)
            with group.cluster.fail(HEARTBEAT, UnknownServerError, times=4):
                await member.until(lambda: len(member.reading.log) == 3)
            assert member.has == ALL

    run(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_recovers_from_lost_requests_and_responses(when: str) -> None:
    """After a lost request or response, the member sends its full state and is still accepted.

    The coordinator may have increased the member's epoch, and the member does not know it yet.
    """

    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            with group.cluster.drop(HEARTBEAT, when=when, times=1):
                await first.subscribe("t")
                await until_assigned([first], 4)
            for _ in range(5):
                with group.cluster.drop(HEARTBEAT, when=when, times=1) as fault:
                    await second.subscribe("t")
                    await until(lambda fault=fault: fault.hits == 1, [first, second])
                await until_assigned([first, second], 4)
                await second.subscribe()
                await until_assigned([first], 4)
            assert "lose" not in [how for how, _ in first.reading.log + second.reading.log]

    run(scenario)


@pytest.mark.fault(5)
def test_a_member_survives_a_moved_and_a_dead_coordinator() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            group.cluster.move_coordinator("g")
            async with group.member() as third:
                await third.subscribe("t")
                await until_assigned([first, second, third], 4)
                node = group.cluster.coordinator("g")
                group.cluster.stop(node)
            await until_assigned([first, second], 4)
            group.cluster.start(node)
            assert "lose" not in [how for how, _ in first.reading.log + second.reading.log]

    run(scenario, brokers=3)


@pytest.mark.fault(6)
def test_a_coordinator_that_has_forgotten_the_group() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            group.cluster.move_coordinator("g")
            await until(lambda: first.reading.log[-1] > ("lose", []), [first])
            await until_assigned([first, second], 4)
            # What a member gets now, another one may own until its heartbeat is answered.
            group.checked = False

    run(scenario, brokers=2, persist_groups=False)


def test_a_member_follows_changes_of_its_subscription() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t")
            await until_assigned([member], 4)
            await member.subscribe("t", "u")
            await until_assigned([member], 6)
            await member.subscribe("u")
            await until_assigned([member], 2)
            assert member.reading.log[-1][0] == "revoke"
            await member.subscribe()
            await member.until(lambda: group.view.state == "Empty")
            assert (member.has, member.epoch) == ([], -1)
            await member.subscribe("t")
            await until_assigned([member], 4)

    run(scenario, topics={"t": 4, "u": 2})


def test_a_member_that_still_processes_records_stays_a_member() -> None:
    """A member that must leave keeps its partitions until it has processed its current records.

    This holds even if the processing takes longer than the session timeout.
    """

    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            first.reading.hold.clear()
            await first.subscribe()
            await first.reading.revoking.wait()
            await asyncio.sleep(30.0)
            assert first.membership.member.state is Kip848State.LEAVING
            assert first.membership.confirmed_until > group.world.now
            assert len(second.has) == 2
            first.reading.hold.set()
            await until(lambda: (first.has, second.has) == ([], ALL), [first, second])
            assert first.epoch == -1
            await first.subscribe("t")
            await until_assigned([first, second], 4)

    run(scenario, configs={"group.consumer.session.timeout.ms": 6000})


def test_a_member_is_fenced_while_it_waits_to_leave() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first:
            await first.subscribe("t")
            await until_assigned([first], 4)
            first.reading.hold.clear()
            await first.subscribe()
            await first.reading.revoking.wait()
            with group.cluster.fail(HEARTBEAT, FencedMemberEpochError, times=1):
                await first.until(lambda: first.epoch == -1)
            assert first.membership.member.state is Kip848State.OUT
            await first.subscribe("t")
            assert first.membership.member.state is Kip848State.JOINING
            first.reading.hold.set()
            await first.until(lambda: first.reading.log[-1][0] == "assign" and first.has == ALL)

    run(scenario)


def test_a_member_leaves_when_the_program_does_not_come_back() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            first.membership.on_poll_overdue("a handler takes too long")
            await until(lambda: (first.has, second.has) == ([], ALL), [first, second])
            assert first.reading.log[-1][0] == "lose"
            assert first.epoch == -1
            first.membership.on_records_requested()
            await until_assigned([first, second], 4)

    run(scenario)


def test_who_is_closed_while_it_says_farewell_has_said_it() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as first, group.member() as second:
            await subscribe_both(first, second)
            with group.cluster.drop(HEARTBEAT, times=1, where=lambda m: m.member_epoch == -1):
                first.membership.on_poll_overdue("a handler takes too long")
                await first.until(lambda: any(m.member_epoch == -1 for m in group.beats()))
            await first.close()
            await until_assigned([second], 4, timeout=10)

    run(scenario)


def test_a_static_member_comes_back_to_what_it_had() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as other:
            await other.subscribe("t")
            async with group.member(group_instance_id="i") as member:
                await member.subscribe("t")
                await until_assigned([other, member], 4)
                # A member that revoked partitions learns the new epoch a moment later.
                await other.until(lambda: other.epoch == group.view.generation)
                had, epoch = member.has, other.epoch
            assert group.beats()[-1].member_epoch == -2
            await asyncio.sleep(5.0)
            async with group.member(group_instance_id="i") as member:
                await member.subscribe("t")
                await member.until(lambda: member.has == had)
            assert other.epoch == epoch

    run(scenario)


def test_partitions_are_added_and_topics_go_and_come_again() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t", "u")
            await until_assigned([member], 6)
            group.cluster.add_partitions("u", 5)
            await until_assigned([member], 9)
            group.cluster.delete_topic("u")
            await until_assigned([member], 4)
            group.cluster.create_topic("u", 2)
            await until_assigned([member], 6)
            group.cluster.delete_topic("t")
            group.cluster.create_topic("t", 4)
            count = len(member.reading.log)
            await member.until(lambda: len(member.reading.log) == count + 2)
            tps = [TopicPartition(*each) for each in ALL]
            assert member.reading.log[-2:] == [("revoke", tps), ("assign", tps)]

    run(scenario, topics={"t": 4, "u": 2})


def test_leaving_twice_and_without_a_coordinator() -> None:
    async def scenario(group: Group) -> None:
        async with group.member() as member:
            await member.subscribe("t")
            await until_assigned([member], 4)
            group.cluster.stop(1)
            began = group.world.now
            await member.reading.revoke_partitions(list(member.reading.has), deadline=0.0)
            await member.membership.leave(2.0)
            assert group.world.now - began < 3.0
            await member.membership.leave(2.0)
            assert group.world.now - began < 3.0
            group.cluster.start(1)
            group.checked = False  # The member has left.

    run(scenario)


def test_the_ledger_notices_a_member_that_keeps_what_was_revoked() -> None:
    """The ledger finds a member that acknowledges a revocation and keeps on reading."""

    async def scenario(world: World) -> None:
        group = Group(world)
        group.checked = False
        async with group.member() as first, group.member() as second:
            await first.subscribe("t")
            await until_assigned([first], 4)

            async def pretend(tps: Any, *, deadline: float) -> None:
                pass

            first.reading.revoke_partitions = pretend  # type: ignore[method-assign]
            await second.subscribe("t")
            await second.until(lambda: len(second.has) == 2)
            assert len(group.owners.breaches) == 2
            assert "m2 takes" in group.owners.breaches[0]
            del first.reading.revoke_partitions

    simulate(scenario, topics={"t": 4})
