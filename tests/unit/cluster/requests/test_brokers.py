"""Tests of which broker serves a request that any broker can serve, and of how brokers are shown.

All times are virtual.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from scripted import ScriptedBroker
from world import World, simulate

from aiokclient import AnyBroker, Broker, Client, State
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.requests.brokers import GRACE_S, _connected_soon
from aiokclient.errors import DisconnectedError, InvalidMetadataError
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.testing import EmbeddedCluster, Simulation

LIST = ApiKey.LIST_GROUPS


async def connect_all(client: Client, *brokers: int) -> None:
    for node_id in brokers:
        await client.request(ListGroupsRequest(), Broker(node_id))


def ask(client: Client, node_id: int) -> asyncio.Task[Any]:
    """Send a request that the broker does not answer for now."""
    call: Coroutine[Any, Any, Any] = client.request(ListGroupsRequest(), Broker(node_id))
    return asyncio.ensure_future(call)


def chosen(client: Client, **options: Any) -> set[int]:
    return {client.cluster.brokers.choose_pool(**options).node_id for _ in range(50)}


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
            brokers.avoid_broker(2)
            assert chosen(client) == {1, 3}
            assert chosen(client, unfit={1, 3}) == {2}
            brokers.avoid_broker(None)
            assert chosen(client) == {1, 2, 3}
            with pytest.raises(InvalidMetadataError, match="No broker is known"):
                brokers.choose_pool(unfit={-1, 1, 2, 3})

    simulate(scenario, brokers=3)


def test_broker_without_a_connection_is_tried_before_a_connected_one_that_is_silent() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            connected = next(
                n for n in (1, 2) if client.cluster.find_connection(n, Purpose.CONTROL) is not None
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
            assert (brokers.measure_silence_s(1), brokers.measure_silence_s(2)) == (0.0, 0.0)
            with world.cluster.delay(LIST, 5):
                calls = [ask(client, 1)]
                await asyncio.sleep(1)
                calls.append(ask(client, 1))
                await asyncio.sleep(1)
                assert brokers.measure_silence_s(1) == pytest.approx(2.0, abs=0.01)
                await asyncio.gather(*calls)
            assert brokers.measure_silence_s(1) == 0.0
            world.network.part({"client"}, {world.address(2)})
            call = ask(client, 2)
            await asyncio.sleep(3)
            assert brokers.measure_silence_s(2) == pytest.approx(3.0, abs=0.01)
            world.network.heal()
            await call
            assert brokers.measure_silence_s(2) == 0.0

    simulate(scenario, brokers=2)


def test_states_name_what_each_broker_does() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await connect_all(client, 1, 2)
            brokers = client.cluster.brokers
            assert brokers.list_states() == {1: "connected", 2: "connected", 3: "not connected"}
            world.network.refuse(world.address(2))
            world.cluster.disconnect()
            await client.request(ListGroupsRequest(), AnyBroker())
            await asyncio.sleep(2)
            assert brokers.list_states()[2].startswith(
                "disconnected 2 s ago: The connection failed: "
            )
            call = ask(client, 2)
            await asyncio.sleep(0.01)
            assert brokers.list_states()[2].startswith("unreachable 0 s ago: ")
            world.network.refuse(world.address(2), refused=False)
            await call
            assert brokers.list_states()[2] == "connected"

    simulate(scenario, brokers=3)


async def test_attempt_that_fails_as_its_caller_is_cancelled_is_not_reported_by_the_loop() -> None:
    loop = asyncio.get_running_loop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    waiters: list[asyncio.Future[Any]] = [loop.create_future()]

    class Connecting:
        def request_connection(self, purpose: Purpose) -> asyncio.Future[Any]:
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
            outcomes = client.cluster.brokers.list_outcomes
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


Open = Callable[..., Awaitable[ClusterClient]]


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.__dict__["event"] for record in caplog.records if record.levelno >= logging.WARNING
    ]


async def test_client_is_healthy_after_one_of_its_idle_connections_was_cut(
    broker: ScriptedBroker, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    client = await open_client()
    idle = await client.connect(1, Purpose.PRODUCE)
    asked = broker.count(ApiKey.METADATA)
    idle.close(DisconnectedError("the broker closed the connection", broker=1))
    assert not client.is_reachable(1)
    await broker.until(lambda: broker.count(ApiKey.METADATA) > asked)
    broker.handlers[ApiKey.LIST_GROUPS] = lambda *_: ListGroupsResponse()
    await client.request(ListGroupsRequest(), AnyBroker())
    assert client.is_reachable(1)
    assert client.list_troubles() == []
    assert client.brokers.list_states() == {1: "connected"}
    assert events(caplog) == []


def test_only_connection_of_a_client_when_cut_makes_it_neither_degraded_nor_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster() as cluster:
            options = {"connector": sim.connector, "clock": sim.clock}
            async with Client(bootstrap_servers=cluster.bootstrap_servers, **options) as client:
                seen = set()
                for _ in range(20):
                    cluster.disconnect()
                    for _ in range(50):
                        await asyncio.sleep(0.01)
                        seen.add(client.state)
                assert seen == {State.RUNNING}
                await asyncio.sleep(60)
                assert (client.state, client.health().reasons) == (State.RUNNING, ())

    Simulation(1).run(main)
    assert events(caplog) == []


def test_lost_and_returned_brokers_are_logged_once_with_the_duration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster(brokers=3) as cluster:
            servers = cluster.bootstrap_servers
            options = {"connector": sim.connector, "clock": sim.clock, "client_id": "app 100%"}
            async with Client(bootstrap_servers=servers, **options) as client:
                for node_id in (1, 2):
                    cluster.stop(node_id)
                    await asyncio.sleep(30)
                    assert events(caplog) == []
                cluster.stop(3)
                await asyncio.sleep(100)
                assert client.state is State.DEGRADED
                assert events(caplog) == ["brokers_unreachable"]
                text = caplog.records[-1].getMessage()
                for node_id, address in client.health().addresses.items():
                    assert text.count(f"Broker {node_id} ({address})") == 1
                    assert text.count(address) == 1
                cluster.start(2)
                await asyncio.sleep(10)
                assert client.state is State.RUNNING
                assert events(caplog) == ["brokers_unreachable", "brokers_back"]

    caplog.set_level(logging.WARNING, "aiokclient")
    Simulation(2).run(main)
    back = caplog.records[-1]
    assert "Broker 2 (" in back.getMessage()
    assert "app 100%" in back.getMessage()
    assert 95 < back.__dict__["seconds"] < 110
    assert f"{back.__dict__['seconds']:.1f} s" in back.getMessage()


def test_brokers_that_lose_packets_are_logged_after_a_grace_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster() as cluster:
            options = {"connector": sim.connector, "clock": sim.clock}
            async with Client(bootstrap_servers=cluster.bootstrap_servers, **options) as client:
                sim.network.part(["client"], [cluster.bootstrap_servers])
                sim.network.cut()
                await asyncio.sleep(GRACE_S + 0.1)
                assert client.state is State.DEGRADED
                assert events(caplog) == ["brokers_unreachable"]

    Simulation(3).run(main)


async def test_health_has_one_line_for_each_broker_and_no_internal_ids() -> None:
    async with (
        EmbeddedCluster(brokers=3) as cluster,
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
    ):
        await client.request(ListGroupsRequest(), to=AnyBroker())
        health = client.health()
        assert sorted(health.brokers) == [1, 2, 3]
        lines = str(health).splitlines()
        assert len(lines) == 4
        assert lines[0] == "RUNNING"
        for line, (node_id, address) in zip(lines[1:], health.addresses.items(), strict=True):
            assert line.strip().startswith(f"broker {node_id} ({address}): ")
        assert "connected" in health.brokers.values()


async def test_health_names_each_lost_broker_once() -> None:
    cluster = EmbeddedCluster(brokers=2)
    async with cluster:
        servers = cluster.bootstrap_servers
        async with Client(bootstrap_servers=servers, close_timeout_ms=0) as client:
            cluster.stop(1)
            cluster.stop(2)
            while client.state is not State.DEGRADED:  # noqa: ASYNC110 - it notices some time
                await asyncio.sleep(0.01)
            text = str(client.health())
            assert "-1" not in text
            for address in client.health().addresses.values():
                assert f"{address})" in text
            for line in text.splitlines()[2:]:
                assert line.count("127.0.0.1") + line.count("localhost") == 1, line


def test_health_tells_how_long_ago_a_broker_could_not_be_reached() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster(brokers=2) as cluster:
            options = {"connector": sim.connector, "clock": sim.clock}
            servers = cluster.bootstrap_servers
            async with Client(bootstrap_servers=servers, **options) as client:
                cluster.stop(1)
                cluster.stop(2)
                await asyncio.sleep(30)
                assert client.health().reasons == ("no broker can be reached",)
                cluster.start(1)
                cluster.start(2)
                await asyncio.sleep(100)
                health = client.health()
                assert (client.state, health.reasons) == (State.RUNNING, ())
                states = sorted(health.brokers.values())
                assert states[0] == "connected"
                found = re.fullmatch(r"unreachable (\d+) s ago: [^\n]+", states[1])
                assert found is None or 95 < int(found[1]) < 110
                assert found is not None or states[1] in ("connected", "not connected")

    Simulation(5).run(main)
