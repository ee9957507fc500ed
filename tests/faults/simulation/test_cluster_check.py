"""The check that a connection has reached the intended broker (KIP-1242), and wrong addresses."""

import asyncio
from typing import Any

import pytest
from rebootstrapping import (
    FAULT_S,
    OLD,
    OPTIONS,
    TOPICS,
    WORKS,
    ProducerWork,
    Watch,
    bootstrap_servers,
    connect_to_all,
    name_leads_to,
    until_healthy,
    until_more,
)
from thinned import in_turns, one_in
from world import World, simulate

from aiokclient import AnyBroker
from aiokclient.cluster.recovery import Trigger
from aiokclient.protocol import ApiKey, messages


def ids(world: World) -> list[tuple[int, str | None, int]]:
    """Return the version and the ids of each ApiVersions request."""
    requests = world.requests(ApiKey.API_VERSIONS)
    return [(each.version, each.message.cluster_id, each.message.node_id) for each in requests]


def test_each_connection_to_a_broker_carries_the_ids_and_bootstrap_connections_do_not() -> None:
    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        async with world.client(bootstrap_servers=bootstrap_servers(world)) as client:
            await connect_to_all(world, client)
            first, *others = ids(world)
            assert first == (5, None, -1)
            assert {node for _, _, node in others} == {1, 2, 3}
            assert {cluster for _, cluster, _ in others} == {world.cluster.cluster_id}
            assert world.network.connections_made == len(others) + 1

    simulate(scenario, brokers=3)


def test_bootstrap_connection_is_used_once_its_broker_has_confirmed_its_id() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            assert world.network.connections_made == 1
            assert ids(world) == [(5, None, -1), (5, world.cluster.cluster_id, 1)]

    simulate(scenario)


@pytest.mark.parametrize(
    "option", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}]
)
def test_no_ids_are_sent_when_the_check_is_off(option: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        async with world.client(**option) as client:
            await connect_to_all(world, client)
            assert set(ids(world)) == {(5, None, -1)}

    simulate(scenario, brokers=3)


def test_brokers_before_4_4_get_the_same_requests_with_and_without_the_check() -> None:
    """With and without the check, all requests are equal, except the first ApiVersions request.

    These brokers do not support its version.
    """

    async def run(world: World, *, check: bool) -> list[Any]:
        world.cluster.limit_versions({ApiKey.API_VERSIONS: (0, 4)})
        async with world.client(metadata_cluster_check_enable=check) as client:
            await connect_to_all(world, client)
        return [(each.api, each.version, each.message) for each in world.cluster.requests]

    found = []
    for check in (True, False):
        requests = simulate(lambda world, check=check: run(world, check=check), brokers=3)
        found.append([each for each in requests if each[:2] != (ApiKey.API_VERSIONS, 5)])
    assert found[0] == found[1]


@pytest.mark.fault(26)
def test_wrong_broker_at_an_address_gets_nothing_and_causes_a_rebootstrap() -> None:
    """Two brokers have swapped their addresses, and the client still has the old metadata."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        work = ProducerWork(world, {})
        async with work.main() as producer:
            watch = Watch(world, producer._cluster)
            watch.begin()
            running = asyncio.create_task(work.run())
            await until_more(world, work, 9)
            one, two = (world.cluster._brokers[broker] for broker in (1, 2))
            for broker in (1, 2):
                world.cluster.stop(broker)
            one.endpoints, two.endpoints = two.endpoints, one.endpoints
            for broker in (1, 2):
                world.cluster.start(broker)
            swapped = world.now
            await until_more(world, work, 9)
            running.cancel()
            await asyncio.wait([running])
            await work.finish()
        when, trigger = watch.rebootstraps[0]
        assert trigger is Trigger.REQUIRED
        assert when - swapped < 2
        refused = [
            each
            for each in world.requests(ApiKey.API_VERSIONS, since=swapped)
            if each.message.node_id not in (-1, each.broker)
        ]
        assert refused

    simulate(scenario, brokers=3, topics=TOPICS, replication=3)


def exchange_addresses(request: Any, response: Any) -> Any:
    one, two = (each for each in response.brokers if each.node_id in (1, 2))
    one.port, two.port = two.port, one.port
    return response


def exchange_ids(request: Any, response: Any) -> Any:
    for each in response.brokers:
        each.node_id = {1: 2, 2: 3, 3: 1}[each.node_id]
    return response


def name_dead_address(request: Any, response: Any) -> Any:
    response.brokers[0].port += 1000
    return response


def name_dead_host(request: Any, response: Any) -> Any:
    response.brokers[0].host = "nowhere.test"
    return response


WRONG = [exchange_addresses, exchange_ids, name_dead_address, name_dead_host]
OLDER: dict[ApiKey, tuple[int, int] | None] = {ApiKey.API_VERSIONS: (0, 4)}


@pytest.mark.fault(26)
@pytest.mark.parametrize(("wrong", "limits"), in_turns(2, WRONG, [{}, OLDER]))
@pytest.mark.parametrize(
    ("strategy", "kind"),
    one_in(
        3,
        [
            ("rebootstrap", "shared client"),
            ("rebootstrap", "consumer in a classic group"),
            ("none", "shared client"),
            ("none", "consumer in a classic group"),
        ],
    ),
)
def test_nothing_is_lost_while_metadata_names_wrong_addresses(
    wrong: Any, limits: dict[Any, Any], strategy: str, kind: str
) -> None:
    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        world.cluster.limit_versions(limits)
        work = WORKS[kind](world, {**OPTIONS, "metadata_recovery_strategy": strategy})
        async with work.main() as client:
            running = asyncio.create_task(work.run())
            await until_more(world, work, 9)
            with world.cluster.alter(ApiKey.METADATA, wrong):
                world.cluster.disconnect()
                opened, began = world.network.connections_made, world.now
                calling = asyncio.create_task(work.make_calls())
                await asyncio.sleep(FAULT_S)
                # No busy loop sends requests or opens connections.
                assert len(world.requests(ApiKey.METADATA, since=began)) < 12 * FAULT_S
                assert world.network.connections_made - opened < 24 * FAULT_S
                calling.cancel()
            await until_more(world, work, 9)
            running.cancel()
            await asyncio.wait([running, calling])
            await work.finish()
            assert not work.late
            await until_healthy(world, client)

    simulate(scenario, brokers=3, topics=TOPICS, replication=3)
