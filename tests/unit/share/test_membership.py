"""Tests of members of a share group on a simulated cluster, with Kafka's intervals."""

import asyncio
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from share_memberships import ALL, HEARTBEAT, ShareGroupMember, ShareGroupWorld, run

from aiokclient.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownServerError,
    UnsupportedVersionError,
)
from aiokclient.events import Assigned
from aiokclient.group.heartbeats import TopicIdPartition
from aiokclient.group.share_states import Kip932State
from aiokclient.protocol import ApiKey
from aiokclient.share.membership import ShareAssignment


async def until_assigned(*members: ShareGroupMember, count: int) -> None:
    """Wait until these members have `count` partitions, evenly divided."""
    each = count // len(members)
    for member in members:
        await member.until(lambda member=member: len(member.has) == each)  # type: ignore[misc]


def test_a_lone_member_has_all_partitions_a_second_after_the_start() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member(client_rack="r") as member:
            began = group.world.now
            assert member.membership.list_troubles() == [
                "no assignment: group g has assigned no partitions yet"
            ]
            await member.membership.wait_until_assigned(3.0)
            assert group.world.now - began < 1.2
            assert member.has == ALL
            assert member.membership.list_troubles() == []
            assert set(member.assignment.values()) == {group.cluster.topic_id("t")}
            assert dict(member.membership.assignment) == member.assignment
            joined, *rest = group.beats()
            assert (joined.member_id, joined.member_epoch) == (member.member_id, 0)
            assert (joined.rack_id, joined.subscribed_topic_names) == ("r", ["t"])
            assert {(each.rack_id, each.subscribed_topic_names) for each in rest} == {(None, None)}
            assert all(each.member_epoch > 0 for each in rest)
        last = group.beats()[-1]
        assert (last.member_id, last.member_epoch) == (member.member_id, -1)
        assert group.view.state == "Empty"
        assert member.failures == []

    run(scenario)


@pytest.mark.parametrize(("interval_ms", "between"), [(5000, (2, 3)), (500, (20, 25))])
def test_a_share_member_sends_heartbeats_at_the_interval_of_the_broker(
    interval_ms: int, between: tuple[int, int]
) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            since = group.world.now
            await asyncio.sleep(12.0)
            assert between[0] <= len(group.beats(since)) <= between[1]

    run(scenario, configs={"group.share.heartbeat.interval.ms": interval_ms})


def test_partitions_are_shared_while_members_come_and_go() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as first:
            await until_assigned(first, count=4)
            async with group.member() as second:
                await until_assigned(first, second, count=4)
                assert sorted(first.has + second.has) == ALL
                third = group.member()
                async with third:
                    await third.until(lambda: third.has)
                    await third.kill()
                await until_assigned(first, second, count=4)
            await until_assigned(first, count=4)

    run(scenario, configs={"group.share.session.timeout.ms": 10_000})


def test_more_members_than_partitions_all_have_one() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as first, group.member() as second, group.member() as third:
            for each in (first, second, third):
                await each.until(lambda each=each: each.has == [("t", 0)])  # type: ignore[misc]

    run(scenario, topics={"t": 1})


def test_a_topic_that_does_not_exist_is_assigned_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member("later") as member:
            began = group.world.now
            await member.membership.wait_until_assigned(3.0)
            assert group.world.now - began < 1.5, "a start does not wait for such a topic"
            await asyncio.sleep(20.0)
            assert member.membership.list_troubles() == ["no assignment: there is no topic later"]
            assert member.membership.find_refusal() is None
            assert member.membership.find_read_error() is None
            created = group.world.now
            group.cluster.create_topic("later", 2)
            await member.until(lambda: member.has == [("later", 0), ("later", 1)])
            assert group.world.now - created < 3.0
            assert member.membership.list_troubles() == []

    run(scenario)
    assert (
        caplog.text.count("The topic later does not exist. It is read as soon as it exists.") == 1
    )


def test_partitions_that_are_added_to_a_topic_are_assigned() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            group.cluster.add_partitions("t", 6)
            await until_assigned(member, count=6)
            assert member.history[0] == ALL

    run(scenario)


def test_a_topic_that_is_created_again_is_assigned_with_its_new_id() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            old = group.cluster.topic_id("t")
            group.cluster.delete_topic("t")
            await asyncio.sleep(1.0)
            group.cluster.create_topic("t", 2)
            new = group.cluster.topic_id("t")
            assert new != old
            await member.until(lambda: set(member.assignment.values()) == {new})
            assert member.has == [("t", 0), ("t", 1)]

    run(scenario)


