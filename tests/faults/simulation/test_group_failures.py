"""Members of a group when coordinators, leaders, and assignments fail, in simulated time.

The tests of failures are named after the cases in the specification of client-side assignment. The
coordinator fails (1) before all members have joined or the generation is persisted, (2) before all
members have received the response to JoinGroup, (3) before the assignment is persisted, or (4)
before all members have fetched it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from sharing import Life, Sharing, living, names, together
from world import World, simulate

from aiokclient import GroupMember
from aiokclient.errors import AssignmentFailedError, FencedInstanceIdError
from aiokclient.protocol import ApiKey

GROUP = "g"


def life(world: World, says: str, *protocols: Sharing, **options: Any) -> Life:
    """Create a member on a network host of its own, which is named after the member's metadata."""
    offered = protocols or (Sharing(says),)
    options = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, **options}
    options = world.options(**options)
    options["connector"] = world.sim.network.connector(says)
    return Life(GroupMember(GROUP, protocol_type="test", protocols=offered, **options), *offered)


def leader_of(*lives: Life) -> Life:
    return next(life for life in lives if life.now is not None and life.now.is_leader)


def follower_of(*lives: Life) -> Life:
    return next(life for life in lives if life.now is not None and not life.now.is_leader)


def ids(*lives: Life) -> list[str]:
    return [life.member.group_metadata().member_id for life in lives]


def state(world: World) -> str:
    return world.cluster.groups[GROUP].state


def fail_over(world: World) -> None:
    """Move the coordinator to another broker with the persisted state.

    Close the old connections.
    """
    coordinator = world.cluster.coordinator(GROUP)
    world.cluster.move_coordinator(GROUP)
    world.cluster.disconnect(coordinator)


def die(world: World, life: Life) -> None:
    """Separate a member from all brokers, as if its process had died without a LeaveGroup."""
    world.network.part({life.protocols[0].says}, set(map(world.address, world.cluster.brokers)))


