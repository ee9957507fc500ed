"""The low-level calls of a Client: targets, timeouts, errors, and handles."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import (
    Admin,
    AnyBroker,
    Broker,
    Client,
    Controller,
    Coordinator,
    Leader,
    Producer,
    State,
)
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterAuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

DESCRIBE = messages.DescribeClusterRequest()


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        yield client


class TestRequest:
    @pytest.mark.parametrize("to", [AnyBroker(), Broker(1), Controller()])
    async def test_requests_are_sent_to_their_targets(self, client: Client, to: Any) -> None:
        response = await client.request(messages.DescribeClusterRequest(), to=to)
        assert isinstance(response, messages.DescribeClusterResponse)
        assert [broker.broker_id for broker in response.brokers] == [1]

    async def test_requests_are_sent_to_the_leader(self, client: Client, topic: str) -> None:
        request = messages.ListOffsetsRequest()
        assert isinstance(
            await client.request(request, Leader(topic, 0)), messages.ListOffsetsResponse
        )

    @pytest.mark.parametrize("kind", ["group", "transaction"])
    async def test_requests_are_sent_to_the_coordinator(self, client: Client, kind: str) -> None:
        response = await client.request(DESCRIBE, Coordinator(kind, "some-key"))
        assert response.error_code == 0

    @pytest.mark.parametrize("to", [Broker(9), Leader("nowhere", 0), Leader("nowhere", -1)])
    def test_an_unknown_target_is_refused(self, to: Any) -> None:
        async def scenario(world: World) -> None:
            async with world.client() as client:
                with pytest.raises(ApiTimeoutError) as caught:
                    await client.request(DESCRIBE, to, timeout=0.05)
                assert isinstance(caught.value.__cause__, KafkaError)

        simulate(scenario)

    async def test_an_error_names_api_and_broker(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.DESCRIBE_CLUSTER, ClusterAuthorizationError)
        with pytest.raises(ClusterAuthorizationError) as caught:
            await client.request(DESCRIBE, AnyBroker())
        assert (caught.value.api, caught.value.broker) == ("DescribeCluster", 1)
        assert (caught.value.code, caught.value.retriable) == (31, False)

    async def test_retriable_errors_are_retried(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.DESCRIBE_CLUSTER, NotControllerError, times=2)
        response = await client.request(DESCRIBE, Controller())
        assert response.error_code == 0

    async def test_an_unknown_error_code_is_kept(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.DESCRIBE_CLUSTER, 7777)
        with pytest.raises(KafkaError) as caught:
            await client.request(DESCRIBE, AnyBroker())
        assert caught.value.code == 7777
        assert "7777" in str(caught.value)

    async def test_errors_of_parts_are_returned_in_the_response(self, client: Client) -> None:
        request = messages.MetadataRequest(
            topics=[messages.metadata.MetadataRequestTopic(name="nowhere")],
            allow_auto_topic_creation=False,
        )
        response = await client.request(request, to=AnyBroker())
        assert response.topics[0].error_code == UnknownTopicOrPartitionError.code

    async def test_an_api_that_the_broker_does_not_have_is_refused(self, client: Client) -> None:
        with pytest.raises(UnsupportedVersionError, match="StreamsGroupDescribe"):
            await client.request(messages.StreamsGroupDescribeRequest(), to=AnyBroker())

    async def test_requests_end_by_their_timeouts(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        await client.request(DESCRIBE, AnyBroker(), timeout=math.inf)
        cluster.pause(1)
        for timeout in (0, 0.01):
            with pytest.raises(ApiTimeoutError) as caught:
                await client.request(DESCRIBE, AnyBroker(), timeout=timeout)
            assert isinstance(caught.value, KafkaTimeoutError)
            assert isinstance(caught.value, TimeoutError)
        with anyio.move_on_after(0.01) as scope:
            await client.request(DESCRIBE, AnyBroker(), timeout=math.inf)
        assert scope.cancelled_caught
        cluster.resume(1)
        await client.request(DESCRIBE, AnyBroker())

    @pytest.mark.parametrize(
        ("message", "to", "timeout"),
        [
            ("text", AnyBroker(), None),
            (messages.DescribeClusterRequest, AnyBroker(), None),
            (DESCRIBE, None, None),
            (DESCRIBE, 1, None),
            (DESCRIBE, AnyBroker, None),
            (DESCRIBE, AnyBroker(), "5"),
        ],
    )
    async def test_wrong_arguments_are_refused(
        self, client: Client, message: Any, to: Any, timeout: Any
    ) -> None:
        with pytest.raises(TypeError):
            await client.request(message, to, timeout=timeout)
        with pytest.raises(TypeError):
            client.send(message, to, timeout=timeout)


class TestHandles:
    async def test_a_handle_can_be_awaited_any_number_of_times(self, client: Client) -> None:
        handle = client.send(DESCRIBE, to=AnyBroker())
        assert not handle.done()
        with pytest.raises(asyncio.InvalidStateError):
            handle.result()
        with pytest.raises(asyncio.InvalidStateError):
            handle.exception()
        first, second = await asyncio.gather(handle, handle)
        assert await handle is first is second
        assert handle.done()
        assert handle.result() is first
        assert handle.exception() is None
        assert (await asyncio.wait_for(handle, 5)) is first

    async def test_cancelling_a_waiter_does_not_cancel_the_request(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        cluster.pause(1)
        handle = client.send(DESCRIBE, to=AnyBroker())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.01)
        assert not handle.done()
        cluster.resume(1)
        assert (await handle).error_code == 0

    async def test_a_handle_raises_the_failure_of_its_request(
        self, client: Client, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.DESCRIBE_CLUSTER, ClusterAuthorizationError)
        handle = client.send(DESCRIBE, to=AnyBroker())
        for _ in range(2):
            with pytest.raises(ClusterAuthorizationError):
                await handle
        assert isinstance(handle.exception(), ClusterAuthorizationError)

    async def test_a_handle_calls_its_callbacks(self, client: Client) -> None:
        called: list[Any] = []
        handle = client.send(DESCRIBE, to=AnyBroker())
        handle.add_done_callback(called.append)
        await handle
        await asyncio.sleep(0)
        assert called == [handle]

    async def test_many_requests_are_in_flight_at_once(self, client: Client) -> None:
        handles = [client.send(DESCRIBE, to=Broker(1)) for _ in range(100)]
        responses = await asyncio.gather(*handles)
        assert {response.error_code for response in responses} == {0}


class TestWhatAllHave:
    @pytest.mark.parametrize("kind", [Producer, Admin, Client])
    async def test_clients_have_state_health_and_metrics(
        self, cluster: EmbeddedCluster, kind: Any
    ) -> None:
        made = kind(bootstrap_servers=cluster.bootstrap_servers)
        assert made.state is State.NEW
        async with made as same:
            assert same is made
            assert made.state is State.RUNNING
            health = made.health()
            assert health.state is State.RUNNING
            assert not health.reasons
            metrics = made.metrics()
            assert metrics
            assert all(isinstance(name, str) for name in metrics)
            metrics.clear()
            assert made.metrics(), "each call must return a new dict"
        assert made.state is State.CLOSED

    async def test_producers_that_share_a_client_share_metrics(
        self, client: Client, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with Producer(client=client) as one, Producer(client=client) as two:
            await one.send(topic, b"v")
            await two.send(topic, b"v")
            assert client.metrics()["producer.records.acknowledged"] == 2
            cluster.pause(1)
            deliveries = [one.send(topic, bytes(5000)), two.send(topic, bytes(5000))]
            for each in (one, two, client):
                assert 10_000 < each.metrics()["producer.buffer.bytes"] < 20_000
            cluster.resume(1)
            await asyncio.gather(*deliveries)
            assert client.metrics()["producer.buffer.bytes"] == 0

    async def test_clients_have_an_instance_id_for_telemetry(self, client: Client) -> None:
        with pytest.raises(UnsupportedVersionError):
            await client.client_instance_id(timeout=5)
