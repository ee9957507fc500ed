"""Tests of how the client's state, its health, and the log show whether brokers can be reached."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

import pytest
from scripted import ScriptedBroker

from aiokclient import Client, State
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.requests.reachability import GRACE_S
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import DisconnectedError
from aiokclient.network.pool import Purpose
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.testing import EmbeddedCluster, Simulation

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
    assert client.troubles() == []
    assert client.brokers.states() == {1: "connected"}
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
