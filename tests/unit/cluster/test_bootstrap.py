"""Tests of the bootstrap: which server is used, which servers never answer, and what is logged."""

import asyncio
import logging
import socket
from typing import Any

import pytest
from scripted import ScriptedBroker, raw_server

from aiokclient.clock import SystemClock
from aiokclient.cluster.bootstrap import UnresolvedNames, servers_of
from aiokclient.cluster.client import ClusterClient
from aiokclient.config.client import ClientConfig
from aiokclient.config.security import Tls
from aiokclient.errors import BootstrapError, ConfigError, ConnectionSetupError
from aiokclient.log.client_log import ClientLog
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.policy import Attempts, Backoff
from aiokclient.protocol.api import ApiKey

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"

Quick = dict[str, Any]


def client_of(*servers: str, quick: Quick, **options: Any) -> ClusterClient:
    return ClusterClient(ClientConfig(bootstrap_servers=list(servers), **quick, **options))


async def canonical_servers(config: ClientConfig, connector: TcpConnector) -> list[Address]:
    clock = SystemClock()
    retry = Attempts(clock.monotonic() + 5, Backoff(0.001, 0.001), clock)
    unresolved = UnresolvedNames(ClientLog.of("aiokclient", config), logging.WARNING, connector)
    return await servers_of(config, connector, 5, retry, unresolved)


async def test_bootstrap_succeeds_when_one_server_responds(
    broker: ScriptedBroker, quick: Quick, unused_tcp_port: int
) -> None:
    client = client_of(f"127.0.0.1:{unused_tcp_port}", broker.address, quick=quick)
    await client.start()
    assert client.metadata.cluster_id == "scripted"
    await client.close()


@pytest.mark.fault(16)
async def test_bootstrap_succeeds_when_a_name_resolves_later(
    broker: ScriptedBroker, quick: Quick
) -> None:
    class Flapping(TcpConnector):
        def __init__(self) -> None:
            self.answers: list[Any] = [OSError(-3, "try again"), [], OSError(-3, "try again")]

        async def resolve(self, host: str, port: int) -> list[Address]:
            if not self.answers:
                return [("127.0.0.1", port)]
            if isinstance(answer := self.answers.pop(0), OSError):
                raise answer
            addresses: list[Address] = answer
            return addresses

    connector = Flapping()
    client = client_of(f"kafka.example:{broker.port}", quick=quick, connector=connector)
    await client.start()
    assert connector.answers == []
    await client.close()


@pytest.mark.fault(16)
async def test_bootstrap_ends_by_its_deadline_when_resolution_blocks(quick: Quick) -> None:
    class Blocking(TcpConnector):
        async def resolve(self, host: str, port: int) -> list[Address]:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    client = client_of(
        "kafka.example:9092", quick=quick, default_api_timeout_ms=30, connector=Blocking()
    )
    with pytest.raises(BootstrapError, match="its name was not resolved yet"):
        await client.start()


@pytest.mark.fault(29)
async def test_bootstrap_fails_immediately_when_a_server_is_not_a_broker(
    broker: ScriptedBroker, quick: Quick
) -> None:
    broker.handlers[ApiKey.API_VERSIONS] = lambda *_: HTTP
    client = client_of(broker.address, quick=quick)
    with pytest.raises(ConnectionSetupError, match="HTTP server"):
        await client.start()
    assert broker.opened == 1


@pytest.mark.fault(29)
async def test_bootstrap_explains_a_plaintext_broker_to_a_tls_client(
    broker: ScriptedBroker, quick: Quick
) -> None:
    client = client_of(broker.address, quick=quick, security=Tls())
    with pytest.raises(ConnectionSetupError, match="plaintext port, but the client uses TLS"):
        await client.start()


async def test_bootstrap_ignores_one_server_that_is_not_a_broker(
    broker: ScriptedBroker, quick: Quick
) -> None:
    async with ScriptedBroker() as stranger:
        stranger.handlers[ApiKey.API_VERSIONS] = lambda *_: HTTP
        client = client_of(stranger.address, broker.address, quick=quick)
        await client.start()
        await client.close()


async def test_bootstrap_succeeds_when_a_broker_starts_later(
    quick: Quick, unused_tcp_port: int
) -> None:
    client = client_of(f"127.0.0.1:{unused_tcp_port}", quick=quick)
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(0.02)
    broker = ScriptedBroker()
    broker.port = unused_tcp_port
    async with broker:
        await starting
        await client.close()


async def test_bootstrap_is_retried_when_metadata_has_no_brokers(
    broker: ScriptedBroker, quick: Quick
) -> None:
    known, broker.brokers = broker.brokers, {}
    client = client_of(broker.address, quick=quick)
    starting = asyncio.create_task(client.start())
    await broker.until(lambda: broker.count(ApiKey.METADATA) == 3)
    broker.brokers = known
    await starting
    await client.close()


async def test_bootstrap_explains_unreadable_certificates(
    broker: ScriptedBroker, quick: Quick
) -> None:
    client = client_of(broker.address, quick=quick, security=Tls(cafile="/nonexistent/ca.pem"))
    with pytest.raises(ConfigError, match="ca\\.pem"):
        await client.start()


async def test_bootstrap_uses_canonical_names_on_request(
    broker: ScriptedBroker, quick: Quick
) -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    client = client_of(f"127.0.0.1:{broker.port}", quick=quick, client_dns_lookup=lookup)
    servers = await canonical_servers(client.config, TcpConnector())
    name = socket.getnameinfo(("127.0.0.1", broker.port), 0)[0]
    assert servers == [(name, broker.port)]
    await client.start()
    await client.close()


async def test_each_address_of_a_name_becomes_a_server_with_its_canonical_name(
    monkeypatch: pytest.MonkeyPatch, quick: Quick
) -> None:
    names = {"10.0.0.1": "a.test", "10.0.0.2": "a.test", "2001:db8::1": "b.test"}

    def canonical(address: Address, flags: int) -> tuple[str, str]:
        if address[0] not in names:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return names[address[0]], str(address[1])

    class Names(TcpConnector):
        async def resolve(self, host: str, port: int) -> list[Address]:
            if host == "gone.test":
                raise socket.gaierror(socket.EAI_NONAME, "not known")
            return [(address, port) for address in (*names, "10.0.0.4")]

    monkeypatch.setattr(socket, "getnameinfo", canonical)
    lookup = "resolve_canonical_bootstrap_servers_only"
    client = client_of("all.test:1", "gone.test:2", quick=quick, client_dns_lookup=lookup)
    servers = await canonical_servers(client.config, Names())
    assert servers == [("a.test", 1), ("b.test", 1), ("all.test", 1), ("gone.test", 2)]


@pytest.mark.fault(35)
async def test_a_cancelled_bootstrap_leaves_nothing_open(quick: Quick) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as server:
        before = asyncio.all_tasks()
        client = client_of(server.address, quick=quick)
        starting = asyncio.create_task(client.start())
        while not server.opened:  # noqa: ASYNC110 - the server has no event to wait for
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        left = {t for t in asyncio.all_tasks() - before if "_run" not in repr(t.get_coro())}
        assert left == set()


async def test_a_connection_that_fails_during_the_close_changes_nothing(
    broker: ScriptedBroker, quick: Quick
) -> None:
    client = client_of(broker.address, quick=quick)
    await client.start()
    requests = client.brokers._requests
    await client.close()
    # An attempt to connect may still be in progress when the client closes.
    requests.on_connections_lost()
    assert client.supervisor.failure is None
