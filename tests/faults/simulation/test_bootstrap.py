"""Names that cannot be resolved, failed version negotiation, and metadata without brokers."""

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer
from aiokclient.errors import KafkaError, KafkaTimeoutError, UnsupportedVersionError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing.simulation.network import NameFault

NAMES = "one.test:9092,two.test:9093"


async def ticks(counted: list[float]) -> None:
    """Append the loop's time every 0.1 s, to show that the event loop is not blocked."""
    while True:
        await asyncio.sleep(0.1)
        counted.append(asyncio.get_running_loop().time())


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", NameFault)
def test_start_fails_by_its_deadline_when_no_name_resolves(fault: NameFault) -> None:
    async def scenario(world: World) -> None:
        world.network.names |= {"one.test": fault, "two.test": fault}
        counted: list[float] = []
        ticking = asyncio.create_task(ticks(counted))
        client = world.client(bootstrap_servers=NAMES, default_api_timeout_ms=5_000)
        with pytest.raises(KafkaTimeoutError, match="one"):
            await client.start()
        assert 4.9 <= world.now <= 5.5
        assert len(counted) > 45
        await client.close()
        ticking.cancel()

    simulate(scenario)


@pytest.mark.fault(16)
def test_start_succeeds_when_one_name_resolves() -> None:
    async def scenario(world: World) -> None:
        world.network.names |= {"one.test": NameFault.BLOCK, "two.test": ["127.0.0.1"]}
        servers = f"one.test:9092,two.test:{world.cluster.address(1)[1]}"
        async with world.client(bootstrap_servers=servers) as client:
            response = await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            assert len(response.brokers) == 1

    simulate(scenario)


@pytest.mark.fault(16)
def test_a_client_survives_a_name_that_resolves_only_at_times() -> None:
    async def scenario(world: World) -> None:
        server = f"one.test:{world.cluster.address(1)[1]}"
        world.network.names["one.test"] = ["127.0.0.1"]
        world.network.weather.name_failure = 0.7
        async with world.client(bootstrap_servers=server) as client:
            for _ in range(20):
                world.network.cut()
                await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())

    simulate(scenario)


@pytest.mark.fault(34)
def test_start_fails_when_every_version_of_api_versions_is_refused() -> None:
    """A client fails by its deadline if the broker refuses every version of ApiVersions."""

    def refuse(request: Any, response: Any) -> Any:
        response.error_code = 35
        return response

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.API_VERSIONS, refuse):
            client = world.client(default_api_timeout_ms=5_000)
            with pytest.raises(KafkaError):
                await client.start()
            assert world.now <= 5.5
            assert len(world.requests(ApiKey.API_VERSIONS)) < 200
            await client.close()

    simulate(scenario)


@pytest.mark.fault(33)
def test_versions_are_negotiated_again_after_a_downgrade() -> None:
    """The client negotiates again when a broker comes back with lower versions."""

    async def scenario(world: World) -> None:
        async with world.client() as client:
            await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            world.cluster.stop(1)
            world.cluster.limit_versions({ApiKey.METADATA: (0, 4)})
            world.cluster.start(1)
            await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            assert world.requests(ApiKey.METADATA)[-1].version == 4
            world.cluster.limit_versions({ApiKey.CREATE_TOPICS: None})
            world.cluster.disconnect()
            with pytest.raises(UnsupportedVersionError):
                await client.request(messages.CreateTopicsRequest(topics=[]), to=AnyBroker())

    simulate(scenario)


@pytest.mark.fault(27)
def test_metadata_without_brokers_is_ignored() -> None:
    def nobody(request: Any, response: Any) -> Any:
        response.brokers = []
        return response

    async def scenario(world: World) -> None:
        async with world.client() as client:
            before = client.cluster.metadata
            with world.cluster.alter(ApiKey.METADATA, nobody):
                client.cluster.updater.request_update()
                await asyncio.sleep(5)
                assert len(world.requests(ApiKey.METADATA)) < 100
                assert client.cluster.metadata.brokers == before.brokers
            await client.cluster.updater.refresh(timeout=10)

    simulate(scenario, brokers=3)


