"""Tests of starting and closing: deadlines, failures in the background, and causes of errors.

All times are virtual.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from world import World, simulate

from aiokclient.cluster.client import REFUSED_START
from aiokclient.cluster.requests.routing import CoordinatorLocator
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import (
    ApiTimeoutError,
    BootstrapError,
    ClosedError,
    CoordinatorNotAvailableError,
    DisconnectedError,
    GroupAuthorizationError,
    KafkaError,
)
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest


@pytest.mark.parametrize("refused", [True, False])
def test_error_of_a_start_has_the_refusal_as_its_cause_and_says_what_to_check(
    refused: bool,
) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            cluster = client.cluster
            fault = (
                world.cluster.fail(ApiKey.LIST_GROUPS, CoordinatorNotAvailableError)
                if refused
                else world.cluster.delay(ApiKey.LIST_GROUPS, 100.0)
            )
            began = world.now
            with fault, pytest.raises(BootstrapError) as caught:
                async with cluster.limit_start(cluster.clock.monotonic() + 3.0):
                    await cluster.request(ListGroupsRequest(), AnyBroker(), timeout=60.0)
            assert world.now - began == pytest.approx(3.0)
            assert (caught.value.hint == REFUSED_START) is refused
            cause = caught.value.__cause__
            assert isinstance(cause, CoordinatorNotAvailableError) is refused
            if cause is not None:
                assert cause.__traceback__ is None

    simulate(scenario)


def test_failure_of_a_task_ends_the_calls_that_wait_for_metadata() -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        await client.start()
        cluster = client.cluster
        failure = GroupAuthorizationError("The group is gone.")
        with world.cluster.drop(ApiKey.METADATA):
            waiting = asyncio.ensure_future(cluster.updater.refresh(timeout=600.0))
            await asyncio.sleep(0.5)
            began = world.now
            cluster.supervisor.fail(failure, "metadata")
            with pytest.raises(GroupAuthorizationError):
                await waiting
            assert world.now == began
        await client.close()
        with pytest.raises(GroupAuthorizationError):
            await cluster.updater.refresh(timeout=600.0)

    simulate(scenario)


def test_failure_of_a_task_ends_the_calls_that_wait_for_the_first_broker() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.drop(ApiKey.METADATA):
            client = world.client()
            await client.start(wait=False)
            cluster = client.cluster
            assert not cluster.reached
            with pytest.raises(BootstrapError, match=r"within 2\.0 s"):
                await cluster.wait_until_reached(2.0)
            waiting = asyncio.ensure_future(cluster.wait_until_reached(600.0))
            await asyncio.sleep(0.5)
            began = world.now
            cluster.supervisor.fail(GroupAuthorizationError("The group is gone."), "bootstrap")
            with pytest.raises(GroupAuthorizationError):
                await waiting
            assert world.now == began
            await client.close()

    simulate(scenario)


def test_metadata_is_refused_after_the_close() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            updater = client.cluster.updater
        began = world.now
        with pytest.raises(ClosedError):
            await updater.refresh(timeout=600.0)
        assert world.now == began

    simulate(scenario)


def test_handle_that_nobody_awaits_is_not_reported_after_the_close() -> None:
    reported: list[dict[str, Any]] = []

    async def scenario(world: World) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, seen: reported.append(seen))
        with world.cluster.delay(ApiKey.LIST_GROUPS, 100.0):
            async with world.client() as client:
                handle = client.cluster.send(ListGroupsRequest(), AnyBroker())
                await asyncio.sleep(0.5)
        del handle
        gc.collect()
        await asyncio.sleep(0)

    simulate(scenario)
    assert not reported


def test_timeouts_of_a_client_are_those_of_its_options() -> None:
    async def scenario(world: World) -> None:
        began = world.now
        with world.cluster.drop(ApiKey.METADATA), pytest.raises(BootstrapError):
            await world.client(default_api_timeout_ms=2000).start()
        assert world.now - began == pytest.approx(2.0, abs=1e-4)
        async with world.client(request_timeout_ms=1000) as client:
            locator: CoordinatorLocator = client.cluster.coordinators
            began = world.now
            with (
                world.cluster.delay(ApiKey.FIND_COORDINATOR, 100.0),
                pytest.raises(ApiTimeoutError),
            ):
                await locator.locate_coordinator("group", "g")
            assert world.now - began == pytest.approx(1.0, abs=1e-4)

    simulate(scenario)


@pytest.mark.parametrize("idle_ms", [3000, -1])
def test_connection_is_closed_when_it_was_idle_as_long_as_its_client_says(idle_ms: int) -> None:
    async def scenario(world: World) -> None:
        async with world.client(connections_max_idle_ms=idle_ms) as client:
            await asyncio.sleep(2.5)
            assert client.cluster.brokers.connections == 1
            await asyncio.sleep(5.0)
            assert client.cluster.brokers.connections == (idle_ms < 0)

    simulate(scenario)


def test_timeout_of_a_call_tells_what_came_after_the_last_answer() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            cluster = client.cluster
            failed: list[KafkaError] = []

            async def lose(error: KafkaError) -> None:
                if len(failed) == 1:
                    world.cluster.drop(ApiKey.LIST_GROUPS)

            world.cluster.fail(ApiKey.LIST_GROUPS, CoordinatorNotAvailableError, times=1)
            with pytest.raises(ApiTimeoutError) as caught:
                await cluster.request(
                    ListGroupsRequest(),
                    AnyBroker(),
                    timeout=2.0,
                    failed=failed.append,
                    before_retry=lose,
                )
            assert isinstance(failed[0], CoordinatorNotAvailableError)
            assert caught.value.__cause__ is failed[0]
            assert {type(error) for error in failed[1:]} == {DisconnectedError}
            assert "After the last answer: " in str(caught.value)
            assert cluster.calls.find_cause(AnyBroker()) is None
            world.cluster.reset()
            world.cluster.fail(ApiKey.LIST_GROUPS, CoordinatorNotAvailableError)
            with pytest.raises(ApiTimeoutError) as caught:
                await cluster.request(ListGroupsRequest(), AnyBroker(), timeout=2.0)
            assert "After the last answer" not in str(caught.value)
            world.cluster.reset()

    simulate(scenario)
