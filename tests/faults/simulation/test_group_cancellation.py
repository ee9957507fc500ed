"""Every public call about groups is cancelled at each suspension, and at many moments.

Afterwards the member gets a generation as usual, or it is closed and has left its group. No task,
connection, or membership remains.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, NamedTuple

import pytest
from interrupt import Interrupted, interrupt
from sharing import Sharing
from thinned import one_in
from world import World, simulate

from aiokclient import Admin, GroupMember, State
from aiokclient.patterns import single_writer, work_pool
from aiokclient.testing.simulation.network import Weather

GROUP = "g"
MOMENTS = 25
TIMES: Any = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}


class Case(NamedTuple):
    """A test of one call: ``made`` prepares an object, ``call`` uses it, ``after`` checks it."""

    made: Callable[[World], Awaitable[Any]]
    call: Callable[[World, Any], Coroutine[Any, Any, Any]]
    after: Callable[[World, Any], Awaitable[None]]


# -- prepared objects


async def new_member(world: World) -> GroupMember:
    return GroupMember(
        GROUP, protocol_type="test", protocols=[Sharing("a")], **world.options(**TIMES)
    )


async def started_member(world: World) -> GroupMember:
    return await (await new_member(world))


async def joined_member(world: World) -> GroupMember:
    member = await started_member(world)
    async with await anext(member.generations()):
        pass
    return member


async def rejoining_member(world: World) -> GroupMember:
    member = await joined_member(world)
    member.rejoin("a rebalance")
    return member


async def nothing(world: World) -> None:
    return None


async def admin(world: World) -> Admin:
    async with await started_member(world) as member, await anext(member.generations()):
        pass
    made = Admin(**world.options())
    return await made


# -- calls under test


async def one_generation(world: World, member: GroupMember) -> None:
    async for generation in member.generations():
        async with generation:
            await asyncio.sleep(0.1)
        break


async def two_generations(world: World, member: GroupMember) -> None:
    """Iterate up to the second generation.

    The first generation ends while its body waits. The body takes a moment to leave.
    """
    loop, seen = asyncio.get_running_loop(), 0
    async for generation in member.generations():
        seen += 1
        if seen == 2:
            break
        async with generation:
            loop.call_later(0.2, member.rejoin, "a rebalance")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)


async def write(world: World, made: None) -> None:
    async with single_writer("ledger", **world.options(**TIMES)) as producer:
        await producer.send("t", b"v")


async def work(world: World, made: None) -> None:
    pool = work_pool("pool", {"x": 1}, **world.options(**TIMES))
    async with aclosing(pool):
        async for items in pool:
            async with items as mine:
                assert mine == ("x",)
            break


def on(method: str, *arguments: Any) -> Callable[[World, Any], Coroutine[Any, Any, Any]]:
    return lambda world, made: getattr(made, method)(*arguments)


# -- checks after the call


async def goes_on(world: World, member: GroupMember) -> None:
    if member.state is not State.CLOSED:
        async with asyncio.timeout(60):
            await member.start()
            member.rejoin("to see that it can")
            await one_generation(world, member)
    await is_closed(world, member)


async def is_closed(world: World, member: GroupMember) -> None:
    await member.close()
    assert member.state is State.CLOSED
    await out(world, GROUP)


async def out(world: World, *groups: str) -> None:
    """Check that the groups have no members a second later, because LeaveGroup was sent."""
    await asyncio.sleep(1)
    for group in groups:
        if group in world.cluster.groups:
            assert world.cluster.groups[group].members == {}


async def all_out(world: World, made: None) -> None:
    await out(world, "ledger", "pool")


async def admin_goes_on(world: World, admin: Admin) -> None:
    await admin.list_groups()
    await admin.close()


CASES = {
    "GroupMember.start": Case(new_member, on("start"), goes_on),
    "generations()": Case(started_member, one_generation, goes_on),
    "a generation that ends": Case(started_member, two_generations, goes_on),
    "GroupMember.close": Case(joined_member, on("close"), is_closed),
    "GroupMember.close in a rebalance": Case(rejoining_member, on("close"), is_closed),
    "single_writer": Case(nothing, write, all_out),
    "work_pool": Case(nothing, work, all_out),
    "Admin.list_groups": Case(admin, on("list_groups"), admin_goes_on),
    "Admin.describe_groups": Case(admin, on("describe_groups", [GROUP]), admin_goes_on),
    "Admin.delete_groups": Case(admin, on("delete_groups", [GROUP]), admin_goes_on),
    "Admin.list_consumer_group_offsets": Case(
        admin, on("list_consumer_group_offsets", [GROUP]), admin_goes_on
    ),
}


def interrupted(case: Case, way: str, **when: Any) -> tuple[Interrupted, float]:
    async def scenario(world: World) -> tuple[Interrupted, float]:
        made = await case.made(world)
        began = world.now
        outcome = await interrupt(case.call(world, made), way=way, **when)
        took = world.now - began
        await case.after(world, made)
        return outcome, took

    return simulate(scenario, weather=Weather(latency_s=(0.001, 0.01)))


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_group_member_can_be_cancelled_at_every_suspension(
    name: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0
    for n in range(1, 1_000):
        outcome, _ = interrupted(CASES[name], way, suspension=n)
        most = max(most, outcome.suspensions)
        if not outcome.cancelled:
            assert outcome.error is None
            break
    with capsys.disabled():
        sys.stdout.write(f"\n{name}: {most} suspensions, each cancelled by {way}'s cancellation ")
    assert most > 0


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("way", ["asyncio", "anyio"])
@pytest.mark.parametrize("name", CASES)
def test_calls_of_a_group_member_can_be_cancelled_at_many_moments(name: str, way: str) -> None:
    outcome, whole = interrupted(CASES[name], way)
    assert not outcome.cancelled
    assert outcome.error is None
    for step in one_in(8, range(MOMENTS), 4 * (way == "anyio")):
        interrupted(CASES[name], way, moment=whole * step / MOMENTS)