def test_topic_ids_without_a_name_are_requested_until_it_is_known() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        member = group.member()
        member.wants_topics = False
        async with member:
            await asyncio.sleep(10.0)
            assert member.has == []
            assert not member.membership.assigned.is_set()
            since = group.world.now
            await asyncio.sleep(10.0)
            requests = len(group.world.requests(ApiKey.METADATA, since))
            assert 1 <= requests <= 30
            member.wants_topics = True
            member.want_topics()
            await until_assigned(member, count=4)

    run(scenario)


class Metadata(NamedTuple):
    """The names of topics in the metadata of a cluster."""

    version: int
    names: dict[UUID, str]


def test_a_topic_that_was_deleted_keeps_its_name_until_it_is_no_longer_assigned() -> None:
    one, other = UUID(int=1), UUID(int=2)
    cluster = SimpleNamespace(metadata=Metadata(1, {one: "t"}))
    assignment = ShareAssignment(cast(Any, cluster))
    topics = frozenset({"t", "u"})
    assert assignment.set_target(frozenset({TopicIdPartition(one, 0), TopicIdPartition(other, 3)}))
    assert assignment.name_partitions(topics)
    assert (dict(assignment.partitions), assignment.has_unknown) == ({("t", 0): one}, True)
    cluster.metadata = Metadata(2, {other: "u"})
    assert assignment.name_partitions(topics)
    assert (dict(assignment.partitions), assignment.has_unknown) == (
        {("t", 0): one, ("u", 3): other},
        False,
    )
    assert not assignment.name_partitions(topics)
    assert assignment.set_target(frozenset({TopicIdPartition(other, 3)}))
    assert assignment.name_partitions(topics)
    assert dict(assignment.partitions) == {("u", 3): other}


FENCES = [UnknownMemberIdError, FencedMemberEpochError, GroupIdNotFoundError, UnknownServerError]


@pytest.mark.parametrize("error", FENCES)
def test_a_fenced_member_joins_again_with_its_id_and_keeps_its_partitions(error: Any) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            since = group.world.now
            with group.cluster.fail(HEARTBEAT, error, times=1):
                await asyncio.sleep(6.0)
            _, again, *_ = group.beats(since)
            assert (again.member_id, again.member_epoch) == (member.member_id, 0)
            assert again.subscribed_topic_names == ["t"]
            assert member.history == [ALL]
            assert member.membership.member.state is Kip932State.STABLE

    run(scenario)


def test_a_member_whose_session_has_ended_joins_again() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            fault = group.cluster.drop(HEARTBEAT)
            await asyncio.sleep(20.0)
            assert group.view.members == {}
            assert member.has == ALL, "records that it holds stay locked, and can be fetched"
            fault.remove()
            await member.until(lambda: list(group.view.members) == [member.member_id])
            await until_assigned(member, count=4)

    run(scenario, configs={"group.share.session.timeout.ms": 10_000})


def test_a_full_group_is_joined_when_a_member_leaves() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as second, group.member() as first:
            await first.until(lambda: first.has)
            waiting = group.member()
            async with waiting:
                began = group.world.now
                await waiting.membership.wait_until_assigned(3.0)
                assert group.world.now - began == pytest.approx(3.0)
                assert waiting.membership.find_refusal() is None
                (trouble,) = waiting.membership.list_troubles()
                assert trouble.startswith("group is full: g has group.share.max.size members")
                since = group.world.now
                await asyncio.sleep(20.0)
                own = [m for m in group.beats(since) if m.member_id == waiting.member_id]
                assert 15 <= len(own) <= 40, "it tries again with backoff"
                await first.membership.leave(5.0)
                await waiting.until(lambda: waiting.has)
                assert waiting.membership.list_troubles() == []
            assert second.failures == waiting.failures == []
        sent = group.beats()
        assert sum(each.member_epoch == -1 for each in sent) == 3

    run(scenario, configs={"group.share.max.size": 2})


def test_a_consumer_that_never_got_into_a_full_group_does_not_leave_it() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        with group.cluster.fail(HEARTBEAT, GroupMaxSizeReachedError):
            async with group.member() as member:
                await member.until(lambda: member.membership.member.state is Kip932State.FULL)
        assert {each.member_epoch for each in group.beats()} == {0}

    run(scenario)


@pytest.mark.parametrize("error", [GroupAuthorizationError, InvalidRequestError])
def test_a_refusal_ends_a_start_and_fails_the_consumer(error: Any) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        with group.cluster.fail(HEARTBEAT, error):
            async with group.member() as member:
                began = group.world.now
                await member.membership.wait_until_assigned(3.0)
                assert group.world.now - began < 1.0
                (failure,) = member.failures
                assert isinstance(failure, error)
                assert member.membership.find_refusal() is failure
                assert member.membership.find_read_error() is failure
                (trouble,) = member.membership.list_troubles()
                assert trouble.startswith("the group refuses this consumer: ")
                await asyncio.sleep(10.0)
                assert len(group.beats()) == 1
        assert len(group.beats()) == 1, "what has not joined does not leave"

    run(scenario)


