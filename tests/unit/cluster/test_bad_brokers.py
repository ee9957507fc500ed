"""Tests that an unusable broker fails only the calls that depend on it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted import raw_server
from world import World, simulate

from aiokclient import Client, Consumer, Producer, State
from aiokclient.cluster.metadata.snapshot import (
    BrokerInfo,
    ClusterMetadata,
    PartitionInfo,
    TopicInfo,
    hinted,
    learned,
)
from aiokclient.cluster.targets import AnyBroker, Broker
from aiokclient.errors import (
    ApiTimeoutError,
    DeliveryTimeoutError,
    KafkaError,
    UnsupportedVersionError,
)
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

BAD = [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("127.0.0.1", 0), ("a\0b", 9092), ("", 9092)]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Run two brokers. Broker 1 leads partition 0 of "t", and broker 2 leads partition 1."""
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        cluster.move_leader("t", 0, to=1)
        cluster.move_leader("t", 1, to=2)
        yield cluster


def advertise(cluster: EmbeddedCluster, host: str, port: int, node_id: int = 2) -> Any:
    """Make metadata responses contain this address for the broker."""

    def change(request: Any, response: Any) -> Any:
        for broker in response.brokers:
            if broker.node_id == node_id:
                broker.host, broker.port = host, port
        return response

    return cluster.alter(ApiKey.METADATA, change)


def first(cluster: EmbeddedCluster) -> str:
    host, port = cluster.address(1)
    return f"{host}:{port}"


@pytest.mark.parametrize(("host", "port"), BAD)
async def test_healthy_brokers_get_their_records_when_another_has_an_unusable_address(
    cluster: EmbeddedCluster, host: str, port: int
) -> None:
    # The healthy broker must respond in this time, even on a loaded machine.
    options: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_500}
    with advertise(cluster, host, port):
        async with Producer(bootstrap_servers=first(cluster), linger_ms=0, **options) as producer:
            for _ in range(3):
                assert (await producer.send("t", b"v", partition=0)).partition == 0
            with pytest.raises(DeliveryTimeoutError):
                await producer.send("t", b"v", partition=1)
            await producer.send("t", b"v", partition=0)
    assert len(cluster.records("t", 0)) == 4


async def test_records_are_written_when_the_address_becomes_right(
    cluster: EmbeddedCluster,
) -> None:
    with advertise(cluster, "127.0.0.1", 70_000) as fault:
        async with Producer(bootstrap_servers=first(cluster), retry_backoff_ms=10) as producer:
            delivery = producer.send("t", b"v", partition=1)
            await cluster.until(lambda: fault.hits >= 3, 10)
            fault.__exit__(None, None, None)
            await delivery


async def test_error_names_the_address_when_a_broker_has_an_unusable_one(
    cluster: EmbeddedCluster,
) -> None:
    with advertise(cluster, "127.0.0.1", 70_000):
        async with Client(bootstrap_servers=first(cluster)) as client:
            with pytest.raises(ApiTimeoutError) as caught:
                await client.request(messages.ListGroupsRequest(), to=Broker(2), timeout=0.5)
            assert "127.0.0.1:70000" in str(caught.value.__cause__)
            await client.request(messages.ListGroupsRequest(), to=Broker(1))
            for _ in range(5):
                await client.request(messages.ListGroupsRequest(), to=AnyBroker())


async def test_consumer_reads_on_when_another_broker_has_an_unusable_address(
    cluster: EmbeddedCluster,
) -> None:
    cluster.produce("t", [b"a"], 0)
    with advertise(cluster, "127.0.0.1", 70_000):
        async with Consumer(
            "t", bootstrap_servers=first(cluster), auto_offset_reset="earliest"
        ) as consumer:
            record = await consumer.get(timeout=20)
            assert record is not None
            assert record.value == b"a"


async def test_leader_is_found_when_a_response_names_it_at_an_unusable_address(
    cluster: EmbeddedCluster,
) -> None:
    def change(request: Any, response: Any) -> Any:
        for endpoint in response.node_endpoints:
            endpoint.port = 70_000
        return response

    async with Producer(bootstrap_servers=first(cluster)) as producer:
        await producer.send("t", b"v", partition=0)
        with cluster.alter(ApiKey.PRODUCE, change) as fault:
            cluster.move_leader("t", 0, to=2)
            await producer.send("t", b"v", partition=0)
            await producer.send("t", b"v", partition=1)
            assert fault.hits


async def test_group_starts_when_its_coordinator_is_named_at_an_unusable_address(
    cluster: EmbeddedCluster,
) -> None:
    cluster.produce("t", [b"a"], 0)

    def change(request: Any, response: Any) -> Any:
        for coordinator in response.coordinators:
            coordinator.port = 70_000
        return response

    with cluster.alter(ApiKey.FIND_COORDINATOR, change):
        async with Consumer(
            "t",
            group_id="g",
            bootstrap_servers=first(cluster),
            auto_offset_reset="earliest",
        ) as consumer:
            assert await consumer.get(timeout=20) is not None