class Gate:
    """An `assign` function that waits until `opened` is set. `entered` counts its calls."""

    def __init__(self) -> None:
        self.entered, self.opened = 0, asyncio.Event()
        self.waits = asyncio.Event()

    async def __call__(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        self.entered += 1
        self.waits.set()
        await self.opened.wait()
        return names(members)


def gated(*lives: Life) -> Gate:
    """Replace `assign` of these members with the returned gate, at which the leader then waits."""
    gate = Gate()
    for each in lives:
        each.protocols[0].how = gate
    return gate


@pytest.mark.fault(5)
@pytest.mark.parametrize("persisted", [True, False])
def test_coordinator_failure_1_before_all_members_have_joined(persisted: bool) -> None:
    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            members = ids(*lives)
            slow = lives[0]
            held = hold_body(slow)
            lives[1].member.rejoin("a rebalance")
            await lives[1].until(lambda life: life.now is None)
            await asyncio.sleep(5)
            assert state(world) == "PreparingRebalance"
            fail_over(world)
            await asyncio.sleep(5)
            held.set()
            # Without persistence, the new coordinator begins again with the first generation id.
            await together(*lives, after=before if persisted else -1)
            assert (ids(*lives) == members) is persisted

    simulate(scenario, brokers=3, persist_groups=persisted)


def hold_body(life: Life) -> asyncio.Event:
    """Prevent this member from leaving its generations until the returned event is set."""
    gate, mailbox = asyncio.Event(), life.member._mailbox
    assert mailbox is not None
    end = mailbox.end_work

    async def end_slowly() -> None:
        await end()
        await gate.wait()

    mailbox.end_work = end_slowly  # type: ignore[method-assign]
    return gate


@pytest.mark.fault(5)
def test_coordinator_failure_2_before_all_have_the_answer_to_join_group() -> None:
    """The leader sends SyncGroup while another member still joins. All get the same generation."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            victim = follower_of(*lives).member.group_metadata().member_id
            world.cluster.drop(
                ApiKey.JOIN_GROUP,
                when="after",
                times=1,
                where=lambda request: request.member_id == victim,
            )
            leader_of(*lives).member.rejoin("a rebalance")
            await world.cluster.until(lambda: state(world) == "CompletingRebalance")
            fail_over(world)
            await together(*lives, after=before)

    simulate(scenario, brokers=3)


@pytest.mark.fault(5)
def test_coordinator_failure_3_before_the_assignment_is_persisted() -> None:
    """All members send SyncGroup again. They keep the generation, and `assign` is called once."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            gate = gated(*lives)
            lives[0].member.rejoin("a rebalance")
            await gate.waits.wait()
            generation = world.cluster.groups[GROUP].generation
            assert (state(world), generation) == ("CompletingRebalance", before + 1)
            fail_over(world)
            await asyncio.sleep(5)
            assert all(each.now is None for each in lives)
            gate.opened.set()
            assert await together(*lives) == generation
            assert gate.entered == 1

    simulate(scenario, brokers=3)


@pytest.mark.fault(5)
def test_coordinator_failure_4_before_all_have_fetched_their_assignment() -> None:
    """The new coordinator responds at once with the leader's assignment. No member joins again."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            victim = follower_of(*lives)
            member = victim.member.group_metadata().member_id
            asked = sum(len(life.protocols[0].asked) for life in lives)
            world.cluster.drop(
                ApiKey.SYNC_GROUP,
                when="after",
                times=1,
                where=lambda request: request.member_id == member,
            )
            leader_of(*lives).member.rejoin("a rebalance")
            await victim.until(lambda life: life.now is None)
            await world.cluster.until(
                lambda: state(world) == "Stable" and world.cluster.groups[GROUP].generation > before
            )
            fail_over(world)
            after = await together(*lives, after=before)
            assert after == before + 1
            assert sum(len(life.protocols[0].asked) for life in lives) == asked + 1

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("persisted", [True, False])
@pytest.mark.fault(5)
def test_coordinator_moves_in_a_stable_generation(persisted: bool) -> None:
    """If the group is persisted, its members keep their generation. Otherwise, all join again."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            entered = [len(each.log) for each in lives]
            for _ in range(3):
                fail_over(world)
                await asyncio.sleep(10)
            if persisted:
                assert await together(*lives) == before
                assert [len(each.log) for each in lives] == entered
            else:
                await together(*lives)
                assert all(len(each.log) > n for each, n in zip(lives, entered, strict=True))
            assert all(not life.errors for life in lives)

    simulate(scenario, brokers=3, persist_groups=persisted)


def test_leader_failure_in_await_sync() -> None:
    """The leader dies while it assigns. Its session ends, and the other members join again."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            gate = gated(*lives)
            lives[0].member.rejoin("a rebalance")
            await gate.waits.wait()
            assert state(world) == "CompletingRebalance"
            leader_id = world.cluster.groups[GROUP].leader
            dead = next(e for e in lives if e.member.group_metadata().member_id == leader_id)
            die(world, dead)
            gate.opened.set()
            living_on = [each for each in lives if each is not dead]
            started = world.now
            await together(*living_on, after=before)
            assert world.now - started < 25
            assert all(not each.errors for each in living_on)

    simulate(scenario, brokers=3)


def test_leader_failure_in_stable() -> None:
    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            dead = leader_of(*lives)
            last = dead.now
            die(world, dead)
            started = world.now
            await dead.until(lambda life: life.now is None)
            # The member stops by its own clock, before the group can reassign its share.
            assert world.now - started <= 10
            assert last is not None
            assert last.lost
            living_on = [each for each in lives if each is not dead]
            await together(*living_on, after=before)
            assert world.now - started > 10 - 3
            world.network.heal()
            await together(*lives, after=before + 1)

    simulate(scenario, brokers=3)


def test_a_member_that_fails_before_its_sync_is_removed() -> None:
    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            dead = follower_of(*lives)
            member = dead.member.group_metadata().member_id
            world.cluster.drop(
                ApiKey.SYNC_GROUP,
                times=1,
                where=lambda request: request.member_id == member,
            )
            leader_of(*lives).member.rejoin("a rebalance")
            await dead.until(lambda life: life.now is None)
            await world.cluster.until(lambda: state(world) in ("CompletingRebalance", "Stable"))
            die(world, dead)
            living_on = [each for each in lives if each is not dead]
            await together(*living_on, after=before + 1)

    simulate(scenario, brokers=3)


def test_an_error_of_the_leader_reaches_all_members() -> None:
    """The leader's error reaches all members.

    The group tries again with growing delays, and recovers.
    """

    async def scenario(world: World) -> None:
        broken = [True]

        def how(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
            if broken[0]:
                raise LookupError("no shelf")
            return names(members)

        lives = [life(world, name, Sharing(name, how=how)) for name in "abc"]
        async with living(*lives):
            await asyncio.sleep(60)
            attempts = sum(len(each.protocols[0].asked) for each in lives)
            assert 5 < attempts < 25
            for each in lives:
                assert each.now is None
                assert {type(error) for error in each.errors} <= {
                    LookupError,
                    AssignmentFailedError,
                }
                assert all("no shelf" in str(error) for error in each.errors)
            broken[0] = False
            await asyncio.gather(*(each.until(lambda life: life.now) for each in lives))

    simulate(scenario, brokers=3)


def test_changed_metadata_starts_a_new_generation() -> None:
    """A change of a member's metadata starts a new generation of the group."""

    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "abc"]
        async with living(*lives):
            before = await together(*lives)
            changed = follower_of(*lives)
            changed.protocols[0].says = "changed"
            changed.member.rejoin("the subscription has changed")
            await together(*lives, after=before)
            assert changed.assignment == b"changed of 3"

    simulate(scenario, brokers=3)


