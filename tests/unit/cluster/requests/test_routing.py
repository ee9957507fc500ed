"""Tests of the lookups of coordinators: how long a silent broker is awaited, and shared errors."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any, cast

import pytest
from scripted import ScriptedBroker
from world import World, simulate

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.requests.attempts import RefusalLog
from aiokclient.cluster.requests.brokers import PATIENCE_S, patience_s
from aiokclient.cluster.requests.routing import CoordinatorLocator
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    CoordinatorNotAvailableError,
    GroupAuthorizationError,
    KafkaError,
    RefreshRetriableError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.network.connection import BrokerConnection
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.find_coordinator import Coordinator as CoordinatorEntry
from aiokclient.protocol.messages.find_coordinator import FindCoordinatorResponse


class LookupCluster:
    """A cluster client of a lookup. Connecting never ends while its brokers are silent."""

    def __init__(self, cluster: ClusterClient, *, silent: bool = False) -> None:
        self._cluster = cluster
        self.silent = silent
        self.config = ClientConfig(bootstrap_servers="localhost:9092")
        self.refusals = RefusalLog(ClientLog("aiokclient", "c", None), cluster.clock)
        self.learned: list[Any] = []

    @property
    def updater(self) -> LookupCluster:
        return self

    def learn_broker(self, broker: Any) -> None:
        self.learned.append(broker)

    async def connect_any(self, request: Any) -> BrokerConnection:
        if self.silent:
            await asyncio.get_running_loop().create_future()
        return await self._cluster.brokers.connect_any(request)


def test_patience_doubles_with_each_attempt_without_a_response() -> None:
    waits = [patience_s(in_vain, 40.0) for in_vain in range(6)]
    assert waits == [PATIENCE_S, 2 * PATIENCE_S, 4 * PATIENCE_S, 8 * PATIENCE_S, 40.0, 40.0]
    assert patience_s(10_000, 30.0) == 30.0


def test_lookups_wait_longer_while_no_broker_responds() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            brokers = LookupCluster(client.cluster, silent=True)
            locator = CoordinatorLocator(cast(Any, brokers))

            async def waited() -> float:
                began = world.now
                with pytest.raises(ApiTimeoutError, match=r"no response within \d+\.\d s"):
                    await locator.locate_coordinator("group", "g")
                return world.now - began

            waits = [await waited() for _ in range(5)]
            assert waits == pytest.approx([3.0, 6.0, 12.0, 24.0, 30.0])
            brokers.silent = False
            await locator.locate_coordinator("group", "g")
            locator.forget_coordinator("group", "g")
            brokers.silent = True
            assert await waited() == pytest.approx(3.0), "a response ends the silence"

    simulate(scenario)


@pytest.mark.parametrize("sharing", [0, 2])
async def test_lookup_passes_a_bug_to_the_tasks_that_share_it(sharing: int) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    gate = asyncio.Event()

    class Faulty:
        config = ClientConfig(bootstrap_servers="localhost:9092")

        async def connect_any(self, request: Any) -> BrokerConnection:
            await gate.wait()
            raise ZeroDivisionError

    locator = CoordinatorLocator(cast(Any, Faulty()))
    calls = [
        asyncio.ensure_future(locator.locate_coordinator("group", "g")) for _ in range(1 + sharing)
    ]
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
            cluster = LookupCluster(client.cluster)
            locator = CoordinatorLocator(cast(Any, cluster))
            node_id = await locator.locate_coordinator("group", "g")
            assert [broker.node_id for broker in cluster.learned] == [node_id]
            locator.forget_coordinator("group", "g", node_id + 1)
            assert locator.find_cached("group", "g") == node_id
            locator.forget_coordinator("group", "g", node_id)
            assert locator.find_cached("group", "g") is None
            await locator.locate_coordinators("group", ["a", "b"])
            locator.forget_all()
            assert [locator.find_cached("group", key) for key in "ab"] == [None, None]

    simulate(scenario)


def test_timeout_of_a_lookup_has_the_last_refusal_of_its_key_as_its_cause() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            brokers = LookupCluster(client.cluster)
            locator = CoordinatorLocator(cast(Any, brokers))
            keys = [f"g-{number}" for number in range(102)]
            with world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError):
                found = await locator.locate_coordinators("group", keys[:100])
                assert {type(each) for each in found.values()} == {CoordinatorNotAvailableError}
                await locator.locate_coordinators("group", [keys[0]])  # The newest refusal now.
                await locator.locate_coordinators("group", keys[100:])
            await locator.locate_coordinators("group", [keys[3]])
            locator.forget_coordinator("group", keys[3])
            brokers.silent = True

            async def cause_of(*keys: str) -> BaseException | None:
                found = (await locator.locate_coordinators("group", keys))[keys[0]]
                assert isinstance(found, ApiTimeoutError)
                assert found.api == "FindCoordinator"
                return found.__cause__

            refused = [isinstance(await cause_of(key), KafkaError) for key in keys]
            dropped = {1, 2, 3}  # The oldest two of 102, and the one that succeeded later.
            assert {at for at, found in enumerate(refused) if not found} == dropped
            cause = await cause_of(keys[1], keys[7])
            assert isinstance(cause, CoordinatorNotAvailableError)
            assert cause.__traceback__ is None

    simulate(scenario)


def test_refusals_of_a_lookup_are_logged_at_once_unless_they_usually_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="aiokclient")

    def lines() -> list[str]:
        names = [str(vars(record).get("error")) for record in caplog.records]
        caplog.clear()
        return names

    async def scenario(world: World) -> None:
        async with world.client() as client:
            locator = CoordinatorLocator(cast(Any, LookupCluster(client.cluster)))

            async def refused(error: type[KafkaError]) -> None:
                with (
                    world.cluster.fail(ApiKey.FIND_COORDINATOR, error),
                    pytest.raises(error),
                ):
                    await locator.locate_coordinator("group", "g")

            for pause_s, logged in [(0.0, False), (0.9, False), (0.2, True)]:
                await asyncio.sleep(pause_s)
                await refused(CoordinatorNotAvailableError)
                assert lines() == ["COORDINATOR_NOT_AVAILABLE"] * logged, pause_s
            await refused(GroupAuthorizationError)
            assert lines() == ["GROUP_AUTHORIZATION_FAILED"]
            await locator.locate_coordinator("group", "g")
            locator.forget_all()
            await asyncio.sleep(40.0)  # Until a line like the first one is logged again.
            await refused(CoordinatorNotAvailableError)
            assert not lines(), "the success has ended the refusals before"
            with world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError):
                await locator.locate_coordinators(
                    "group", [f"other-{number}" for number in range(100)]
                )
            await asyncio.sleep(40.0)
            await refused(CoordinatorNotAvailableError)
            assert not lines(), "only the refusals of so many lookups are kept"

    simulate(scenario)


@pytest.mark.parametrize("code", [0, CoordinatorNotAvailableError.code])
def test_key_that_is_missing_in_a_response_is_looked_up_again_later(code: int) -> None:
    """A key that nobody has asked for takes its place."""

    def renamed(request: Any, response: Any) -> Any:
        for entry in response.coordinators:
            if entry.key == "b":
                entry.key, entry.error_code = "c", code
        return response

    async def scenario(world: World) -> None:
        async with world.client() as client:
            brokers = LookupCluster(client.cluster)
            locator = CoordinatorLocator(cast(Any, brokers))
            with world.cluster.alter(ApiKey.FIND_COORDINATOR, renamed):
                found = await locator.locate_coordinators("group", ["a", "b"])
            assert isinstance(found["b"], RefreshRetriableError)
            cached = [locator.find_cached("group", key) is not None for key in "abc"]
            assert cached == [True, False, False]
            assert len(brokers.learned) == 1
            await locator.locate_coordinator("group", "b")
            await locator.locate_coordinator("group", "a")
            assert len(world.requests(ApiKey.FIND_COORDINATOR)) == 2
            brokers.silent = True
            with pytest.raises(ApiTimeoutError) as caught:
                await locator.locate_coordinator("group", "c")
            assert caught.value.__cause__ is None

    simulate(scenario)


def test_lookup_that_is_shared_is_repeated_after_the_first_caller_was_cancelled() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            locator = CoordinatorLocator(client.cluster)
            first, second = (
                asyncio.ensure_future(locator.locate_coordinator("group", "g")) for _ in range(2)
            )
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(RefreshRetriableError, match="returned no coordinator"):
                await second
            assert await locator.locate_coordinator("group", "g") == locator.find_cached(
                "group", "g"
            )

    simulate(scenario)


@pytest.mark.parametrize(("version", "requests"), [(3, 2), (4, 1)])
@pytest.mark.parametrize("node_id", [0, 1])
async def test_several_keys_share_a_request_from_version_4_on(
    version: int, requests: int, node_id: int
) -> None:
    asked: list[Any] = []
    host, port = "127.0.0.1", 9092

    def answer(request: Any, version: int) -> FindCoordinatorResponse:
        asked.append(request)
        if version < 4:
            return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
        entries = [
            CoordinatorEntry(key=key, node_id=node_id, host=host, port=port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=entries)

    async with ScriptedBroker() as broker:
        broker.versions[ApiKey.FIND_COORDINATOR] = (0, version)
        broker.handlers[ApiKey.FIND_COORDINATOR] = answer
        client = ClusterClient(ClientConfig(bootstrap_servers=broker.address))
        await client.start()
        try:
            found = await client.coordinators.locate_coordinators("transaction", ["a", "b"])
            again = await client.coordinators.locate_coordinator("group", "a")
        finally:
            await client.close()
    assert found == dict.fromkeys("ab", BrokerInfo(node_id, host, port))
    assert again == node_id
    assert [request.key_type for request in asked] == [1] * requests + [0]