@pytest.mark.parametrize("versions", [None, (90, 99)])
async def test_healthy_brokers_get_their_records_when_another_speaks_no_usable_produce(
    cluster: EmbeddedCluster, versions: tuple[int, int] | None
) -> None:
    cluster.limit_versions({ApiKey.PRODUCE: versions}, broker=2)
    async with Producer(bootstrap_servers=first(cluster)) as producer:
        good = producer.send("t", b"v", partition=0)
        bad = producer.send("t", b"v", partition=1)
        await good
        with pytest.raises(UnsupportedVersionError, match="Produce") as caught:
            await bad
        assert caught.value.broker == 2
        await producer.send("t", b"v", partition=0)
        assert producer.state.name == "RUNNING"


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_records_of_others_are_read_when_a_broker_speaks_no_usable_version(api: ApiKey) -> None:
    async def scenario(world: World) -> None:
        cluster = world.cluster
        cluster.move_leader("t", 0, to=1)
        cluster.move_leader("t", 1, to=2)
        cluster.limit_versions({api: (90, 99)}, broker=2)
        for partition in (0, 1):
            cluster.produce("t", [b"v"] * 5, partition)
        async with world.consumer("t") as consumer:
            found: list[Any] = []
            for _ in range(5):
                cluster.produce("t", [b"v"], 0)
                found += await consumer.poll(timeout=3)
            assert [r.offset for r in found if r.partition == 0] == list(range(10))
            assert consumer.state is State.DEGRADED
            assert any("t-1" in reason for reason in consumer.health().reasons)
            cluster.limit_versions({api: (0, 11)}, broker=2)
            cluster.disconnect(2)
            assert len(await consumer.poll(timeout=20)) == 5
            await asyncio.sleep(1)
            assert consumer.state is State.RUNNING

    simulate(scenario, brokers=2, topics={"t": 2})


def test_poll_raises_when_no_broker_speaks_a_usable_fetch() -> None:
    async def scenario(world: World) -> None:
        for broker in (1, 2):
            world.cluster.limit_versions({ApiKey.FETCH: (90, 99)}, broker=broker)
        async with world.consumer("t") as consumer:
            for _ in range(3):
                with pytest.raises(UnsupportedVersionError, match="Fetch"):
                    await consumer.poll(timeout=10)

    simulate(scenario, brokers=2, topics={"t": 2})


def known() -> ClusterMetadata:
    good = {1: BrokerInfo(1, "a", 1), 2: BrokerInfo(2, "b", 2)}
    return ClusterMetadata(
        brokers=good, topics={"t": TopicInfo("t", partitions=(PartitionInfo(0, 1, 5),))}
    )


@pytest.mark.parametrize(("host", "port"), [*BAD[:3], BAD[4]])
def test_known_address_stays_when_a_response_names_an_unusable_one(host: str, port: int) -> None:
    bad = BrokerInfo(2, host, port)
    assert learned(known(), bad) == known()
    new = hinted(known(), "t", 0, 2, 6, [bad])
    assert new.find_leader("t", 0) == 2
    assert new.brokers == known().brokers


def test_negative_broker_ids_are_ignored_when_responses_name_them() -> None:
    assert learned(known(), BrokerInfo(-1, "c", 3)) == known()


async def test_lookup_is_retried_when_the_coordinator_is_named_by_a_negative_id(
    cluster: EmbeddedCluster,
) -> None:
    def change(request: Any, response: Any) -> Any:
        for coordinator in response.coordinators:
            coordinator.node_id = -1
        return response

    with cluster.alter(ApiKey.FIND_COORDINATOR, change, times=1) as fault:
        async with Client(bootstrap_servers=first(cluster)) as client:
            found = await client.cluster.coordinators.locate_coordinators("group", ["g"])
            assert isinstance(found["g"], KafkaError)
            assert await client.cluster.coordinators.locate_coordinator("group", "g") in (1, 2)
            assert fault.hits == 1


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_GROUPS])
@pytest.mark.parametrize("versions", [None, (90, 99)])
async def test_other_brokers_answer_when_one_speaks_no_usable_version(
    cluster: EmbeddedCluster, api: ApiKey, versions: tuple[int, int] | None
) -> None:
    cluster.limit_versions({api: versions}, broker=2)
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        await client.cluster.connect(1, Purpose.CONTROL)
        await client.cluster.connect(2, Purpose.CONTROL)
        for number in range(20):
            await client.cluster.updater.refresh(timeout=5, at_once=True)
            await client.cluster.coordinators.locate_coordinator("group", f"g{number}")
            await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        assert client.cluster.updater.last_error is None


async def test_call_raises_when_no_broker_speaks_a_usable_version(
    cluster: EmbeddedCluster,
) -> None:
    cluster.limit_versions({ApiKey.LIST_GROUPS: (90, 99)})
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        with pytest.raises(UnsupportedVersionError, match="90 to 99"):
            await client.request(messages.ListGroupsRequest(), to=AnyBroker(), timeout=5)


async def test_metadata_comes_from_others_when_one_speaks_something_else(
    cluster: EmbeddedCluster,
) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(http) as server:
        with advertise(cluster, "127.0.0.1", server.port):
            async with Client(bootstrap_servers=first(cluster)) as client:
                for _ in range(10):
                    cluster.disconnect(1)
                    await client.cluster.updater.refresh(timeout=5, at_once=True)
                    await client.request(messages.ListGroupsRequest(), to=AnyBroker())
