"""A single writer stops before the next one begins, and never takes over from it."""

import asyncio
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import Coordinator, State
from aiokclient.errors import ClosedError, NotWriterError
from aiokclient.patterns import single_writer
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import LeaveGroupRequest, SyncGroupRequest
from aiokclient.protocol.messages.leave_group import MemberIdentity

SESSION_S = 6.0
TIMES: dict[str, Any] = {
    "session_timeout_ms": int(SESSION_S * 1000),
    "heartbeat_interval_ms": 1_000,
    "rebalance_timeout_ms": 8_000,
}


def options_of(world: World, host: str, **options: Any) -> dict[str, Any]:
    """Return the options of a candidate whose connections can be cut by the name of its host."""
    return world.options(**(TIMES | options)) | {"connector": world.network.connector(host)}


def test_a_writer_that_is_cut_off_stops_before_the_next_one_begins() -> None:
    async def scenario(world: World) -> None:
        writing: list[str] = []
        begun = {"former": asyncio.Event(), "next": asyncio.Event()}
        ended_at: list[float] = []

        async def write(host: str) -> None:
            async with single_writer("ledger", **options_of(world, host)):
                writing.append(host)
                begun[host].set()
                try:
                    await asyncio.Event().wait()
                finally:
                    writing.remove(host)
                    ended_at.append(world.now)

        former = asyncio.create_task(write("former"))
        await begun["former"].wait()
        following = asyncio.create_task(write("next"))
        cut_at = world.now
        brokers = set(map(world.address, world.cluster.brokers))
        world.network.part({"former"}, brokers)
        await begun["next"].wait()
        assert writing == ["next"]
        # The last heartbeat before the cut may have been answered up to an interval earlier.
        assert cut_at + SESSION_S - 1.5 <= ended_at[0] <= cut_at + SESSION_S
        world.network.heal()
        with pytest.raises(NotWriterError):
            await former
        following.cancel()
        await asyncio.wait([following])

    simulate(scenario, brokers=1, topics={"t": 1})


def test_a_former_writer_that_restarts_does_not_fence_the_next_one() -> None:
    async def scenario(world: World) -> None:
        shared: dict[str, Any] = {"transactional_id": "ledger"}
        # The former writer has no heartbeat that would tell it of its successor.
        rarely = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 20_000}
        former_writes, next_writes = asyncio.Event(), asyncio.Event()
        restarted = asyncio.Event()

        async def write_formerly() -> None:
            static = options_of(world, "former", **shared, **rarely, group_instance_id="i")
            async with single_writer("ledger", **static) as producer:
                former_writes.set()
                await next_writes.wait()
                try:
                    await producer.restart()
                finally:
                    restarted.set()

        async def write_next() -> None:
            options = options_of(world, "next", **shared)
            async with (
                single_writer("ledger", **options) as producer,
                producer.transaction() as tx,
            ):
                tx.send("t", b"v")
                next_writes.set()
                await restarted.wait()

        former = asyncio.create_task(write_formerly())
        await former_writes.wait()
        following = asyncio.create_task(write_next())
        await world.cluster.until(lambda: waits_in(world), 20)
        await lose(world)
        with pytest.raises(NotWriterError):
            await former
        await following
        assert [record.value for record in world.cluster.records("t", 0)] == [b"v"]

    simulate(scenario, brokers=1, topics={"t": 1})


async def lose(world: World) -> None:
    """Remove the static writer from its group, as if its session had ended."""
    async with world.client() as client:
        member = MemberIdentity(group_instance_id="i")
        request = LeaveGroupRequest(group_id="ledger", members=[member])
        await client.request(request, to=Coordinator("group", "ledger"))


def test_a_restart_of_the_writer_waits_for_one_heartbeat() -> None:
    async def scenario(world: World) -> None:
        options = options_of(world, "writer", transactional_id="ledger")
        async with single_writer("ledger", **options) as producer:
            for _ in range(3):
                async with producer.transaction() as tx:
                    tx.send("t", b"v")
                began = world.now
                await producer.restart()
                assert world.now - began < 1.2, "a heartbeat is sent each second"
            await asyncio.sleep(0.5)
            began = world.now
            await producer.restart()
            assert world.now - began > 0.1, "the last heartbeat was sent before the call"

    simulate(scenario, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_the_producer_of_a_former_writer_is_closed_at_once(error: Exception | None) -> None:
    async def scenario(world: World) -> None:
        seen: list[Any] = []

        async def write() -> None:
            options = options_of(world, "writer", group_instance_id="i")
            async with single_writer("ledger", **options) as producer:
                await producer.send("t", b"v")
                with (
                    anyio.CancelScope(shield=True),
                    world.cluster.delay(ApiKey.PRODUCE, 60, when="before"),
                ):
                    await lose(world)
                    delivery = producer.send("t", b"late")
                    lost_at = world.now
                    with pytest.raises(ClosedError):
                        await delivery
                    seen.append(world.now - lost_at)
                    assert producer.state is State.CLOSED or producer.state is State.CLOSING
                    await asyncio.sleep(0.1)
                    assert producer.state is State.CLOSED
                    if error is not None:
                        raise error

        with pytest.raises(NotWriterError if error is None else ValueError):
            await write()
        # The next heartbeat tells the writer, within a second.
        assert seen[0] < 1.2

    simulate(scenario, brokers=1, topics={"t": 1})


def test_leaving_the_body_of_a_writer_takes_only_a_moment() -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):
            began = world.now
            async with single_writer("ledger", **options_of(world, "writer")) as producer:
                await producer.send("t", b"v")
                assert world.now - began < 5
                began = world.now
            assert world.now - began < 0.5

    simulate(scenario, brokers=1, topics={"t": 1})


def waits_in(world: World) -> bool:
    """Return whether a second member has joined the group."""
    requests = [each.message for each in world.cluster.requests]
    members = {each.member_id for each in requests if isinstance(each, SyncGroupRequest)}
    return len(members) == 2


def test_a_writer_leaves_its_group_at_once_when_its_body_has_ended() -> None:
    async def scenario(world: World) -> None:
        for host in ("former", "next"):
            async with single_writer("ledger", **options_of(world, host)):
                ended_at = world.now
            assert world.now - ended_at < 1

    simulate(scenario, brokers=1, topics={"t": 1})
