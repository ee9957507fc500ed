"""Tests of the deadlines of calls and attempts, and of the errors that report them.

All times are virtual.
"""

from collections.abc import Coroutine
from typing import Any

import pytest
from world import World, simulate

from aiokclient import AnyBroker, Broker, Client, Coordinator, Leader
from aiokclient.cluster.requests.brokers import HANGING_S, PATIENCE_S
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    CoordinatorNotAvailableError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest

LIST = ApiKey.LIST_GROUPS


async def cause(world: World, call: Coroutine[Any, Any, Any], seconds: float) -> KafkaError:
    """Return the last error of a call that ended at its deadline."""
    began = world.now
    with pytest.raises(ApiTimeoutError) as caught:
        await call
    assert world.now - began == pytest.approx(seconds)
    assert caught.value.api == "ListGroups"
    assert isinstance(caught.value.__cause__, KafkaError)
    return caught.value.__cause__


def test_an_attempt_without_a_response_is_retried() -> None:
    async def scenario(world: World) -> None:
        async with world.client(request_timeout_ms=2_000) as client:
            made, began = world.network.connections_made, world.now
            with world.cluster.delay(LIST, 60, times=1):
                await client.request(ListGroupsRequest(), AnyBroker())
            assert 2 < world.now - began < 3
            assert len(world.requests(LIST)) == 2
            assert world.network.connections_made == made + 1, (
                "the connection without a response is closed"
            )

    simulate(scenario)


def test_the_error_at_the_deadline_names_the_last_error() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            with world.cluster.fail(LIST, CoordinatorNotAvailableError):
                call = client.request(ListGroupsRequest(), AnyBroker(), timeout=3)
                assert isinstance(await cause(world, call, 3), CoordinatorNotAvailableError)

    simulate(scenario)


def test_the_deadline_of_a_call_does_not_close_the_connection() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            with world.cluster.delay(LIST, 60, times=1), pytest.raises(ApiTimeoutError):
                await client.request(ListGroupsRequest(), AnyBroker(), timeout=0.5)
            assert client.cluster.find_connection(1, Purpose.CONTROL) is not None

    simulate(scenario)


def test_a_call_for_a_missing_topic_ends_by_its_deadline() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            call = client.request(ListGroupsRequest(), Leader("nope", 0), timeout=3)
            assert isinstance(await cause(world, call, 3), UnknownTopicOrPartitionError)

    simulate(scenario)


def test_a_call_for_a_missing_broker_ends_by_its_deadline() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            call = client.request(ListGroupsRequest(), Broker(7), timeout=3)
            assert "broker 7" in str(await cause(world, call, 3))

    simulate(scenario)


# -- brokers that do not respond -----------------------------------------------------------------


def connected(client: Client) -> int:
    """Return the id of the broker to which the client has connected first."""
    (broker,) = [n for n in (1, 2) if client.cluster.find_connection(n, Purpose.CONTROL)]
    return broker


def test_a_hanging_broker_does_not_delay_metadata() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            hanging, began = connected(client), world.now
            with world.cluster.delay(ApiKey.METADATA, 60, broker=hanging):
                await client.cluster.updater.refresh(timeout=30)
            assert HANGING_S <= world.now - began < PATIENCE_S + 1
            asked = [request.broker for request in world.requests(ApiKey.METADATA, since=began)]
            assert asked == [hanging, 3 - hanging]
            still = client.cluster.find_connection(hanging, Purpose.CONTROL)
            assert still is not None, "the broker may still respond"

    simulate(scenario, brokers=2)


def test_a_hanging_broker_does_not_delay_a_coordinator_lookup() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            hanging, began = connected(client), world.now
            world.cluster.move_coordinator("g", to=3 - hanging)
            with world.cluster.delay(ApiKey.FIND_COORDINATOR, 60, broker=hanging):
                await client.request(ListGroupsRequest(), Coordinator("group", "g"), timeout=30)
            assert HANGING_S <= world.now - began < PATIENCE_S + 1
            asked = [request.broker for request in world.requests(ApiKey.FIND_COORDINATOR)]
            assert asked == [hanging, 3 - hanging]
            still = client.cluster.find_connection(hanging, Purpose.CONTROL)
            assert still is not None, "the broker may still respond"

    simulate(scenario, brokers=2)


# -- the bootstrap ------------------------------------------------------------------------------


@pytest.mark.fault(16)
def test_a_call_ends_by_its_deadline_when_a_name_does_not_resolve() -> None:
    async def scenario(world: World) -> None:
        client = world.client(bootstrap_servers="kafka.example:9092", default_api_timeout_ms=2_000)
        with pytest.raises(BootstrapError, match=r"kafka\.example.*cannot be resolved"):
            await client

    simulate(scenario)


def test_a_call_ends_by_its_deadline_when_connections_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        servers = ["127.0.0.1:1", "127.0.0.1:2"]
        client = world.client(bootstrap_servers=servers, default_api_timeout_ms=5_000)
        with pytest.raises(BootstrapError) as caught:
            await client
        assert dict(caught.value.attempts).keys() == set(servers)
        for server in servers:
            assert str(caught.value).count(server) == 1
        assert "refused" in str(caught.value)

    simulate(scenario)
    assert len(caplog.records) == 2, (
        "there is one warning for each server, not one for each attempt"
    )
