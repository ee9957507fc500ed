"""The requests of a member of a group, its connections, and its state."""

import asyncio
from typing import Any

import pytest
from sharing import Life, Sharing, living, together
from world import World, simulate

from aiokclient import GroupMember, State
from aiokclient.group.states import MemberState
from aiokclient.protocol import ApiKey

GROUP = "g"


def life(world: World, says: str, *protocols: Sharing, **options: Any) -> Life:
    offered = protocols or (Sharing(says),)
    options = {"session_timeout_ms": 10_000, **options}
    member = GroupMember(GROUP, protocol_type="test", protocols=offered, **world.options(**options))
    return Life(member, *offered)


def requests(world: World, api: ApiKey, since: float = 0.0) -> list[Any]:
    return [request.message for request in world.requests(api, since)]


@pytest.mark.parametrize("resync", [True, False])
def test_the_leader_assigns_again_when_topic_metadata_changes(resync: bool) -> None:
    """The leader assigns again when the inputs of its assignment have changed.

    If the coordinator supports this, the generation id stays the same. In any case, all members
    lose their former assignments before they get the new ones.
    """

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            leader = next(each for each in lives if each.now is not None and each.now.is_leader)
            for each in lives:
                each.protocols[0].how = lambda members: dict.fromkeys(members, b"anew")
            started, entered = world.now, [len(each.log) for each in lives]
            engine = leader.member._engine
            assert engine is not None
            engine.request_reassignment("a topic has more partitions")
            await asyncio.gather(
                *(each.until(lambda life: life.assignment == b"anew") for each in lives)
            )
            after = before if resync else before + 1
            assert [each.generation for each in lives] == [after] * 3
            assert len(requests(world, ApiKey.JOIN_GROUP, started)) == (0 if resync else 3)
            assert len(requests(world, ApiKey.SYNC_GROUP, started)) == 3
            assert [len(each.log) - n for each, n in zip(lives, entered, strict=True)] == [1] * 3

    simulate(scenario, brokers=3, resync=resync)


def test_a_resync_and_a_new_member_lead_to_one_generation() -> None:
    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            leader = next(each for each in lives if each.now is not None and each.now.is_leader)
            newcomer = life(world, "d")
            async with living(newcomer):
                assert leader.member._engine is not None
                leader.member._engine.request_reassignment("a topic has more partitions")
                await together(*lives, newcomer, after=before)
            await together(*lives, after=before)
            assert all(not each.errors for each in lives)

    simulate(scenario, brokers=3, resync=True)


@pytest.mark.parametrize(
    ("api", "limits"),
    [
        (ApiKey.JOIN_GROUP, range(10)),
        (ApiKey.SYNC_GROUP, range(6)),
        (ApiKey.HEARTBEAT, range(5)),
        (ApiKey.LEAVE_GROUP, range(6)),
    ],
    ids=lambda value: getattr(value, "api_name", None),
)
def test_members_work_with_every_protocol_version(api: ApiKey, limits: range) -> None:
    """Members join and leave with each version of an API that can be the brokers' highest."""
    for version in limits:

        async def scenario(world: World, version: int = version) -> None:
            world.cluster.limit_versions({api: (0, version)})
            lives = [life(world, name) for name in "ab"]
            async with living(*lives):
                await together(*lives)
            assert {r.version for r in world.requests(api)} == {version}
            await asyncio.sleep(0.1)
            assert world.cluster.groups[GROUP].members == {}

        simulate(scenario, brokers=2, seed=version)


def test_joins_and_leaves_carry_a_reason() -> None:
    """Requests contain a reason (KIP-800). It is truncated to the length that brokers accept."""

    async def scenario(world: World) -> None:
        one = life(world, "a")
        async with living(one):
            before = await together(one)
            one.member.rejoin("x" * 1_000)
            await together(one, after=before)
        joins = [request.reason for request in requests(world, ApiKey.JOIN_GROUP)]
        assert joins[0] == "the member starts"
        assert joins[-1] == "x" * 255
        (leave,) = requests(world, ApiKey.LEAVE_GROUP)
        assert [member.reason for member in leave.members] == ["the member is closed"]

    simulate(scenario)


def test_a_static_member_sends_no_leave_group() -> None:
    async def scenario(world: World) -> None:
        one = life(world, "a", group_instance_id="i")
        async with living(one):
            await together(one)
        assert requests(world, ApiKey.LEAVE_GROUP) == []
        assert len(world.cluster.groups[GROUP].members) == 1
        await asyncio.sleep(11)
        assert world.cluster.groups[GROUP].members == {}

    simulate(scenario)


def test_joining_uses_a_connection_that_is_closed_afterwards() -> None:
    async def scenario(world: World) -> None:
        one = life(world, "a", heartbeat_interval_ms=100)
        async with living(one):
            await together(one)
            await asyncio.sleep(1)
            # One connection is for heartbeats, and one for everything else.
            assert world.cluster.connections() == 2
            made = world.network.connections_made
            one.member.rejoin("")
            await asyncio.sleep(1)
            assert world.network.connections_made == made + 1
            assert world.cluster.connections() == 2

    simulate(scenario)


def test_heartbeats_continue_while_a_join_waits() -> None:
    """A body delays the rebalance for ten seconds.

    The joining member waits, and both stay members.
    """

    async def scenario(world: World) -> None:
        slow, quick = life(world, "slow"), life(world, "quick")
        async with living(slow, quick):
            before = await together(slow, quick)
            leaving = asyncio.Event()
            enter = slow.enter

            async def slowly(generation: Any) -> None:
                try:
                    await enter(generation)
                finally:
                    await leaving.wait()

            slow.enter = slowly  # type: ignore[method-assign]
            quick.member.rejoin("a rebalance")
            await quick.until(lambda life: life.now is None)
            started = world.now
            await asyncio.sleep(30)
            leaving.set()
            await together(slow, quick, after=before)
            beats = requests(world, ApiKey.HEARTBEAT, started)
            assert len(beats) >= 2 * 9
            for each in (slow, quick):
                assert each.errors == []

    simulate(scenario)


def test_state_and_health_follow_the_membership() -> None:
    async def scenario(world: World) -> None:
        one = life(world, "a")
        async with living(one):
            await together(one)
            engine = one.member._engine
            assert engine is not None
            assert engine.state is MemberState.STABLE
            assert engine.heartbeats.is_confirmed
            assert world.now - engine.heartbeats.last_answer_at < 10
            world.network.part({"client"}, {world.address(b) for b in world.cluster.brokers})
            await one.until(lambda life: life.now is None)
            assert not engine.heartbeats.is_confirmed
            assert one.member.state is State.DEGRADED
            assert any("does not answer" in reason for reason in one.member.health().reasons)
            world.network.heal()
            await together(one)
            assert one.member.state is State.RUNNING

    simulate(scenario)
