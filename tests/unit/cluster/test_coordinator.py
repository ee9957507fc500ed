"""Tests of the lookups of coordinators: how long a silent broker is awaited, and shared errors."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from world import World, simulate

from aiokclient.cluster.brokers import PATIENCE_S, patience_s
from aiokclient.cluster.coordinator import CoordinatorLocator
from aiokclient.errors import ApiTimeoutError
from aiokclient.network.connection import BrokerConnection


def test_patience_doubles_with_each_attempt_without_a_response() -> None:
    waits = [patience_s(in_vain, 40.0) for in_vain in range(6)]
    assert waits == [PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S, 8 * PATIENCE_S, 40.0, 40.0]
    assert patience_s(10_000, 30.0) == 30.0


def test_lookups_wait_longer_while_no_broker_responds() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            silent = True

            async def connect(request: Any) -> BrokerConnection:
                if silent:
                    await asyncio.get_running_loop().create_future()
                return await client.cluster.brokers.connect_any(request)

            locator = CoordinatorLocator(connect, lambda broker: None, 30.0)

            async def waited() -> float:
                began = world.now
                with pytest.raises(ApiTimeoutError, match=r"no response within \d+\.\d s"):
                    await locator.locate("group", "g")
                return world.now - began

            waits = [await waited() for _ in range(5)]
            assert waits == pytest.approx([3.0, 6.0, 12.0, 24.0, 30.0])
            silent = False
            await locator.locate("group", "g")
            locator.forget("group", "g")
            silent = True
            assert await waited() == pytest.approx(3.0), "a response ends the silence"

    simulate(scenario)


@pytest.mark.parametrize("sharing", [0, 2])
async def test_lookup_passes_a_bug_to_the_tasks_that_share_it(sharing: int) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    gate = asyncio.Event()

    async def connect(request: Any) -> BrokerConnection:
        await gate.wait()
        raise ZeroDivisionError

    locator = CoordinatorLocator(connect, lambda broker: None, 30.0)
    calls = [asyncio.ensure_future(locator.locate("group", "g")) for _ in range(1 + sharing)]
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError] * (1 + sharing)
    del calls, outcomes
    await asyncio.sleep(0)
    gc.collect()
    assert not reported, "asyncio reports no error that nobody retrieved"


def test_forget_drops_a_coordinator_only_when_it_is_the_given_broker() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            learned: list[Any] = []
            locator = CoordinatorLocator(client.cluster.brokers.connect_any, learned.append, 30.0)
            node_id = await locator.locate("group", "g")
            assert [broker.node_id for broker in learned] == [node_id]
            locator.forget("group", "g", node_id + 1)
            assert locator.cached("group", "g") == node_id
            locator.forget("group", "g", node_id)
            assert locator.cached("group", "g") is None
            await locator.locate_many("group", ["a", "b"])
            locator.clear()
            assert [locator.cached("group", key) for key in "ab"] == [None, None]

    simulate(scenario)