@pytest.mark.fault(44)
def test_the_older_of_two_members_with_one_instance_id_is_fenced() -> None:
    async def scenario(world: World) -> None:
        first = life(world, "first", group_instance_id="i")
        second = life(world, "second", group_instance_id="i")
        async with living(first):
            await together(first)
            async with living(second):
                await second.until(lambda life: life.now)
                await first.until(lambda life: life.errors)
                assert isinstance(first.errors[0], FencedInstanceIdError)
                await asyncio.sleep(30)
                assert second.now is not None
                assert second.errors == []

    simulate(scenario)


Step = Callable[[World], Awaitable[None]]


@pytest.mark.fault(6)
@pytest.mark.parametrize("when", ["joining", "stable"])
def test_members_wait_while_the_coordinator_is_loading(when: str) -> None:
    async def scenario(world: World) -> None:
        lives = [life(world, name) for name in "ab"]
        if when == "joining":
            with world.cluster.hold_loading(GROUP):
                async with living(*lives):
                    await asyncio.sleep(20)
                    assert all(each.now is None and not each.errors for each in lives)
                    asked = len(world.requests(ApiKey.JOIN_GROUP))
                    assert asked < 2 * 40
            lives = [life(world, name) for name in "cd"]
        async with living(*lives):
            before = await together(*lives)
            with world.cluster.hold_loading(GROUP):
                await asyncio.sleep(20)
            await asyncio.sleep(5)
            assert await together(*lives) == before

    simulate(scenario, brokers=3)


@pytest.mark.fault(6)
def test_members_wait_when_no_coordinator_can_be_found() -> None:
    async def scenario(world: World) -> None:
        one = life(world, "a")
        with world.cluster.fail(ApiKey.FIND_COORDINATOR, 15):
            async with living(one):
                await asyncio.sleep(20)
                assert one.errors == []
                assert len(world.requests(ApiKey.FIND_COORDINATOR)) < 60
        async with living(other := life(world, "b")):
            await together(other)

    simulate(scenario, brokers=3)


@pytest.mark.fault(18, 37)
@pytest.mark.parametrize("seconds", [3, 30, 600])
def test_a_blocked_event_loop_is_logged(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    """A log message says how long the loop was blocked.

    If that exceeds the session timeout, the generation ends at once.
    """

    async def scenario(world: World) -> None:
        one = life(world, "a")
        async with living(one):
            await together(one)
            now = one.now
            assert now is not None
            await asyncio.sleep(0.5)
            world.sim.loop.leap(seconds)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert now.lost is (seconds > 10)
            await asyncio.sleep(10)
            await together(one)
            assert f"the event loop stood still for {seconds - 1}" in caplog.text

    with caplog.at_level("WARNING"):
        simulate(scenario)


@pytest.mark.fault(49)
def test_throttling_does_not_delay_heartbeats() -> None:
    """If joins or other requests are throttled, only their own connections are delayed."""

    async def scenario(world: World) -> None:
        lives = [life(world, name, heartbeat_interval_ms=1_000) for name in "ab"]
        throttled = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
        for api in throttled:
            world.cluster.throttle(api, 4.0)
        async with living(*lives):
            await together(*lives)
            started = world.now
            await asyncio.sleep(60)
            beats = world.requests(ApiKey.HEARTBEAT, since=started)
            assert len(beats) >= 2 * 58
            assert all(not each.errors for each in lives)

    simulate(scenario)


def test_a_body_that_does_not_leave_in_time_loses_its_generation() -> None:
    """A rebalance waits for a body until the rebalance timeout.

    Then its member loses the generation, and the others go on.
    """

    async def scenario(world: World) -> None:
        times = {"rebalance_timeout_ms": 5_000, "heartbeat_interval_ms": 500}
        stubborn, other = life(world, "stubborn", **times), life(world, "other", **times)
        async with living(stubborn, other):
            before = await together(stubborn, other)
            held, last = hold_body(stubborn), stubborn.now
            other.member.rejoin("a rebalance")
            started = world.now
            await other.until(lambda life: life.generation > before)
            assert 4 < world.now - started < 8
            assert last is not None
            assert last.ended
            held.set()

    simulate(scenario)
