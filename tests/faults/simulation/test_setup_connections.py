"""Connections in their setup: what ends them, and what errors and logs say about them."""

import asyncio
import logging

import pytest
from simulated_logins import PLAIN, options, run_with_logins
from world import World, simulate

from aiokclient.cluster.targets import Broker
from aiokclient.errors import BootstrapError, KafkaError, RebootstrapRequiredError
from aiokclient.protocol import ApiKey, messages

LOGIN = "the SASL authentication"


@pytest.mark.fault(35)
@pytest.mark.parametrize("uses_sasl", [False, True])
def test_a_rebootstrap_closes_connections_that_are_being_set_up(uses_sasl: bool) -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN) if uses_sasl else {}
        slow = ApiKey.SASL_AUTHENTICATE if uses_sasl else ApiKey.API_VERSIONS
        more = {**more, "socket_connection_setup_timeout_ms": 60_000, "request_timeout_ms": 60_000}
        async with world.client(**more) as client:
            await client.request(messages.ListGroupsRequest(), Broker(1))
            world.cluster.disconnect(2)
            with world.cluster.delay(slow, 1000, broker=2):
                call = asyncio.create_task(
                    client.request(messages.ListGroupsRequest(), Broker(2), timeout=55)
                )
                await asyncio.sleep(0.5)
                opened = world.network.connections_made
                world.cluster.fail(ApiKey.METADATA, RebootstrapRequiredError, times=1)
                await client.request(messages.MetadataRequest(topics=[]), Broker(1))
                await asyncio.sleep(2)
                numbers = [*world.network.connections]
                assert all(number >= opened for number in numbers), "an old one is open"
            world.cluster.disconnect(2)
            await call

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(34)
def test_a_silent_server_is_described_as_having_accepted() -> None:
    async def scenario(world: World) -> None:
        client = world.client(default_api_timeout_ms=5_000)
        with (
            world.cluster.delay(ApiKey.API_VERSIONS, 1000),
            pytest.raises(BootstrapError) as caught,
        ):
            await client.start()
        assert world.now < 6
        for _, outcome in caught.value.attempts:
            assert outcome == "accepted the connection, but has not answered ApiVersions yet"
        await client.close()

    simulate(scenario, brokers=2)


@pytest.mark.fault(34)
@pytest.mark.parametrize(
    ("api", "awaited"),
    [
        (ApiKey.SASL_HANDSHAKE, "the SASL authentication (SaslHandshake for PLAIN)"),
        (
            ApiKey.SASL_AUTHENTICATE,
            "the SASL authentication (SaslAuthenticate, message 1 of PLAIN)",
        ),
        (ApiKey.METADATA, "Metadata"),
    ],
)
def test_a_server_that_is_silent_later_is_described(api: ApiKey, awaited: str) -> None:
    async def scenario(world: World) -> None:
        client = world.client(**options(world, PLAIN, default_api_timeout_ms=5_000))
        with world.cluster.delay(api, 1000), pytest.raises(BootstrapError) as caught:
            await client.start()
        for _, outcome in caught.value.attempts:
            assert outcome == f"accepted the connection, but has not answered {awaited} yet"
        await client.close()

    run_with_logins(scenario)


@pytest.mark.parametrize("version", [0, 3])
def test_a_server_that_closes_at_newer_versions_is_not_warned_of(
    caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Azure Event Hubs closes the connection at a version of ApiVersions that it does not know."""

    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.API_VERSIONS: (0, version)})
        with world.cluster.drop(ApiKey.API_VERSIONS, times=1 if version == 3 else 2):
            async with world.producer() as producer:
                await producer.send("t", b"v")
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []

    simulate(scenario)


def test_a_server_that_closes_at_each_version_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        client = world.client(default_api_timeout_ms=5_000)
        with world.cluster.drop(ApiKey.API_VERSIONS):
            starting = asyncio.create_task(client.start())
            await asyncio.sleep(1)
            (line,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
            assert "closed the connection before it answered ApiVersions" in line.getMessage()
            with pytest.raises(KafkaError):
                await starting
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
        await client.close()

    simulate(scenario)
