"""A broker that accepts connections but never responds delays nothing but its own requests."""

import asyncio
from typing import Any

import pytest
from driver import Writer, partitions_of
from world import World, simulate

from aiokclient import Client
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import DisconnectedError, KafkaError
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey, messages

FOREVER = 1e6


def hang(world: World, broker: int, api: ApiKey = ApiKey.API_VERSIONS) -> Any:
    """Delay a broker's responses of one API without end.

    By default, that is ApiVersions, so that new connections cannot be used.
    """
    return world.cluster.delay(api, FOREVER, broker=broker)


def test_records_are_delivered_when_the_leader_moves_away_from_a_silent_broker() -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", 0, to=1)
        world.cluster.move_leader("t", 1, to=2)
        async with world.producer(delivery_timeout_ms=20_000) as producer:
            writer = Writer(producer, world.ledger, partitions_of(world.cluster.topics), pause=0.01)
            await writer.run(50)
            with hang(world, 2):
                world.cluster.disconnect(2)
                writing = asyncio.create_task(writer.run(300))
                await asyncio.sleep(3)
                world.cluster.move_leader("t", 1, to=1)
                await writing
                began = world.now
                await producer.flush()
                assert world.now - began < 8
        assert not world.ledger.failed
        world.check()

    simulate(scenario, brokers=2, topics={"t": 2})


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.PRODUCE])
def test_attempt_ends_by_the_request_timeout_when_api_versions_is_not_answered(
    purpose: Purpose,
) -> None:
    async def scenario(world: World) -> None:
        async with world.client(request_timeout_ms=2000) as client:
            with hang(world, 2):
                world.cluster.disconnect(2)
                await asyncio.sleep(0.01)
                for _ in range(6):
                    pool = client.cluster.brokers.find_pool(2)
                    began = max(world.now, pool.not_before)
                    with pytest.raises(DisconnectedError, match=r"ApiVersions within 2\.0 s"):
                        await client.cluster.connect(2, purpose)
                    assert world.now - began < 2.1
            await client.cluster.connect(2, purpose)

    simulate(scenario, brokers=2)


def test_records_are_delivered_when_a_silent_broker_answers_again() -> None:
    async def scenario(world: World) -> None:
        options = {"delivery_timeout_ms": 20_000, "request_timeout_ms": 2000}
        async with world.producer(**options) as producer:
            writer = Writer(producer, world.ledger, partitions_of(world.cluster.topics), pause=0.01)
            await writer.run(50)
            with hang(world, 1):
                world.cluster.disconnect(1)
                writing = asyncio.create_task(writer.run(300))
                await asyncio.sleep(12)
            await writing
            began = world.now
            await producer.flush()
            assert world.now - began < 4
        assert not world.ledger.failed
        world.check()

    simulate(scenario)


def test_setup_timeout_stays_when_established_connections_are_lost() -> None:
    async def scenario(world: World) -> None:
        async with world.client(socket_connection_setup_timeout_ms=1000) as client:
            pool = client.cluster.brokers.find_pool(1)
            for _ in range(8):
                await client.cluster.connect(1, Purpose.CONTROL)
                world.cluster.disconnect(1)
                await asyncio.sleep(0.1)
            assert await attempt_lasts(world, client, pool.not_before) < 1.3

    simulate(scenario)


def test_setup_timeout_grows_only_when_connecting_fails() -> None:
    async def scenario(world: World) -> None:
        async with world.client(
            socket_connection_setup_timeout_ms=1000, request_timeout_ms=1000
        ) as client:
            pool = client.cluster.brokers.find_pool(1)
            lasted = [await attempt_lasts(world, client, pool.not_before) for _ in range(4)]
            assert 0.8 <= lasted[0] <= 1.2
            assert 6.0 <= lasted[3] <= 10.0
            with hang(world, 1):
                world.cluster.disconnect(1)
                await asyncio.sleep(0.01)
                with pytest.raises(KafkaError):
                    await client.cluster.connect(1, Purpose.CONTROL)
            assert await attempt_lasts(world, client, pool.not_before) <= 1.2

    simulate(scenario)


async def attempt_lasts(world: World, client: Client, not_before: float) -> float:
    """Return how long an attempt to connect lasts, if all packets of the broker are lost."""
    world.cluster.disconnect(1)
    await asyncio.sleep(0.01)
    world.network.part([world.address(1)], ["client"])
    pool = client.cluster.brokers.find_pool(1)
    began = max(world.now, pool.not_before)
    with pytest.raises(KafkaError):
        await client.cluster.connect(1, Purpose.CONTROL)
    lasted = world.now - began
    world.network.heal()
    return lasted


def test_metadata_comes_from_another_broker_when_one_accepts_and_does_not_answer() -> None:
    async def scenario(world: World) -> None:
        servers = ",".join(world.address(broker) for broker in (1, 2, 3))
        with hang(world, 2), hang(world, 3):
            async with world.client(bootstrap_servers=servers) as client:
                for _ in range(10):
                    began = world.now
                    await client.cluster.updater.refresh(timeout=5, at_once=True)
                    await client.request(messages.ListGroupsRequest(), to=AnyBroker())
                    world.cluster.disconnect(1)
                    await asyncio.sleep(0.01)
                    assert world.now - began < 4

    simulate(scenario, brokers=3)


def test_new_address_is_tried_at_once_when_the_old_one_does_not_answer() -> None:
    async def scenario(world: World) -> None:
        moved = asyncio.Event()

        def change(request: Any, response: Any) -> Any:
            for broker in response.brokers:
                if broker.node_id == 2 and not moved.is_set():
                    broker.port = world.cluster.address(3)[1]
            return response

        with hang(world, 3), world.cluster.alter(ApiKey.METADATA, change):
            async with world.client() as client:
                connecting = asyncio.create_task(client.cluster.connect(2, Purpose.CONTROL))
                await asyncio.sleep(0.1)
                began = world.now
                moved.set()
                await client.cluster.updater.refresh(timeout=5)
                with pytest.raises(DisconnectedError, match="another address"):
                    await connecting
                await client.cluster.connect(2, Purpose.CONTROL)
                assert world.now - began < 2.5

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("group", [False, True])
def test_records_are_read_when_the_leader_moves_away_from_a_silent_broker(group: bool) -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", 0, to=1)
        world.cluster.move_leader("t", 1, to=2)
        options: dict[str, Any] = {"group_id": "g"} if group else {}
        if group:
            world.cluster.move_coordinator("g", to=2)
        async with world.consumer("t", **options) as consumer:
            world.cluster.produce("t", [b"a"], 1)
            assert await consumer.get(timeout=5) is not None
            with hang(world, 2):
                world.cluster.disconnect(2)
                await asyncio.sleep(3)
                world.cluster.move_leader("t", 1, to=1)
                if group:
                    world.cluster.move_coordinator("g", to=1)
                world.cluster.produce("t", [b"b"], 0)
                world.cluster.produce("t", [b"c"], 1)
                began = world.now
                found = [await consumer.get(timeout=20) for _ in range(2)]
                assert {record.value for record in found if record} == {b"b", b"c"}
                assert world.now - began < 8
            await consumer.close()

    simulate(scenario, brokers=2, topics={"t": 2})
