"""Tests of a group's timers, in virtual time: exact to the millisecond."""

import asyncio

import pytest
from virtual_group import Member, in_virtual_time


@pytest.mark.parametrize(
    ("joins", "rebalance_ms", "begins"),
    [
        ([0], 60_000, 3),
        # Each member that joins meanwhile adds 3 s, up to the rebalance timeout.
        ([0, 1], 60_000, 6),
        ([0, 1, 4], 60_000, 9),
        ([0, 1, 4], 7_000, 7),
        ([0, 1], 2_000, 3),
    ],
)
def test_the_first_rebalance_waits_for_more_members(joins, rebalance_ms, begins):
    async def scenario(world):
        members = [await world.make(rebalance_timeout_ms=rebalance_ms) for _ in joins]

        async def join(member, at):
            await asyncio.sleep(at)
            return await member.join(), world.now

        answers = await asyncio.gather(*map(join, members, joins))
        assert {each.generation for each in members} == {1}
        return answers

    assert in_virtual_time(scenario, 3000) == [(0, begins)] * len(joins)


@pytest.mark.parametrize("sign", [Member.beat, Member.commit])
def test_requests_of_a_member_restart_its_session(sign):
    async def scenario(world):
        (member,) = await world.settled(await world.make())
        for _ in range(5):
            await asyncio.sleep(9.8)
            assert await sign(member) == 0
        silent = world.now
        return round(await world.until_state("Empty") - silent, 1), await member.beat()

    assert in_virtual_time(scenario) == (10.0, 25)


def test_an_unused_member_id_expires_after_a_session_timeout():
    async def scenario(world):
        member, lost = await world.make(rebalance_timeout_ms=60_000), await world.make()
        await member.join()
        world.cluster.rebalance("g")
        assert await member.join() == 0
        return world.now, await lost.join()

    assert in_virtual_time(scenario) == (10.0, 25)


def test_members_that_do_not_join_are_removed_after_the_longest_rebalance_timeout():
    async def scenario(world):
        members = [await world.make(rebalance_timeout_ms=each) for each in (2_000, 7_000, 1_000)]
        await world.settled(*members)
        started = world.now
        world.cluster.rebalance("g")
        assert await members[0].join() == 0
        assert world.members == {members[0].member_id}
        return world.now - started, await members[1].beat()

    assert in_virtual_time(scenario) == (7.0, 25)


def test_static_members_stay_until_their_session_ends():
    async def scenario(world):
        here, away = await world.make(), await world.make("away")
        await world.settled(here, away)
        world.cluster.rebalance("g")
        await here.join()
        assert world.members == {here.member_id, away.member_id}
        assert here.leads
        assert await here.sync(here, away) == 0
        assert await away.beat() == 22
        assert await away.join() == await away.sync() == 0
        return world.now, away.given

    assert in_virtual_time(scenario) == (7.0, b"1")


def test_a_rebalance_waits_for_static_members_when_only_they_are_left():
    async def scenario(world):
        (member,) = await world.settled(await world.make("one", session_timeout_ms=60_000))
        world.cluster.rebalance("g")
        await asyncio.sleep(33)
        assert world.group.state == "PreparingRebalance"
        assert await member.join() == 0
        return member.generation, world.now

    assert in_virtual_time(scenario) == (2, 34.0)


def test_members_that_do_not_sync_are_removed():
    async def scenario(world):
        leader, late = await world.settled(*[await world.make() for _ in range(2)], sync=False)
        started = world.now
        await leader.sync(leader, late)
        assert world.group.state == "Stable"
        await world.until_state("PreparingRebalance")
        assert world.members == {leader.member_id}
        return world.now - started, await late.sync(), await leader.join()

    assert in_virtual_time(scenario) == (5.0, 25, 0)


def test_a_leader_that_does_not_sync_is_removed():
    async def scenario(world):
        leader, other = await world.settled(*[await world.make() for _ in range(2)], sync=False)
        started = world.now
        told = await other.sync(), world.now - started
        assert await other.join() == 0
        assert other.leads
        return *told, world.members == {other.member_id}, await leader.sync()

    assert in_virtual_time(scenario) == (27, 5.0, True, 25)


def test_waiting_members_need_no_heartbeats():
    async def scenario(world):
        timeouts = {"rebalance_timeout_ms": 60_000}
        waiting, slow = [await world.make(**timeouts) for _ in range(2)]
        await world.settled(waiting, slow)
        world.cluster.rebalance("g")
        joining = asyncio.ensure_future(waiting.join())
        for _ in range(4):
            await asyncio.sleep(9)
            assert await slow.beat() == 27
        return await slow.join(), await joining, len(world.members)

    assert in_virtual_time(scenario) == (0, 0, 2)


def test_a_new_member_may_wait_for_five_minutes_without_heartbeats():
    """A member without heartbeats stays while the broker holds its JoinGroup, for five minutes.

    Its session timeout does not apply meanwhile.
    """

    async def scenario(world):
        timeouts = {"rebalance_timeout_ms": 1_000_000, "session_timeout_ms": 1_000_000}
        (first,) = await world.settled(await world.make(**timeouts))
        started = world.now
        new = await world.make()
        code = await new.join()
        return code, world.now - started, world.members == {first.member_id}

    assert in_virtual_time(scenario) == (25, 300.0, True)


def test_sessions_restart_with_another_coordinator():
    async def scenario(world):
        members = await world.settled(*[await world.make() for _ in range(2)])
        await asyncio.sleep(9)
        world.cluster.move_coordinator("g")
        for each in members:
            await each.start()
        await asyncio.sleep(9)
        assert [await each.beat() for each in members] == [0, 0]
        started = world.now
        # Both members expire together. The empty group has the next generation.
        return await world.until_state("Empty") - started, world.group.generation

    assert in_virtual_time(scenario) == (10.0, 2)


@pytest.mark.parametrize("resync", [False, True])
def test_members_that_do_not_sync_in_a_resync_are_removed(resync):
    async def scenario(world):
        leader, one, two = await world.settled(*[await world.make() for _ in range(3)])
        started = world.now
        syncing = [asyncio.ensure_future(leader.sync(two, one, leader))]
        await world.cluster.until(lambda: world.group.state == "CompletingRebalance" or not resync)
        syncing.append(asyncio.ensure_future(one.sync()))
        codes = await asyncio.gather(*syncing)
        out = two.member_id not in world.members
        return codes, world.now - started, out, await leader.beat()

    expected = ([27, 27], 5.0, True, 27) if resync else ([0, 0], 0.0, False, 0)
    assert in_virtual_time(scenario, resync=resync) == expected