def test_a_member_that_is_refused_later_leaves() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            with group.cluster.fail(HEARTBEAT, GroupAuthorizationError, times=1):
                await member.until(lambda: member.failures)
            await member.until(lambda: group.view.members == {})

    run(scenario)


@pytest.mark.parametrize("when", ["off at the start", "switched off", "older brokers"])
def test_share_groups_that_are_not_available_name_the_feature(when: str) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        if when == "older brokers":
            group.cluster.limit_versions({HEARTBEAT: None})
        async with group.member() as member:
            if when == "switched off":
                await until_assigned(member, count=4)
                group.cluster.fail(HEARTBEAT, UnsupportedVersionError)
            await member.until(lambda: member.failures)
            (failure,) = member.failures
            assert isinstance(failure, UnsupportedVersionError)
            assert "Kafka 4.1 or later" in str(failure)
            assert "share.version" in str(failure)
            group.cluster.reset()

    run(scenario, share_version=0 if when == "off at the start" else 2)


def test_a_group_of_another_type_refuses_a_share_consumer() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.world.consumer("t", group_id="g") as consumer:
            await consumer.poll(timeout=0.0)
            async with group.member() as member:
                await member.membership.wait_until_assigned(3.0)
                refusal = member.membership.find_refusal()
                assert isinstance(refusal, GroupIdNotFoundError)
                assert "is not a share group" in str(refusal)

    run(scenario)


def test_topics_that_are_refused_at_the_join_are_tried_again() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        with group.cluster.fail(HEARTBEAT, TopicAuthorizationError):
            async with group.member() as member:
                began = group.world.now
                await member.membership.wait_until_assigned(3.0)
                assert group.world.now - began < 1.0
                assert member.membership.find_refusal() is None
                assert isinstance(member.membership.find_read_error(), TopicAuthorizationError)
                (trouble,) = member.membership.list_troubles()
                assert trouble.startswith("the group refuses this consumer: TOPIC_AUTH")
                await asyncio.sleep(10.0)
                assert 8 <= len(group.beats()) <= 25
                assert {each.member_epoch for each in group.beats()} == {0}
                group.cluster.reset()
                await until_assigned(member, count=4)
                assert member.membership.find_read_error() is None

    run(scenario)


def test_a_member_whose_new_topics_are_refused_stays_in_the_group() -> None:
    def names_topics(request: Any) -> bool:
        return request.subscribed_topic_names is not None

    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            fault = group.cluster.fail(HEARTBEAT, TopicAuthorizationError, where=names_topics)
            member.subscribe("t", "u")
            await member.until(member.membership.find_read_error)
            since = group.world.now
            await asyncio.sleep(20.0)
            assert member.has == ALL
            assert list(group.view.members) == [member.member_id]
            sent = [each.subscribed_topic_names for each in group.beats(since)]
            assert 10 <= sent.count(["t", "u"]) <= 25
            assert 10 <= sent.count(None) <= 25
            assert isinstance(member.membership.find_read_error(), TopicAuthorizationError)
            fault.remove()
            await member.until(lambda: len(member.has) == 6)
            assert member.membership.find_read_error() is None
            assert member.failures == []

    run(scenario, topics={"t": 4, "u": 2}, configs={"group.share.session.timeout.ms": 10_000})


def test_other_topics_end_the_error_of_those_that_are_refused() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            with group.cluster.fail(HEARTBEAT, TopicAuthorizationError, times=1):
                member.subscribe("t", "u")
                await member.until(member.membership.find_read_error)
            member.subscribe("u")
            assert member.membership.find_read_error() is None
            await member.until(lambda: member.has == [("u", 0), ("u", 1)])

    run(scenario, topics={"t": 4, "u": 2})


TROUBLES = [
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
    None,
]


@pytest.mark.parametrize("error", TROUBLES)
def test_a_member_keeps_its_partitions_while_the_coordinator_is_in_trouble(error: Any) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            fault = (
                group.cluster.drop(HEARTBEAT, when="after")
                if error is None
                else group.cluster.fail(HEARTBEAT, error)
            )
            await asyncio.sleep(10.0)
            since = group.world.now
            fault.remove()
            await asyncio.sleep(10.0)
            first, *rest = group.beats(since)
            assert first.subscribed_topic_names == ["t"], "what was received is unknown"
            assert {each.subscribed_topic_names is None for each in rest} == {True}
            assert member.history == [ALL]
            assert all(each.member_epoch > 0 for each in group.beats(since))

    run(scenario)


