"""Clients without a login in virtual time, whose connections end without an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest
from simulated_logins import run_with_logins
from world import World

from aiokclient import AnyBroker, Broker
from aiokclient.errors import BootstrapError
from aiokclient.protocol import ApiKey, messages


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("waits", [True, False])
def test_a_missing_login_is_warned_of_once_and_named_at_the_deadline(
    caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    advice = "requires SASL with PLAIN or SCRAM-SHA-512"

    async def scenario(world: World) -> None:
        began = world.now
        servers = world.cluster.bootstrap_servers_for("SASL")
        client = world.client(bootstrap_servers=servers, default_api_timeout_ms=70_000)
        if not waits:
            await client.start(wait=False)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(1)
        assert [advice in text for text in warnings_of(caplog)] == [True], "warned at once"
        with pytest.raises(BootstrapError, match=advice) as caught:
            await starting
        assert world.now - began == pytest.approx(70, abs=1.1)
        assert all(advice in outcome for _, outcome in caught.value.attempts)
        assert len(warnings_of(caplog)) == 1
        await client.close()

    run_with_logins(scenario)


def test_a_missing_login_is_warned_of_although_the_server_was_down_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        servers = world.cluster.bootstrap_servers_for("SASL")
        world.cluster.stop(1)
        world.cluster.stop(2)
        client = world.client(bootstrap_servers=servers, default_api_timeout_ms=20_000)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(5)
        world.cluster.start(1)
        world.cluster.start(2)
        with pytest.raises(BootstrapError):
            await starting
        assert sum("requires SASL with" in text for text in warnings_of(caplog)) == 1
        await client.close()

    run_with_logins(scenario)


def offer_mechanisms(request: Any, response: Any) -> Any:
    """Name mechanisms, as some brokers do that do not require a login."""
    return messages.SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_start_goes_on_when_brokers_name_mechanisms_and_lose_connections(times: int) -> None:
    async def scenario(world: World) -> None:
        with (
            world.cluster.alter(ApiKey.SASL_HANDSHAKE, offer_mechanisms),
            world.cluster.drop(ApiKey.METADATA, times=times),
        ):
            async with world.producer() as producer:
                await producer.send("t", b"v")

    run_with_logins(scenario)


@pytest.mark.parametrize("lost_again", [0.0, 0.2])
def test_clients_go_on_when_brokers_name_mechanisms_and_lose_connections(lost_again: float) -> None:
    apis = (
        ApiKey.METADATA,
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.END_TXN,
        ApiKey.FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.LIST_GROUPS,
    )

    async def scenario(world: World) -> None:
        with contextlib.ExitStack() as faults:
            faults.enter_context(world.cluster.alter(ApiKey.SASL_HANDSHAKE, offer_mechanisms))
            for api in apis:
                faults.enter_context(world.cluster.drop(api, times=2))
            async with (
                world.client() as client,
                world.producer() as producer,
                world.producer(transactional_id="x") as writer,
                world.consumer("t", group_id="g", isolation_level="read_committed") as consumer,
            ):
                for number in range(10):
                    await producer.send("t", b"p%d" % number)
                    async with writer.transaction() as tx:
                        tx.send("t", b"t%d" % number)
                    await client.request(messages.ListGroupsRequest(), AnyBroker())
                    if lost_again:
                        world.cluster.disconnect(1)
                        await asyncio.sleep(lost_again)
                        world.cluster.disconnect(2)
                seen: set[bytes] = set()
                while len(seen) < 20:
                    seen.update(record.value for record in await consumer.poll(1))
                await consumer.commit()

    run_with_logins(scenario)


def test_brokers_that_have_answered_without_a_login_are_never_asked_for_their_mechanisms() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            for node_id in (1, 2):
                await client.request(messages.ListGroupsRequest(), Broker(node_id))
            world.cluster.disconnect()
            with (
                world.cluster.drop(ApiKey.METADATA, times=5),
                world.cluster.drop(ApiKey.LIST_GROUPS, times=5),
            ):
                for node_id in (1, 2):
                    await client.request(messages.ListGroupsRequest(), Broker(node_id))
            await asyncio.sleep(5)
            assert world.requests(ApiKey.SASL_HANDSHAKE) == []

    run_with_logins(scenario)


def test_a_rebootstrap_goes_on_when_brokers_name_mechanisms_and_lose_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(metadata_recovery_rebootstrap_trigger_ms=0) as producer:
            await producer.send("t", b"before")
            with world.cluster.alter(ApiKey.SASL_HANDSHAKE, offer_mechanisms):
                world.cluster.stop(1)
                world.cluster.stop(2)
                delivery = producer.send("t", b"during")
                await asyncio.sleep(5)
                with world.cluster.drop(ApiKey.METADATA, times=6):
                    world.cluster.start(1)
                    world.cluster.start(2)
                    await delivery
        assert not any("SASL" in text for text in warnings_of(caplog))

    run_with_logins(scenario)
