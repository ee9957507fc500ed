"""Tests of routing, the retry loop, and deadlines, with a scripted broker."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted import ScriptedBroker

from aiokclient.cluster.client import ClusterClient, top_level_error
from aiokclient.cluster.targets import AnyBroker, Broker, Controller, Coordinator, Leader, Target
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    ConfigError,
    DisconnectedError,
    GroupAuthorizationError,
    InvalidMetadataError,
    KafkaError,
    NotCoordinatorError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.pool import Purpose
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.describe_groups import DescribeGroupsRequest
from aiokclient.protocol.messages.find_coordinator import (
    Coordinator as CoordinatorEntry,
)
from aiokclient.protocol.messages.find_coordinator import (
    FindCoordinatorResponse,
)
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.metadata import MetadataResponse

Open = Callable[..., Awaitable[ClusterClient]]
LIST = ApiKey.LIST_GROUPS


def script(broker: ScriptedBroker, *answers: Any) -> None:
    """Set the broker's responses to ListGroups. The last one is repeated."""
    left = list(answers)

    def answer(request: Any, version: int) -> Any:
        code = left.pop(0) if len(left) > 1 else left[0]
        return ListGroupsResponse(error_code=code) if isinstance(code, int) else code

    broker.handlers[LIST] = answer


def test_top_level_error_is_that_of_the_code_if_the_response_has_one() -> None:
    assert top_level_error(ListGroupsResponse(error_code=0)) is None
    assert isinstance(top_level_error(ListGroupsResponse(error_code=16)), NotCoordinatorError)
    assert top_level_error(object()) is None


@pytest.mark.parametrize(
    "to", [AnyBroker(), Broker(1), Controller(), Leader("orders", 0), Coordinator("group", "g")]
)
async def test_requests_are_sent_to_every_kind_of_target(
    broker: ScriptedBroker, open_client: Open, to: Target
) -> None:
    broker.topics["orders"] = [1]
    broker.handlers[ApiKey.FIND_COORDINATOR] = lambda request, version: FindCoordinatorResponse(
        coordinators=[CoordinatorEntry(key="g", node_id=1, host="127.0.0.1", port=broker.port)]
    )
    script(broker, 0)
    client = await open_client()
    response = await client.request(ListGroupsRequest(), to)
    assert isinstance(response, ListGroupsResponse)
    assert broker.opened == 1, "the bootstrap connection is reused for the broker"


async def test_a_retriable_error_is_retried(broker: ScriptedBroker, open_client: Open) -> None:
    script(broker, 15, 14, 7, 0)
    client = await open_client()
    await client.request(ListGroupsRequest(), AnyBroker())
    assert broker.count(LIST) == 4
    counts = client.metrics.take_snapshot()
    assert sum(count for name, count in counts.items() if "retries" in name) == 3  # type: ignore[misc]
    assert counts["client.connections"] == 1


async def test_a_fatal_error_is_raised_with_its_broker_and_api(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, 30)
    client = await open_client()
    with pytest.raises(GroupAuthorizationError) as caught:
        await client.request(ListGroupsRequest(), AnyBroker())
    assert (caught.value.api, caught.value.broker) == ("ListGroups", 1)
    assert broker.count(LIST) == 1


async def test_a_lost_connection_is_retried(broker: ScriptedBroker, open_client: Open) -> None:
    script(broker, ConnectionError, ConnectionError, 0)
    client = await open_client()
    await client.request(ListGroupsRequest(), AnyBroker())
    assert broker.count(LIST) == 3


async def test_errors_inside_of_a_response_are_found_by_check(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, 0)
    client = await open_client()
    errors: list[KafkaError | None] = [InvalidMetadataError("inside"), None]
    await client.request(ListGroupsRequest(), AnyBroker(), check=lambda _: errors.pop(0))
    assert broker.count(LIST) == 2


async def test_a_request_follows_a_leader_that_moved(
    broker: ScriptedBroker, open_client: Open
) -> None:
    broker.topics["orders"] = [1]
    client = await open_client()
    async with ScriptedBroker(node_id=2) as second:
        broker.brokers[2] = second.port
        script(second, 0)

        def moved(request: Any, version: int) -> Any:
            broker.topics["orders"], broker.epoch = [2], 2
            return ListGroupsResponse(error_code=6)

        broker.handlers[LIST] = moved
        await client.request(ListGroupsRequest(), Leader("orders", 0))
        # The client may send to the old leader again before it knows the new one.
        assert broker.count(LIST) >= 1
        assert second.count(LIST) == 1