def test_a_coordinator_that_moves_is_found_again() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            old = group.cluster.coordinator("g")
            new = group.cluster.move_coordinator("g")
            assert new != old
            since = group.world.now
            await asyncio.sleep(12.0)
            answered = [
                each for each in group.world.requests(HEARTBEAT, since) if each.broker == new
            ]
            assert answered
            assert member.history == [ALL]

    run(scenario, brokers=2)


def test_a_consumer_without_topics_leaves_and_joins_again() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            member.subscribe()
            assert member.has == []
            await member.until(lambda: group.view.members == {})
            assert member.membership.list_troubles() == []
            since = group.world.now
            await asyncio.sleep(20.0)
            assert group.beats(since) == []
            member.subscribe("t")
            await until_assigned(member, count=4)
            assert next(each.member_epoch for each in group.beats(since)) == 0
            assert len({each.member_id for each in group.beats()}) == 1

    run(scenario)


def test_a_member_that_subscribes_again_at_once_leaves_before_it_joins() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            since = group.world.now
            member.subscribe()
            member.subscribe("t")
            assert member.has == []
            await until_assigned(member, count=4)
            assert [each.member_epoch for each in group.beats(since)][:2] == [-1, 0]

    run(scenario)


def test_a_consumer_that_starts_without_topics_sends_nothing() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        member = group.member()
        member.topics = frozenset()
        async with member:
            began = group.world.now
            await member.membership.wait_until_assigned(3.0)
            assert group.world.now - began < 0.1
            await asyncio.sleep(10.0)
        assert group.beats() == []

    run(scenario)


def test_other_topics_are_assigned_early_and_former_ones_end_at_once() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(10.0)
            changed = group.world.now
            member.subscribe("u")
            assert member.has == []
            await member.until(lambda: member.has == [("u", 0), ("u", 1)])
            assert group.world.now - changed < 2.0
            member.subscribe("t", "u")
            assert member.has == [("u", 0), ("u", 1)]
            await member.until(lambda: len(member.has) == 6)

    run(scenario, topics={"t": 4, "u": 2})


def test_an_answer_to_a_membership_that_has_ended_is_ignored() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(5.0)
            with group.cluster.delay(HEARTBEAT, 3.0, times=1):
                member.subscribe("t", "u")
                await asyncio.sleep(1.0)
                member.subscribe()
                await asyncio.sleep(6.0)
            assert member.membership.member.state is Kip932State.OUT
            assert (member.has, member.membership.member.epoch) == ([], 0)

    run(scenario, topics={"t": 4, "u": 2})


def test_leaving_takes_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            with group.cluster.delay(HEARTBEAT, 60.0):
                began = group.world.now
                await member.membership.leave(2.0)
                assert group.world.now - began == pytest.approx(2.0)
                await member.membership.leave(2.0)
                assert group.world.now - began == pytest.approx(2.0), "it leaves once"

    caplog.set_level("INFO")
    run(scenario)
    assert "Could not leave the group within 2.0 s" in caplog.text


def test_a_cancelled_leave_raises_the_cancellation() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            with group.cluster.delay(HEARTBEAT, 60.0):
                task = asyncio.create_task(member.membership.leave(10.0))
                await asyncio.sleep(1.0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    run(scenario)


def test_a_join_whose_answer_was_lost_is_followed_by_a_leave() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        fault = group.cluster.drop(HEARTBEAT, when="after")
        async with group.member() as member:
            await member.until(lambda: "g" in group.cluster.groups)
            assert list(group.view.members) == [member.member_id]
            fault.remove()
        assert group.view.members == {}
        assert [each.member_epoch for each in group.beats()] == [0, -1]

    run(scenario)


def test_events_tell_which_partitions_were_added_and_removed() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            reader = member.events.open_reader()
            await until_assigned(member, count=4)
            member.subscribe("u")
            await member.until(lambda: member.has == [("u", 0)])
            member.cluster.events.end_readers()
            changes = [each async for each in reader if isinstance(each, Assigned)]
            moved = [(sorted(each.added), sorted(each.removed)) for each in changes]
            assert moved == [(ALL, []), ([], ALL), ([("u", 0)], [])]

    run(scenario, topics={"t": 4, "u": 1})


def test_metrics_count_heartbeats_and_assignments() -> None:
    async def scenario(group: ShareGroupWorld) -> None:
        async with group.member() as member:
            await until_assigned(member, count=4)
            await asyncio.sleep(20.0)
            sample = member.meters.own_metrics.take_sample(again=None)
            (heartbeats,) = sample.read_key("heartbeats").values()
            assert heartbeats.number == len(group.beats())
            assert heartbeats.largest < 1.0
            (rebalances,) = sample.read_key("rebalances").values()
            assert rebalances.number == 1
            (age,) = sample.read_key("heartbeat.age").values()
            assert 0 <= age.total <= 5

    run(scenario)
