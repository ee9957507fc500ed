"""Tests of the group engine: its calls to the handler, their order, and what cancels them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from world import World, simulate

from aiokclient.cluster.client import ClusterClient
from aiokclient.config.client import ClientConfig
from aiokclient.errors import KafkaError
from aiokclient.group.engine import ID_S, GroupEngine
from aiokclient.group.handler import Generation, GroupSettings, MemberInfo
from aiokclient.group.states import MemberState
from aiokclient.metrics import Metrics, OwnMetrics
from aiokclient.protocol import ApiKey

GROUP = "g"
SETTINGS = GroupSettings(GROUP, None, 10_000, 20_000, 500)


async def at_once() -> None:
    return None


class Handler:
    """A handler that records its calls.

    `slow` has a function for each call that must wait. The call awaits this function.
    """

    protocol_type = "test"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.slow: dict[str, Callable[[], Awaitable[None]]] = {}
        self.reported: list[Exception] = []
        self.confirmed: list[bool] = []
        self.stable = asyncio.Event()

    async def note(self, call: str) -> None:
        self.calls.append(call)
        try:
            await self.slow.get(call, at_once)()
        except asyncio.CancelledError:
            self.calls.append(f"{call} cancelled")
            raise

    def offer_protocols(self) -> Sequence[tuple[str, bytes]]:
        return [("p", b"")]

    async def assign(
        self, protocol: str, leader_id: str, members: Sequence[MemberInfo]
    ) -> Mapping[str, bytes]:
        await self.note("assign")
        return {}

    async def on_generation(self, generation: Generation) -> None:
        await self.note("began")
        self.stable.set()

    async def before_return(self) -> None:
        """Do nothing."""

    async def before_rejoin(self, reason: str) -> None:
        await self.note("before_rejoin")

    async def on_lost_membership(self, reason: str) -> None:
        await self.note("lost")

    def on_confirmed_changed(self, confirmed: bool) -> None:
        self.confirmed.append(confirmed)

    def report_error(self, error: Exception) -> None:
        self.reported.append(error)


@asynccontextmanager
async def engine_in(world: World, handler: Handler, settings: GroupSettings = SETTINGS) -> Any:
    """Run a group engine on a cluster client of its own."""
    cluster = ClusterClient(ClientConfig.build(world.options()))
    await cluster.start()
    engine = GroupEngine(
        cluster,
        settings,
        handler,
        cluster.supervisor,
        own_metrics=OwnMetrics(Metrics()),
    )
    cluster.supervisor.spawn(engine.run, name="membership")
    try:
        yield engine
    finally:
        await engine.leave("the end", 5.0)
        await cluster.close()


async def stable(handler: Handler) -> None:
    await handler.stable.wait()
    handler.stable.clear()


def test_the_handler_is_called_in_order_from_join_to_leave() -> None:
    async def scenario(world: World) -> None:
        handler = Handler()
        async with engine_in(world, handler) as engine:
            await stable(handler)
            engine.rejoin("again")
            await stable(handler)
        assert handler.calls == [
            *("assign", "began"),
            *("before_rejoin", "assign", "began"),
            "lost",
        ]
        assert handler.confirmed == [True, False]
        assert handler.reported == []

    simulate(scenario)


def test_pause_leaves_and_resume_joins_as_a_new_member() -> None:
    """After `leave_until_resume`, `resume` joins as a new member."""

    async def scenario(world: World) -> None:
        handler = Handler()
        async with engine_in(world, handler) as engine:
            await stable(handler)
            first = engine.metadata.member_id
            engine.leave_until_resume("busy")
            await asyncio.sleep(1)
            assert engine.state is MemberState.OUT
            assert engine.metadata == (GROUP, -1, "", None)
            assert world.cluster.groups[GROUP].members == {}
            (leave,) = world.requests(ApiKey.LEAVE_GROUP)
            assert leave.message.members[0].reason == "busy"
            await asyncio.sleep(30)
            assert engine.state is MemberState.OUT
            engine.resume()
            await stable(handler)
            assert engine.metadata.member_id != first
        assert handler.calls.count("lost") == 2

    simulate(scenario)


def test_one_member_is_left_when_pause_and_resume_alternate() -> None:
    async def scenario(world: World) -> None:
        handler = Handler()
        async with engine_in(world, handler) as engine:
            await stable(handler)
            for _ in range(3):
                engine.leave_until_resume("busy")
                await asyncio.sleep(0)
                engine.resume()
            await stable(handler)
            assert len(world.cluster.groups[GROUP].members) == 1

    simulate(scenario)


@pytest.mark.parametrize("answered_in", [0.5, 3.0])
def test_paused_while_it_asks_for_an_id(answered_in: float) -> None:
    """The member waits for its id in order to leave with it.

    Otherwise, the next rebalance would wait for that id.
    """

    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.JOIN_GROUP, answered_in):
            async with engine_in(world, Handler()):
                await world.cluster.until(lambda: bool(world.requests(ApiKey.JOIN_GROUP)))
        assert len(world.requests(ApiKey.JOIN_GROUP)) == len(world.requests(ApiKey.LEAVE_GROUP))
        handler = Handler()
        async with engine_in(world, handler) as engine:
            await stable(handler)
            engine.rejoin("again")
            began = world.now
            await stable(handler)
            assert world.now - began < 1

    simulate(scenario)


def test_paused_while_nobody_gives_it_an_id() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.JOIN_GROUP, 30):
            async with engine_in(world, Handler()) as engine:
                await world.cluster.until(lambda: bool(world.requests(ApiKey.JOIN_GROUP)))
                began = world.now
                engine.leave_until_resume("busy")
                await world.cluster.until(lambda: engine.state is MemberState.OUT)
                assert world.now - began < ID_S + 0.1
        assert world.requests(ApiKey.LEAVE_GROUP) == []

    simulate(scenario)


def test_a_static_member_does_not_wait_for_an_id_to_leave() -> None:
    """A static member sends no LeaveGroup when it closes, so it need not wait for its id."""

    async def scenario(world: World) -> None:
        static = GroupSettings(GROUP, "i", 10_000, 20_000, 500)
        with world.cluster.delay(ApiKey.JOIN_GROUP, 30):
            async with engine_in(world, Handler(), static):
                await world.cluster.until(lambda: bool(world.requests(ApiKey.JOIN_GROUP)))
                began = world.now
            assert world.now - began < 0.1

    simulate(scenario)


def test_paused_and_resumed_while_it_asks_for_an_id() -> None:
    async def scenario(world: World) -> None:
        handler = Handler()
        with world.cluster.delay(ApiKey.JOIN_GROUP, 0.5, times=1):
            async with engine_in(world, handler) as engine:
                await world.cluster.until(lambda: bool(world.requests(ApiKey.JOIN_GROUP)))
                engine.leave_until_resume("busy")
                await asyncio.sleep(0.1)
                engine.resume()
                began = world.now
                await stable(handler)
                assert world.now - began < 1

    simulate(scenario)


@pytest.mark.parametrize("call", ["assign", "began", "before_rejoin"])
def test_pausing_cuts_a_call_short(call: str) -> None:
    async def scenario(world: World) -> None:
        handler, waits = Handler(), asyncio.Event()

        async def for_ever() -> None:
            waits.set()
            await asyncio.Event().wait()

        handler.slow[call] = for_ever
        async with engine_in(world, handler) as engine:
            if call == "before_rejoin":
                await stable(handler)
                engine.rejoin("again")
            await waits.wait()
            engine.leave_until_resume("busy")
            await asyncio.sleep(1)
            assert handler.calls[-3:] == [call, f"{call} cancelled", "lost"]

    simulate(scenario)


def test_a_rebalance_waits_until_the_generation_has_begun() -> None:
    async def scenario(world: World) -> None:
        handler, go = Handler(), asyncio.Event()
        handler.slow["began"] = lambda: wait_for(go)
        async with engine_in(world, handler):
            await world.cluster.until(lambda: "began" in handler.calls)
            world.cluster.rebalance(GROUP)
            await asyncio.sleep(3)
            assert handler.calls == ["assign", "began"]
            go.set()
            await stable(handler)
            await stable(handler)
            assert handler.calls[2:] == ["before_rejoin", "assign", "began"]

    simulate(scenario)


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


def test_what_is_not_given_up_in_time_is_lost() -> None:
    """The rebalance timeout counts from the last heartbeat that did not report the rebalance.

    The rebalance may have begun directly after that heartbeat.
    """

    async def scenario(world: World) -> None:
        handler = Handler()
        handler.slow["before_rejoin"] = lambda: asyncio.sleep(1_000)
        async with engine_in(world, handler) as engine:
            await stable(handler)
            await asyncio.sleep(2)
            world.cluster.rebalance(GROUP)
            began = world.now
            await world.cluster.until(lambda: "before_rejoin" in handler.calls)
            assert began + 19 <= engine.rebalance_deadline <= began + 20
            handler.slow.pop("before_rejoin")
            await world.cluster.until(lambda: "lost" in handler.calls)
            assert world.now <= began + 20
            await stable(handler)
            wanted = ["before_rejoin", "before_rejoin cancelled", "lost", "assign", "began"]
            assert handler.calls[2:] == wanted

    simulate(scenario)


def test_what_the_handler_raises_comes_out_of_run() -> None:
    async def scenario(world: World) -> None:
        handler = Handler()

        async def fail() -> None:
            raise ZeroDivisionError

        handler.slow["began"] = fail
        cluster = ClusterClient(ClientConfig.build(world.options()))
        await cluster.start()
        engine = GroupEngine(
            cluster,
            SETTINGS,
            handler,
            cluster.supervisor,
            own_metrics=OwnMetrics(Metrics()),
        )
        with pytest.raises(ZeroDivisionError):
            await engine.run()
        assert engine.metadata.generation_id == -1
        await engine.leave("it is over already", 5.0)
        await cluster.close()
        # The other members need not wait for the end of this member's session.
        assert world.cluster.groups[GROUP].members == {}

    simulate(scenario)


def test_what_the_handler_raises_comes_out_soon_if_nobody_can_be_told() -> None:
    async def scenario(world: World) -> None:
        handler, failed = Handler(), asyncio.Event()

        async def fail() -> None:
            world.network.part({"client"}, {world.address(1)})
            failed.set()
            raise ZeroDivisionError

        handler.slow["began"] = fail
        async with engine_in(world, handler) as engine:
            await failed.wait()
            began = world.now
            await engine.leave("the end", 5.0)
            assert world.now - began < 1.1

    simulate(scenario)


def test_a_refused_member_stays_out_until_it_is_resumed() -> None:
    async def scenario(world: World) -> None:
        handler = Handler()
        with world.cluster.fail(ApiKey.JOIN_GROUP, 30):
            async with engine_in(world, handler) as engine:
                await asyncio.sleep(30)
                assert engine.state is MemberState.OUT
                (error,) = handler.reported
                assert isinstance(error, KafkaError)
                assert error.name == "GROUP_AUTHORIZATION_FAILED"
                engine.resume()
                await asyncio.sleep(30)
                assert len(handler.reported) == 2
                world.cluster.reset()
                engine.resume()
                await stable(handler)

    simulate(scenario)


def test_refused_with_an_id_it_leaves() -> None:
    """A member that has an id but does not join must leave.

    Otherwise, the next rebalance would wait for it.
    """

    async def scenario(world: World) -> None:
        first, second = Handler(), Handler()
        async with engine_in(world, first):
            await stable(first)
            with world.cluster.fail(ApiKey.JOIN_GROUP, 23, times=1, where=lambda m: m.member_id):
                async with engine_in(world, second) as refused:
                    await world.cluster.until(lambda: bool(second.reported))
                    began = world.now
                    refused.resume()
                    await stable(second)
                    assert world.now - began < 2
            assert second.calls[0] == "lost"

    simulate(scenario)


@pytest.mark.parametrize("code", [-1, 15, 14, 16, 7])
def test_other_errors_are_tried_again_with_backoff(code: int) -> None:
    async def scenario(world: World) -> None:
        handler = Handler()
        with world.cluster.fail(ApiKey.JOIN_GROUP, code):
            async with engine_in(world, handler):
                await asyncio.sleep(20)
                assert 10 <= len(world.requests(ApiKey.JOIN_GROUP)) <= 45
                assert handler.reported == []

    simulate(scenario)


def test_a_silent_coordinator_is_given_up_for_the_new_one() -> None:
    """The coordinator hangs while it holds JoinGroup.

    Failed heartbeats lead to the new coordinator, to which the member sends the request again.
    """

    async def scenario(world: World) -> None:
        handler = Handler()
        other = GroupSettings(GROUP, None, 10_000, 600_000, 500)
        async with engine_in(world, handler, other) as engine:
            await stable(handler)
            old = world.cluster.coordinator(GROUP)
            with world.cluster.delay(ApiKey.JOIN_GROUP, 5_000, broker=old):
                engine.rejoin("again")
                await asyncio.sleep(2)
                world.network.part({"client"}, {world.address(old)})
                world.cluster.move_coordinator(GROUP)
                began = world.now
                await stable(handler)
                assert world.now - began < 30

    simulate(scenario, brokers=3)
