"""Tests of which broker serves a request that any broker can serve, and of how brokers are shown.

All times are virtual.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest
from world import World, simulate

from aiokclient import AnyBroker, Broker, Client
from aiokclient.cluster.requests.brokers import _connected_soon
from aiokclient.errors import DisconnectedError, InvalidMetadataError
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest

LIST = ApiKey.LIST_GROUPS


async def connect_all(client: Client, *brokers: int) -> None:
    for node_id in brokers:
        await client.request(ListGroupsRequest(), Broker(node_id))


def ask(client: Client, node_id: int) -> asyncio.Task[Any]:
    """Send a request that the broker does not answer for now."""
    call: Coroutine[Any, Any, Any] = client.request(ListGroupsRequest(), Broker(node_id))
    return asyncio.ensure_future(call)


def chosen(client: Client, **options: Any) -> set[int]:
    return {client.cluster.brokers.choose(**options).node_id for _ in range(50)}


def test_broker_with_the_fewest_requests_in_flight_is_chosen() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1, 2, 3)
            assert chosen(client) == {1, 2, 3}
            with world.cluster.delay(LIST, 0.5):
                calls = [ask(client, 1), ask(client, 1), ask(client, 2)]
                await asyncio.sleep(0.1)
                assert chosen(client) == {3}
                calls += [ask(client, 3), ask(client, 3)]
                await asyncio.sleep(0.1)
                assert chosen(client) == {2}
                await asyncio.gather(*calls)

    simulate(scenario, brokers=3)


@pytest.mark.parametrize(("silent_s", "expected"), [(0.8, 1), (1.2, 2)])
def test_broker_that_is_silent_for_a_second_is_chosen_only_when_there_is_no_other(
    silent_s: float, expected: int
) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1, 2)
            with world.cluster.delay(LIST, 5):
                calls = [ask(client, 1)]
                await asyncio.sleep(silent_s)
                calls += [ask(client, 2), ask(client, 2)]
                await asyncio.sleep(0.01)
                assert chosen(client) == {expected}
                assert chosen(client, unfit={2}) == {1}
                await asyncio.gather(*calls)

    simulate(scenario, brokers=2)


def test_avoided_broker_is_chosen_only_when_no_other_is_reachable() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1, 2, 3)
            brokers = client.cluster.brokers
            brokers.avoid(2)
            assert chosen(client) == {1, 3}
            assert chosen(client, unfit={1, 3}) == {2}
            brokers.avoid(None)
            assert chosen(client) == {1, 2, 3}
            with pytest.raises(InvalidMetadataError, match="No broker is known"):
                brokers.choose(unfit={-1, 1, 2, 3})

    simulate(scenario, brokers=3)


def test_broker_without_a_connection_is_tried_before_a_connected_one_that_is_silent() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            connected = next(
                n for n in (1, 2) if client.cluster.connected(n, Purpose.CONTROL) is not None
            )
            assert chosen(client) == {connected}
            with world.cluster.delay(LIST, 5):
                call = ask(client, connected)
                await asyncio.sleep(1.2)
                assert chosen(client) == {3 - connected}
                await call
            assert chosen(client) == {connected}

    simulate(scenario, brokers=2)


def test_silence_is_measured_from_the_oldest_unanswered_request() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1)
            brokers = client.cluster.brokers
            assert (brokers.silent_for(1), brokers.silent_for(2)) == (0.0, 0.0)
            with world.cluster.delay(LIST, 5):
                calls = [ask(client, 1)]
                await asyncio.sleep(1)
                calls.append(ask(client, 1))
                await asyncio.sleep(1)
                assert brokers.silent_for(1) == pytest.approx(2.0, abs=0.01)
                await asyncio.gather(*calls)
            assert brokers.silent_for(1) == 0.0
            world.network.part({"client"}, {world.address(2)})
            call = ask(client, 2)
            await asyncio.sleep(3)
            assert brokers.silent_for(2) == pytest.approx(3.0, abs=0.01)
            world.network.heal()
            await call
            assert brokers.silent_for(2) == 0.0

    simulate(scenario, brokers=2)


def test_states_name_what_each_broker_does() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1, 2)
            brokers = client.cluster.brokers
            assert brokers.states() == {1: "connected", 2: "connected", 3: "not connected"}
            world.network.refuse(world.address(2))
            world.cluster.disconnect()
            await client.request(ListGroupsRequest(), AnyBroker())
            await asyncio.sleep(2)
            assert brokers.states()[2].startswith("disconnected 2 s ago: The connection failed: ")
            call = ask(client, 2)
            await asyncio.sleep(0.01)
            assert brokers.states()[2].startswith("unreachable 0 s ago: ")
            world.network.refuse(world.address(2), refused=False)
            await call
            assert brokers.states()[2] == "connected"

    simulate(scenario, brokers=3)


async def test_attempt_that_fails_as_its_caller_is_cancelled_is_not_reported_by_the_loop() -> None:
    loop = asyncio.get_running_loop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    waiters: list[asyncio.Future[Any]] = [loop.create_future()]

    class Connecting:
        def connecting(self, purpose: Purpose) -> asyncio.Future[Any]:
            return waiters[0]

    pool: Any = Connecting()
    call = asyncio.ensure_future(_connected_soon(pool))
    await asyncio.sleep(0)
    waiters[0].set_exception(DisconnectedError("refused"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    waiters.clear()
    await asyncio.sleep(0)
    del call
    gc.collect()
    assert reported == []


def test_outcomes_tell_what_came_of_connecting_to_each_broker() -> None:
    async def scenario(world: World) -> None:
        async with world.client(bootstrap_servers=world.address(1)) as client:
            await connect_all(client, 1)
            outcomes = client.cluster.brokers.outcomes
            addresses = [world.address(broker) for broker in (1, 2, 3)]
            assert dict(outcomes()) == dict(
                zip(addresses, ["connected", "not tried yet", "not tried yet"], strict=True)
            )
            world.network.refuse(addresses[1])
            world.network.part({"client"}, {addresses[2]})
            calls = [ask(client, 2), ask(client, 3)]
            await asyncio.sleep(0.5)
            found = dict(outcomes())
            assert found[addresses[0]] == "connected"
            assert "refused" in found[addresses[1]]
            assert found[addresses[2]] == "no answer yet"
            world.network.refuse(addresses[1], refused=False)
            world.network.heal()
            await asyncio.gather(*calls)
            assert dict(outcomes()) == dict.fromkeys(addresses, "connected")

    simulate(scenario, brokers=3)