async def test_an_api_that_the_broker_lacks_is_refused(
    broker: ScriptedBroker, open_client: Open
) -> None:
    client = await open_client()
    with pytest.raises(UnsupportedVersionError, match="does not support the API DescribeGroups"):
        await client.request(DescribeGroupsRequest(groups=["g"]), AnyBroker())


@pytest.mark.fault(33)
async def test_versions_are_negotiated_again_after_a_restart(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, 0)
    client = await open_client()
    await client.request(ListGroupsRequest(), AnyBroker())
    broker.versions[LIST] = (0, 2)
    broker.cut()
    await client.request(ListGroupsRequest(), AnyBroker())
    versions = [
        r.header.request_api_version for r in broker.seen if r.header.request_api_key == LIST
    ]
    assert versions == [5, 2]


@pytest.mark.fault(19)
async def test_a_response_out_of_order_leads_to_a_retry_on_a_new_connection(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", 0)
    client = await open_client()
    await client.request(ListGroupsRequest(), AnyBroker())
    assert broker.opened == 2


async def test_a_coordinator_that_moved_is_looked_up_again(
    broker: ScriptedBroker, open_client: Open
) -> None:
    def coordinator(request: Any, version: int) -> Any:
        assert request.key_type == 0
        entries = [
            CoordinatorEntry(key=key, node_id=1, host="127.0.0.1", port=broker.port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=entries)

    broker.handlers[ApiKey.FIND_COORDINATOR] = coordinator
    script(broker, 0, 16, 0)
    client = await open_client()
    for _ in range(2):
        await client.request(ListGroupsRequest(), Coordinator("group", "g"))
    assert broker.count(ApiKey.FIND_COORDINATOR) == 2


async def test_lookups_of_one_coordinator_share_a_request(
    broker: ScriptedBroker, open_client: Open
) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    broker.handlers[ApiKey.FIND_COORDINATOR] = lambda request, version: FindCoordinatorResponse(
        node_id=1, host="127.0.0.1", port=broker.port
    )
    client = await open_client()
    found = await asyncio.gather(
        *(client.coordinators.locate_coordinator("group", "g") for _ in range(5))
    )
    assert found == [1] * 5
    assert broker.count(ApiKey.FIND_COORDINATOR) == 1
    many = await client.coordinators.locate_coordinators("group", ["a", "b"])
    assert set(many) == {"a", "b"}
    assert broker.count(ApiKey.FIND_COORDINATOR) == 3


async def test_an_unknown_kind_of_coordinator_is_refused(open_client: Open) -> None:
    client = await open_client()
    with pytest.raises(ConfigError, match="group, transaction, share"):
        await client.request(ListGroupsRequest(), Coordinator("grup", "g"))


async def test_a_handle_can_be_awaited_again(broker: ScriptedBroker, open_client: Open) -> None:
    script(broker, 0)
    client = await open_client()
    handle = client.send(ListGroupsRequest(), AnyBroker())
    assert not handle.done()
    with pytest.raises(asyncio.InvalidStateError):
        handle.result()
    impatient = asyncio.ensure_future(handle)
    await asyncio.sleep(0)
    impatient.cancel()
    first = await handle
    assert await handle is first
    assert handle.exception() is None
    called: list[Any] = []
    handle.add_done_callback(called.append)
    await asyncio.sleep(0)
    assert called == [handle]


async def test_handles_fail_when_the_client_closes(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, None)
    client = await open_client()
    handle = client.send(ListGroupsRequest(), AnyBroker())
    await broker.until(lambda: broker.count(LIST) == 1)
    await client.close()
    with pytest.raises(ClosedError):
        await handle
    with pytest.raises(ClosedError):
        await client.request(ListGroupsRequest(), AnyBroker())


async def test_a_handle_holds_its_error(broker: ScriptedBroker, open_client: Open) -> None:
    script(broker, 30)
    client = await open_client()
    handle = client.send(ListGroupsRequest(), AnyBroker())
    for _ in range(2):
        with pytest.raises(GroupAuthorizationError):
            await handle


async def test_reachability_follows_the_connections(
    broker: ScriptedBroker, open_client: Open
) -> None:
    client = await open_client()
    assert client.is_reachable(1)
    assert client.list_troubles() == []
    await broker.stop()
    with pytest.raises(DisconnectedError):
        await client.connect(1, Purpose.PRODUCE)
    assert not client.is_reachable(1)
    assert "no broker can be reached" in client.list_troubles()
    assert not client.is_reachable(99)


async def test_a_new_address_of_a_broker_is_followed(
    broker: ScriptedBroker, open_client: Open
) -> None:
    client = await open_client()
    script(broker, 0)
    async with ScriptedBroker() as moved:
        broker.brokers[1] = moved.port
        script(moved, 0)
        await client.updater.refresh(timeout=5)
        await client.request(ListGroupsRequest(), Broker(1))
        assert (broker.count(LIST), moved.count(LIST)) == (0, 1)


async def test_owned_connections_are_released(broker: ScriptedBroker, open_client: Open) -> None:
    client = await open_client()
    owner = object()
    fetching = await client.connect(1, Purpose.FETCH, owner)
    assert client.find_connection(1, Purpose.FETCH, owner) is fetching
    client.release_owner(owner)
    assert fetching.closed
    assert client.find_connection(1, Purpose.FETCH, owner) is None


@pytest.mark.fault(35)
async def test_a_cancelled_request_leaves_the_client_usable(
    broker: ScriptedBroker, open_client: Open
) -> None:
    script(broker, None, 0)
    client = await open_client()
    asked = asyncio.create_task(client.request(ListGroupsRequest(), AnyBroker()))
    await broker.until(lambda: broker.count(LIST) == 1)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    script(broker, 0)
    # The first request has no response yet. Responses after it must not be lost.
    broker.cut()
    await client.request(ListGroupsRequest(), AnyBroker())


async def test_a_broker_missing_in_the_metadata_gets_no_requests(
    broker: ScriptedBroker, open_client: Open
) -> None:
    async with ScriptedBroker(node_id=2) as second:
        script(broker, 0)
        broker.brokers[2] = second.port
        second.brokers = broker.brokers
        client = await open_client()
        leaving = await client.connect(2, Purpose.CONTROL)
        del broker.brokers[2]
        await client.updater.refresh(timeout=5)
        for _ in range(20):
            await client.request(ListGroupsRequest(), AnyBroker())
        assert second.count(LIST) == 0
        assert not leaving.closed


async def test_a_cluster_with_new_addresses_is_found_by_its_bootstrap_servers(
    broker: ScriptedBroker, open_client: Open, unused_tcp_port: int
) -> None:
    script(broker, 0)
    port = broker.brokers[1]
    client = await open_client(metadata_recovery_rebootstrap_trigger_ms=300)
    broker.brokers[1] = unused_tcp_port
    await client.updater.refresh(timeout=5)
    assert client.metadata.brokers[1].port == unused_tcp_port
    broker.brokers[1] = port
    broker.cut()
    await client.updater.refresh(timeout=5)
    await client.request(ListGroupsRequest(), Broker(1), timeout=5)


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_a_broker_can_make_clients_bootstrap_again(
    broker: ScriptedBroker, open_client: Open, strategy: str
) -> None:
    broker.versions[ApiKey.METADATA] = (0, 13)
    async with ScriptedBroker() as old:
        port, broker.brokers[1] = broker.port, old.port
        old.versions[ApiKey.METADATA] = (0, 13)
        old.handlers[ApiKey.METADATA] = lambda *_: MetadataResponse(error_code=129)
        client = await open_client(metadata_recovery_strategy=strategy)
        assert client.metadata.brokers[1].port == old.port
        broker.brokers[1] = port
        if strategy == "none":
            with pytest.raises(ApiTimeoutError):
                await client.updater.refresh(timeout=0.05)
        else:
            snapshot = await client.updater.refresh(timeout=5)
            assert snapshot.brokers[1].port == port


@pytest.mark.parametrize("named", [None, 7])
async def test_error_of_one_attempt_names_its_api_and_the_broker(
    broker: ScriptedBroker, open_client: Open, named: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(broker, 30)
    client = await open_client()

    def refused(response: Any) -> KafkaError:
        error = error_for(response.error_code, broker=named)
        assert error is not None
        return error

    monkeypatch.setattr("aiokclient.cluster.client.top_level_error", refused)
    connection = await client.connect(1, Purpose.CONTROL)
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    client.attempt_request(connection, ListGroupsRequest(), lambda *told: outcome.set_result(told))
    response, error = await outcome
    assert response is None
    assert (type(error), error.api) == (GroupAuthorizationError, "ListGroups")
    assert error.broker == (1 if named is None else named)


async def test_closed_client_starts_no_task_when_it_is_collected(broker: ScriptedBroker) -> None:
    client = ClusterClient(ClientConfig(bootstrap_servers=broker.address))
    await client.start()
    await client.close()
    before = asyncio.all_tasks()
    del client
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
