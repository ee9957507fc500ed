"""Tests that a failed start ends by its deadline, with an error that names the addresses.

All times are virtual.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Client, Consumer, Producer, TopicPartition, threads
from aiokclient.config.security import Plaintext, Security, Tls
from aiokclient.errors import BootstrapError, ConnectionSetupError, DisconnectedError
from aiokclient.network.setup import ConnectionSettings, open_connection
from aiokclient.network.transport import TcpConnector
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.simulation.network import NameFault

KINDS = ["client", "producer", "admin", "consumer", "assigned", "pattern", "group", "kip848"]


def make(kind: str, **options: Any) -> Any:
    match kind:
        case "client":
            return Client(**options)
        case "producer":
            return Producer(**options)
        case "admin":
            return Admin(**options)
        case "consumer":
            return Consumer("t", **options)
        case "group":
            return Consumer("t", group_id="g", **options)
        case "kip848":
            return Consumer("t", group_id="g", group_protocol="consumer", **options)
    consumer: Consumer[Any, Any] = Consumer(**options)
    if kind == "assigned":
        consumer.assign([TopicPartition("t", 0)])
    else:
        consumer.subscribe(re.compile("t.*"))
    return consumer


def advertise(world: World, host: str, port: int) -> Any:
    """Make every broker return this address for all brokers."""

    def change(request: Any, response: Any) -> Any:
        for broker in response.brokers:
            broker.host, broker.port = host, port
        return response

    return world.cluster.alter(ApiKey.METADATA, change)


async def start_failure(world: World, client: Any, seconds: float) -> BootstrapError:
    """Return the error of a start that must fail within this number of seconds."""
    began = world.now
    with pytest.raises(BootstrapError) as caught:
        await client.start()
    assert world.now - began <= seconds + 0.1
    await client.close()
    return caught.value


UNREACHABLE = {
    "refused": ("127.0.0.1", 1),
    "unresolved": ("kafka.internal", 9092),
    "blackhole": ("10.255.0.1", 9092),
    "blocked": ("slow.internal", 9092),
    "port": ("127.0.0.1", 70_000),
}


def prepare(world: World) -> None:
    world.network.names["kafka.internal"] = NameFault.FAIL
    world.network.names["slow.internal"] = NameFault.BLOCK
    world.network.part(["client"], ["10.255.0.1:9092"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("why", UNREACHABLE)
def test_start_raises_by_its_deadline_when_no_advertised_address_can_be_reached(
    kind: str, why: str
) -> None:
    async def scenario(world: World) -> None:
        prepare(world)
        host, port = UNREACHABLE[why]
        with advertise(world, host, port):
            client = make(kind, **world.options(default_api_timeout_ms=5000))
            error = await start_failure(world, client, 5)
        bootstrap, advertised = error.attempts
        assert bootstrap[0] == world.address(1)
        assert "answered" in bootstrap[1]
        assert advertised[0] == f"{host}:{port}"
        assert advertised[1] not in ("", "connected")
        assert f"{host}:{port}" in str(error)
        assert "advertised.listeners" in str(error)

    simulate(scenario)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_start_raises_by_its_deadline_when_the_brokers_of_a_shared_client_are_gone(
    kind: str,
) -> None:
    async def scenario(world: World) -> None:
        async with world.client(default_api_timeout_ms=5000) as client:
            world.cluster.stop(1)
            await asyncio.sleep(1)
            child = make(kind, client=client)
            error = await start_failure(world, child, 5)
            assert world.address(1) in dict(error.attempts)
            world.cluster.start(1)

    simulate(scenario)


def test_start_succeeds_when_one_advertised_address_of_several_can_be_reached() -> None:
    async def scenario(world: World) -> None:
        def change(request: Any, response: Any) -> Any:
            for broker in response.brokers:
                if broker.node_id != 3:
                    broker.host, broker.port = "127.0.0.1", 1
            return response

        with world.cluster.alter(ApiKey.METADATA, change):
            async with world.client(default_api_timeout_ms=5000) as client:
                assert client.cluster.brokers.any_connected
                assert world.now < 5

    simulate(scenario, brokers=3)


def test_start_succeeds_when_the_advertised_broker_comes_up_before_the_deadline() -> None:
    async def scenario(world: World) -> None:
        world.cluster.stop(2)

        def change(request: Any, response: Any) -> Any:
            address = world.cluster.address(2)
            response.brokers = [
                messages.metadata.MetadataResponseBroker(
                    node_id=2, host=address[0], port=address[1]
                )
            ]
            return response

        with world.cluster.alter(ApiKey.METADATA, change):
            client = world.client()
            starting = asyncio.create_task(client.start())
            await asyncio.sleep(5)
            world.cluster.start(2)
            await starting
            assert world.now < 7
            await client.close()

    simulate(scenario, brokers=2)


def test_start_opens_no_second_connection_when_the_bootstrap_server_is_a_broker() -> None:
    async def scenario(world: World) -> None:
        async with world.client():
            assert world.network.connections_made == 1

    simulate(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_start_raises_by_its_deadline_when_the_broker_answers_no_metadata(kind: str) -> None:
    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.METADATA, 1e6):
            client = make(kind, **world.options(default_api_timeout_ms=5000))
            error = await start_failure(world, client, 5)
        assert error.attempts[0][0] == world.address(1)

    simulate(scenario)


@pytest.mark.parametrize("kind", ["consumer", "pattern"])
def test_start_raises_by_its_deadline_when_only_the_first_metadata_is_answered(
    kind: str,
) -> None:
    async def scenario(world: World) -> None:
        async with world.client(default_api_timeout_ms=5000) as client:
            with world.cluster.delay(ApiKey.METADATA, 1e6):
                error = await start_failure(world, make(kind, client=client), 5)
                assert world.address(1) in dict(error.attempts)
                assert "did not end" in str(error)

    simulate(scenario)


def test_start_raises_immediately_when_no_advertised_address_can_work() -> None:
    async def scenario(world: World) -> None:
        class Buffered(asyncio.BufferedProtocol):
            def connection_made(self, transport: Any) -> None:
                transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            def get_buffer(self, sizehint: int) -> bytearray:
                return bytearray(1000)

        world.network.listen("127.0.0.1", 7, Buffered)
        with advertise(world, "127.0.0.1", 7):
            client = world.client()
            with pytest.raises(ConnectionSetupError, match="HTTP"):
                await client.start()
            assert world.now < 1
            await client.close()

    simulate(scenario)


CANONICAL = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}


@pytest.mark.parametrize("servers", [1, 20])
def test_start_ends_by_its_deadline_when_names_are_not_resolved(servers: int) -> None:
    async def scenario(world: World) -> None:
        names = [f"blocked{number}.internal" for number in range(servers)]
        world.network.names |= dict.fromkeys(names, NameFault.BLOCK)
        bootstrap = ",".join(f"{name}:9092" for name in names)
        options = world.options(
            default_api_timeout_ms=5000, **CANONICAL | {"bootstrap_servers": bootstrap}
        )
        error = await start_failure(world, Client(**options), 5)
        assert {address for address, _ in error.attempts} == {f"{name}:9092" for name in names}

    simulate(scenario)


def test_start_succeeds_when_one_name_of_several_is_resolved() -> None:
    async def scenario(world: World) -> None:
        world.network.names["blocked.internal"] = NameFault.BLOCK
        bootstrap = f"blocked.internal:9092,{world.address(1)}"
        options = world.options(
            default_api_timeout_ms=5000, **CANONICAL | {"bootstrap_servers": bootstrap}
        )
        async with Client(**options):
            assert world.now < 5

    simulate(scenario)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Block every lookup of a canonical name in its thread until the end of the test."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: over.wait())
    yield
    over.set()


@pytest.mark.usefixtures("stuck")
async def test_start_succeeds_when_canonical_names_are_not_found() -> None:
    async with EmbeddedCluster(brokers=1) as cluster:
        host, port = cluster.address(1)
        servers = [f"127.0.0.{number}:{port}" for number in range(2, 50)]
        # The lookups take as long as the setup of a connection may take.
        options: dict[str, Any] = {**CANONICAL, "socket_connection_setup_timeout_ms": 500}
        async with Client(bootstrap_servers=[f"{host}:{port}", *servers], **options) as client:
            assert client.cluster.brokers.any_connected


@pytest.mark.parametrize(
    ("security", "text"),
    [(Plaintext(), "because no thread was free"), (Tls(), "No thread was free")],
)
async def test_start_raises_by_its_deadline_when_no_thread_is_free(
    security: Security, text: str
) -> None:
    over = threading.Event()
    waits = [threads.run_blocking(over.wait) for _ in range(threads.BLOCKING_THREADS)]
    try:
        client = Client(
            bootstrap_servers="localhost:9092", default_api_timeout_ms=100, security=security
        )
        with pytest.raises(BootstrapError, match=text):
            await client.start()
    finally:
        over.set()
        await asyncio.gather(*waits)


async def test_error_explains_that_no_thread_is_free_for_a_name() -> None:
    over = threading.Event()
    waits = [threads.run_blocking(over.wait) for _ in range(threads.BLOCKING_THREADS)]
    settings = ConnectionSettings(TcpConnector(), "c", None, 1000, None)
    try:
        with pytest.raises(DisconnectedError, match="no thread was free"):
            await open_connection(1, "kafka.internal", 9092, settings, timeout_s=0.05, rung=0)
    finally:
        over.set()
        await asyncio.gather(*waits)


async def test_start_succeeds_when_the_application_occupies_the_default_executor() -> None:
    loop, over = asyncio.get_running_loop(), threading.Event()
    waits = [loop.run_in_executor(None, over.wait) for _ in range(100)]
    try:
        async with EmbeddedCluster(brokers=1) as cluster:
            _, port = cluster.address(1)
            async with Client(
                bootstrap_servers=f"localhost:{port}", default_api_timeout_ms=5000
            ) as client:
                assert client.cluster.brokers.any_connected
    finally:
        over.set()
        await asyncio.gather(*waits)


@pytest.mark.parametrize("group", [False, True])
def test_start_succeeds_by_a_short_deadline_when_a_leader_is_unreachable(group: bool) -> None:
    async def scenario(world: World) -> None:
        world.cluster.move_leader("t", 0, to=2)
        options = world.options(default_api_timeout_ms=1000, bootstrap_servers=world.address(1))
        world.network.part(["client"], [world.address(2)])
        if group:
            options["group_id"] = "g"
        consumer: Consumer[Any, Any] = Consumer("t", **options)
        await consumer.start()
        assert world.now < 1
        await consumer.close(1)
        world.network.heal()

    simulate(scenario, brokers=2)


@pytest.mark.parametrize("answers", [False, True])
def test_start_raises_by_its_deadline_when_the_shared_client_bootstraps_again(
    answers: bool,
) -> None:
    async def scenario(world: World) -> None:
        options = {"metadata_recovery_rebootstrap_trigger_ms": 0, "default_api_timeout_ms": 20_000}
        async with world.client(**options) as client:
            with world.cluster.delay(ApiKey.METADATA, 1e6):
                world.cluster.stop(1)
                await asyncio.sleep(10)
                if answers:
                    world.cluster.start(1)
                error = await start_failure(world, Producer(client=client), 20)
                assert world.address(1) in dict(error.attempts)

    simulate(scenario)