@pytest.mark.fault(19)
@pytest.mark.parametrize("change", [1, -1, 1 << 20])
def test_an_unexpected_correlation_id_closes_the_connection(change: int) -> None:
    """The connection with the unexpected response is closed.

    The request is sent again on another connection.
    """

    async def scenario(world: World) -> None:
        async with world.client() as client:
            await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            made, armed = world.network.connections_made, [True]

            def tamper(connection: Any, to_server: bool, data: memoryview) -> bytes | memoryview:
                if to_server or not armed or len(data) < 8:
                    return data
                armed.clear()
                changed = int.from_bytes(data[4:8], "big", signed=True) + change
                return bytes(data[:4]) + changed.to_bytes(4, "big", signed=True) + bytes(data[8:])

            world.network.tamper = tamper
            response = await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            assert response.brokers
            assert not armed
            assert world.network.connections_made > made

    simulate(scenario)


@pytest.mark.fault(49)
def test_a_throttle_time_is_honoured() -> None:
    """The client waits for the throttle time on the throttled connection, and not on others."""

    async def scenario(world: World) -> None:
        async with world.client() as one, world.client() as other:
            message = messages.MetadataRequest(topics=[])
            with world.cluster.throttle(ApiKey.METADATA, 3.0, times=1):
                response = await one.request(message, to=AnyBroker())
                assert response.throttle_time_ms == 3000
            began = world.now
            await other.request(message, to=AnyBroker())
            assert world.now - began < 0.1
            await one.request(message, to=AnyBroker())
            assert 2.9 <= world.now - began <= 3.2

    simulate(scenario)


@pytest.mark.parametrize("fault", ["none", "refused", "silent"])
def test_bootstrap_servers_are_asked_one_after_another(fault: str) -> None:
    """The next one follows when a server has failed, or was silent for a second."""

    async def scenario(world: World) -> tuple[int, int]:
        addresses = [world.address(broker) for broker in (1, 2, 3)]
        for address in addresses[:2]:
            world.network.refuse(address, fault == "refused")
        world.network.part({"client"}, set(addresses[:2]) if fault == "silent" else set())
        world.network.events.clear()
        began = world.now
        async with world.client(bootstrap_servers=addresses):
            took_s = world.now - began
            tried = [what for _, what in world.network.events if " -> " in what]
        assert took_s % 1 < 0.5
        return len(tried), int(took_s)

    # The order of the servers is random.
    found = {simulate(scenario, brokers=3, seed=seed) for seed in range(12)}
    assert (
        found
        == {
            "none": {(1, 0)},
            "refused": {(1, 0), (2, 0), (3, 0)},
            "silent": {(1, 0), (1, 1), (1, 2)},  # Those to silent servers are never opened.
        }[fault]
    )


@pytest.mark.fault(16)
@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004])
@pytest.mark.parametrize("kind", ["client", "producer", "admin", "consumer"])
def test_start_goes_on_in_a_cluster_that_replaces_the_one_that_has_answered(
    kind: str, after_s: float
) -> None:
    """The cluster is replaced after its answer, before the client has reached a named broker."""

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        wiped: list[float] = []

        def replace(request: Any, response: Any) -> Any:
            if not wiped:
                wiped.append(loop.time())
                loop.call_later(after_s, lambda: world.cluster.wipe({"t": 1}))
            return response

        with world.cluster.alter(ApiKey.METADATA, replace):
            made = {"client": Client, "producer": Producer, "admin": Admin, "consumer": Consumer}
            one = made[kind](*["t"][: kind == "consumer"], **world.options())
            await one.start()
        assert wiped
        assert world.now < 5
        await one.close()

    simulate(scenario)


@pytest.mark.fault(16)
def test_start_asks_the_bootstrap_server_again_when_the_named_brokers_refuse() -> None:
    """A server that names dead brokers at first, and then live ones, does not fail a start."""

    async def scenario(world: World) -> None:
        answers: list[float] = []

        def name_dead_brokers(request: Any, response: Any) -> Any:
            answers.append(world.now)
            if len(answers) == 1:
                for broker in response.brokers:
                    broker.port += 1000
            return response

        with world.cluster.alter(ApiKey.METADATA, name_dead_brokers):
            async with world.client(default_api_timeout_ms=60_000) as client:
                assert len(answers) >= 2
                assert client.health().state.name == "RUNNING"
        assert world.now < 20

    simulate(scenario)
