"""Tests of connection setup: API versions, TLS, and servers that are not Kafka brokers."""

import asyncio
import ssl
import struct
from collections.abc import Callable
from typing import Any

import pytest
import trustme
from scripted import MemoryTransport, ScriptedBroker, Server, raw_server

from aiokclient.config.security import Tls
from aiokclient.errors import (
    ConnectionSetupError,
    DisconnectedError,
    KafkaError,
    TlsError,
    UnsupportedVersionError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Metrics
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.diagnosis import UNEXPLAINED, ClosedEarlyError
from aiokclient.network.setup import RUNGS, ConnectionSettings, SetupProgress, open_connection
from aiokclient.network.tls import TlsContexts
from aiokclient.network.traffic import Traffic
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.api_versions import ApiVersionsResponse
from aiokclient.protocol.messages.metadata import MetadataRequest
from aiokclient.testing import BrokerListener, EmbeddedCluster

Settings = Callable[..., ConnectionSettings]


async def reach(
    server: Server,
    settings: ConnectionSettings,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 30,
    rung: int = 0,
    node_id: int = -1,
) -> BrokerConnection:
    return await open_connection(
        node_id, host, server.port, settings, timeout_s=timeout_s, rung=rung
    )


async def refusal(server: Server, settings: ConnectionSettings, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await reach(server, settings, **options)  # type: ignore[arg-type]
    return caught.value


def contexts(context: ssl.SSLContext) -> TlsContexts:
    made = TlsContexts(Tls(context=context), ClientLog("aiokclient", "test"))
    made.load_files()
    return made


def versions_asked(broker: ScriptedBroker) -> list[int]:
    return [received.header.request_api_version for received in broker.seen]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


# -- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoken", "asked"),
    [((0, 5), [5]), ((0, 4), [5, 4]), ((0, 3), [5, 3]), ((0, 0), [5, 0]), ((0, 99), [5])],
)
async def test_the_version_of_api_versions_is_negotiated(
    settings: Settings, spoken: tuple[int, int], asked: list[int]
) -> None:
    async with ScriptedBroker() as broker:
        broker.versions[ApiKey.API_VERSIONS] = spoken
        connection = await reach(broker, settings())
        assert connection.broker.api_versions == broker.versions
        assert connection.broker.version_of(MetadataRequest) == 12
        assert versions_asked(broker) == asked
        connection.close()


async def test_a_refusal_that_lists_nothing_leads_to_version_0(settings: Settings) -> None:
    async with ScriptedBroker() as broker:

        def old(request: object, version: int) -> object:
            return broker.api_versions(request, version) if version == 0 else refused

        refused = ApiVersionsResponse(error_code=35)
        broker.versions[ApiKey.API_VERSIONS] = (0, 0)
        broker.handlers[ApiKey.API_VERSIONS] = old
        connection = await reach(broker, settings())
        assert versions_asked(broker) == [5, 0]
        connection.close()


@pytest.mark.parametrize(
    "keys",
    [
        b"\x02\0\x12\0\0\0\2\0\0\0\0\0\0",
        b"\x01\0\x12\0\0\0\2\0\0\0\0\0\0",
        b"",
    ],
    ids=["in the form of the request", "miscounted", "with nothing"],
)
async def test_a_refusal_that_cannot_be_read_leads_to_version_0(
    settings: Settings, keys: bytes
) -> None:
    """Brokers of other vendors answer an unknown version in formats that Kafka does not use."""
    async with ScriptedBroker() as broker:
        body = struct.pack(">ih", 0, 35) + keys
        frame = struct.pack(">i", len(body)) + body
        broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: (
            frame if version > 2 else broker.api_versions(request, version)
        )
        connection = await reach(broker, settings())
        assert versions_asked(broker) == [5, 0]
        assert connection.broker.api_versions == broker.versions
        connection.close()


@pytest.mark.fault(34)
async def test_setup_fails_when_the_broker_refuses_every_version(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda *_: ApiVersionsResponse(error_code=35)
        error = await refusal(broker, settings())
        assert isinstance(error, UnsupportedVersionError)
        assert "0 to 5" in str(error)
        assert len(broker.seen) <= len(RUNGS)


@pytest.mark.fault(34)
async def test_setup_fails_when_the_broker_refuses_the_version_that_it_names(
    settings: Settings,
) -> None:
    async with ScriptedBroker() as broker:
        broker.versions[ApiKey.API_VERSIONS] = (0, 5)
        answer = broker.api_versions(None, 5)
        broker.handlers[ApiKey.API_VERSIONS] = lambda *_: answer
        assert isinstance(await refusal(broker, settings()), UnsupportedVersionError)
        assert len(broker.seen) <= len(RUNGS)


@pytest.mark.fault(34)
async def test_setup_times_out_when_the_broker_does_not_respond(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda *_: None
        error = await refusal(broker, settings(request_s=0.05))
        assert isinstance(error, DisconnectedError)
        assert "did not answer" in str(error)


async def test_setup_fails_when_there_is_no_common_version(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        broker.versions[ApiKey.API_VERSIONS] = (7, 9)
        error = await refusal(broker, settings())
        assert isinstance(error, UnsupportedVersionError)
        assert "7 to 9" in str(error)
        assert "0 to 5" in str(error)


async def test_a_lower_version_is_tried_after_an_old_broker_hung_up(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: (
            ConnectionError if version > 0 else broker.api_versions(request, version)
        )
        for rung in (0, 1):
            with pytest.raises(ClosedEarlyError):
                await reach(broker, settings(), rung=rung, node_id=1)
        (await reach(broker, settings(), rung=2, node_id=1)).close()
        assert versions_asked(broker) == [5, 3, 0]


@pytest.mark.fault(33)
async def test_each_connection_requests_the_versions(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        first = await reach(broker, settings())
        broker.versions[ApiKey.METADATA] = (0, 8)
        second = await reach(broker, settings())
        assert first.broker.version_of(MetadataRequest) == 12
        assert second.broker.version_of(MetadataRequest) == 8
        first.close()
        second.close()


# -- not a broker -------------------------------------------------------------------------------


def saying(data: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        await reader.read()

    return session


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH server"),
        (b"\xff" * 64, "not a Kafka broker"),
        (b"\x7f\xff\xff\xff", "not a Kafka broker"),
        (b"\x00\x00\x00\x00", "not a Kafka broker"),
        (struct.pack(">i", 30) + b"\xab" * 30, "not a Kafka broker"),
        (struct.pack(">i", 1024 * 1024 + 1), "not a Kafka broker"),
    ],
)
async def test_servers_that_are_not_brokers_are_named(
    settings: Settings, data: bytes, what: str
) -> None:
    async with raw_server(saying(data)) as server:  # type: ignore[arg-type]
        error = await refusal(server, settings())
        assert isinstance(error, ConnectionSetupError)
        assert what in str(error)
        assert server.address in str(error)


@pytest.mark.fault(29)
async def test_a_slow_server_that_is_not_a_broker_is_named(settings: Settings) -> None:
    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.001)
        await reader.read()

    async with raw_server(session) as server:
        assert "HTTP server" in str(await refusal(server, settings()))


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def test_a_port_that_hangs_up_may_be_a_stopping_broker(settings: Settings) -> None:
    async with raw_server(hang_up) as server:
        error = await refusal(server, settings())
        assert isinstance(error, ClosedEarlyError)
        assert error.retriable


async def test_a_refused_connection_is_explained(settings: Settings, unused_tcp_port: int) -> None:
    with pytest.raises(DisconnectedError, match="Connection refused"):
        await open_connection(-1, "127.0.0.1", unused_tcp_port, settings(), timeout_s=30, rung=0)


# -- TLS ----------------------------------------------------------------------------------------


async def test_setup_succeeds_over_tls(
    settings: Settings, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with ScriptedBroker() as broker:
        await broker.stop()
        await broker.start(server_tls)
        connection = await reach(broker, settings(tls=contexts(client_tls)), host="localhost")
        assert connection.broker.api_versions == broker.versions
        connection.close()


def authentications(traffic: Traffic) -> tuple[float, float]:
    """Return how many authentications succeeded, and how many failed."""
    own = traffic.own_metrics
    return (
        own.counter("authentications").value,
        own.counter("authentications.failed").value,
    )


async def test_tls_handshakes_count_as_authentications(
    settings: Settings,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    traffic = Traffic(Metrics(), "test")
    untrusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with ScriptedBroker() as broker:
        (await reach(broker, settings(traffic=traffic))).close()
        assert authentications(traffic) == (0, 0)
        await broker.stop()
        await broker.start(server_tls)
        over_tls = settings(tls=contexts(client_tls), traffic=traffic)
        (await reach(broker, over_tls, host="localhost")).close()
        assert authentications(traffic) == (1, 0)
        await refusal(broker, settings(tls=contexts(untrusting), traffic=traffic))
        assert authentications(traffic) == (1, 1)


async def test_a_missing_client_certificate_counts_as_failed_authentication(
    settings: Settings,
) -> None:
    traffic = Traffic(Metrics(), "test")
    listener = BrokerListener(tls=True, mutual_tls=True)
    async with EmbeddedCluster(listeners={"MTLS": listener}) as cluster:
        tls = TlsContexts(cluster.client_tls, ClientLog("aiokclient", "test"))
        tls.load_files()
        host, _, port = cluster.bootstrap_servers_for("MTLS").split(",")[0].rpartition(":")
        with pytest.raises(TlsError):
            await open_connection(
                1, host, int(port), settings(tls=tls, traffic=traffic), timeout_s=30, rung=0
            )
        assert authentications(traffic) == (0, 1)


@pytest.mark.fault(29)
async def test_setup_explains_a_tls_port_used_with_plaintext(
    settings: Settings, server_tls: ssl.SSLContext
) -> None:
    async with ScriptedBroker() as broker:
        await broker.stop()
        await broker.start(server_tls)
        error = await refusal(broker, settings())
        assert isinstance(error, ConnectionSetupError)
        assert "TLS port, but the client uses plaintext" in str(error)
        assert "Tls()" in str(error)


@pytest.mark.fault(29)
async def test_setup_explains_a_plaintext_port_used_with_tls(
    settings: Settings, client_tls: ssl.SSLContext
) -> None:
    # A real broker also refuses the start of a TLS handshake, which looks like too long a frame.
    async with ScriptedBroker() as broker:
        error = await refusal(broker, settings(tls=contexts(client_tls)))
        assert isinstance(error, ConnectionSetupError)
        assert "plaintext port, but the client uses TLS" in str(error)
        assert "Plaintext()" in str(error)


@pytest.mark.fault(29)
async def test_an_http_server_used_with_tls_is_explained(
    settings: Settings, client_tls: ssl.SSLContext
) -> None:
    async with raw_server(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:  # type: ignore[arg-type]
        error = await refusal(server, settings(tls=contexts(client_tls)))
        assert isinstance(error, ConnectionSetupError)
        assert "the client uses TLS" in str(error)


@pytest.mark.fault(26)
async def test_a_certificate_for_another_host_is_refused(
    settings: Settings, authority: trustme.CA, client_tls: ssl.SSLContext
) -> None:
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(other)
    async with ScriptedBroker() as broker:
        await broker.stop()
        await broker.start(other)
        error = await refusal(broker, settings(tls=contexts(client_tls)), host="localhost")
        assert isinstance(error, ConnectionSetupError)
        assert "certificate" in str(error)
        assert broker.seen == []


# -- names and addresses ------------------------------------------------------------------------


class Names:
    """A connector that resolves names by a function of the test, and opens real connections."""

    def __init__(self, resolve: Callable[[], object], real: ConnectionSettings) -> None:
        self._resolve = resolve
        self.connect = real.connector.connect

    async def resolve(self, host: str, port: int) -> list[Address]:
        found = self._resolve()
        if isinstance(found, Exception):
            raise found
        if found is None:
            await asyncio.get_running_loop().create_future()
        return [(address, port) for address in found]  # type: ignore[attr-defined]


async def test_a_final_dot_is_not_part_of_the_name_in_the_certificate(
    settings: Settings, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with ScriptedBroker() as broker:
        await broker.stop()
        await broker.start(server_tls)
        names = Names(lambda: ["127.0.0.1"], settings())
        secure = settings(connector=names, tls=contexts(client_tls))
        connection = await reach(broker, secure, host="localhost.")
        connection.close()


@pytest.mark.fault(16)
@pytest.mark.parametrize(
    ("found", "text"),
    [
        (OSError(-2, "Name or service not known"), "cannot be resolved"),
        (UnicodeError("label too long"), "cannot be resolved"),
        ([], "no address"),
        (None, "Resolving .* took over"),
    ],
)
async def test_names_that_do_not_resolve_are_explained(
    settings: Settings, found: object, text: str
) -> None:
    connector = Names(lambda: found, settings())
    with pytest.raises(DisconnectedError, match=text) as caught:
        await open_connection(
            -1, "kafka.example", 9092, settings(connector=connector), timeout_s=0.02, rung=0
        )
    assert "kafka.example" in str(caught.value)


async def test_the_next_address_is_tried_after_a_failure(settings: Settings) -> None:
    async with ScriptedBroker() as broker:
        connector = Names(lambda: ["127.0.0.2", "127.0.0.1"], settings())
        connection = await reach(broker, settings(connector=connector), host="kafka.example")
        assert connection.broker.address == f"kafka.example:{broker.port}"
        connection.close()


async def test_loser_of_the_race_leaves_no_socket_open(settings: Settings) -> None:
    """The handshake of the first address never ends, and the second one wins."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async with raw_server(silent) as server, ScriptedBroker() as broker:
        real = settings().connector

        async def connect(address: Address, factory: Any, **_: object) -> asyncio.Transport:
            slow = address[0] == "127.0.0.2"
            return await real.connect(
                ("127.0.0.1", server.port if slow else broker.port),
                factory,
                tls=context if slow else None,
                server_hostname="kafka.example",
            )

        connector = Names(lambda: ["127.0.0.2", "127.0.0.1"], settings())
        connector.connect = connect  # type: ignore[assignment]
        connection = await reach(broker, settings(connector=connector), host="kafka.example")
        await closed.wait()
        assert not connection.closed
        connection.close()


async def test_ipv6_address_is_written_in_brackets(settings: Settings) -> None:
    for host in ("::1", "[::1]"):
        connector = Names(lambda: OSError("no"), settings())
        with pytest.raises(DisconnectedError, match=r"\[::1\]:70000"):
            await open_connection(
                1, host, 70_000, settings(connector=connector), timeout_s=30, rung=0
            )


async def test_all_addresses_are_named_when_all_fail(
    settings: Settings, unused_tcp_port: int
) -> None:
    connector = Names(lambda: ["127.0.0.2", "127.0.0.3"], settings())
    with pytest.raises(DisconnectedError, match=r"127\.0\.0\.2.*127\.0\.0\.3"):
        await open_connection(
            1, "kafka", unused_tcp_port, settings(connector=connector), timeout_s=30, rung=0
        )


@pytest.mark.parametrize(
    ("port", "usable"), [(-1, False), (0, False), (1, True), (65535, True), (65536, False)]
)
async def test_only_a_port_that_cannot_exist_is_refused_without_an_attempt(
    settings: Settings, port: int, usable: bool
) -> None:
    attempts: list[Address] = []

    class Refusing(TcpConnector):
        async def resolve(self, host: str, port: int) -> list[Address]:
            return [(host, port)]

        async def connect(self, address: Address, *_: Any, **__: Any) -> Any:
            attempts.append(address)
            raise ConnectionRefusedError

    with pytest.raises(DisconnectedError) as caught:
        await open_connection(
            7, "broker", port, settings(connector=Refusing()), timeout_s=5, rung=0
        )
    assert attempts == ([("broker", port)] if usable else [])
    assert ("Broker 7 has the address" in str(caught.value)) is not usable


# -- what is told, and what is left, when an address fails ----------------------------------------


class Failing:
    """A connector whose addresses accept a connection, and then fail or close it."""

    def __init__(self, addresses: int, error: Exception | None) -> None:
        self.addresses, self.error = addresses, error
        self.transports: list[MemoryTransport] = []

    async def resolve(self, host: str, port: int) -> list[Address]:
        return [(f"10.0.0.{number}", port) for number in range(self.addresses)]

    async def connect(self, address: Address, factory: Any, **_: Any) -> Any:
        transport = MemoryTransport(factory())
        self.transports.append(transport)
        if self.error is not None:
            raise self.error
        asyncio.get_running_loop().call_soon(transport._end)
        return transport


class Recorder(SetupProgress):
    """A progress that records each step."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @property  # type: ignore[override]
    def awaited(self) -> str:
        return self.told[-1]

    @awaited.setter
    def awaited(self, step: str) -> None:
        self.told.append(step)


async def test_step_is_taken_back_and_the_connection_closed_when_a_handshake_fails(
    settings: Settings, client_tls: ssl.SSLContext
) -> None:
    progress = Recorder()
    connector = Failing(2, OSError("lost"))
    with pytest.raises(DisconnectedError):
        await open_connection(
            1, "kafka", 9092, settings(connector=connector, tls=contexts(client_tls)),
            timeout_s=5, rung=0, progress=progress,
        )  # fmt: skip
    assert progress.told == ["the TLS handshake", ""] * 2
    assert [transport.closing for transport in connector.transports] == [True, True]


@pytest.mark.parametrize(
    ("node_id", "examine", "examined"),
    [(-1, True, True), (-1, False, False), (0, True, False), (1, True, False)],
)
async def test_only_a_bootstrap_server_is_examined_when_it_closes_early(
    settings: Settings, node_id: int, examine: bool, examined: bool
) -> None:
    progress = Recorder()
    connector = Failing(1, None)
    with pytest.raises(ClosedEarlyError):
        await open_connection(
            node_id, "kafka", 9092, settings(connector=connector),
            timeout_s=5, rung=0, examine=examine, progress=progress,
        )  # fmt: skip
    assert (len(connector.transports) > 1) is examined
    assert progress.told == ["ApiVersions"]


class Refusing(Failing):
    """A connector whose server refuses the certificate after the handshake, as in TLS 1.3."""

    def __init__(self, refusal: ssl.SSLError) -> None:
        super().__init__(1, None)
        self.refusal = refusal

    async def connect(self, address: Address, factory: Any, **_: Any) -> Any:
        connection = factory()
        transport = MemoryTransport(connection)
        self.transports.append(transport)
        asyncio.get_running_loop().call_soon(connection.connection_lost, self.refusal)
        return transport


@pytest.mark.parametrize("is_late", [False, True], ids=["TLS 1.2", "TLS 1.3"])
@pytest.mark.parametrize("is_known", [False, True])
async def test_refused_client_is_told_what_is_known_of_its_certificate(
    settings: Settings, is_late: bool, is_known: bool
) -> None:
    refusal = ssl.SSLError(1, "alert")
    refusal.reason = "SSLV3_ALERT_BAD_CERTIFICATE"
    connector = Refusing(refusal) if is_late else Failing(1, refusal)
    options = Tls() if is_known else Tls(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    tls = TlsContexts(options, ClientLog("aiokclient", "test"))
    tls.load_files()
    traffic = Traffic(Metrics(), "test")
    changed = settings(connector=connector, tls=tls, traffic=traffic)
    with pytest.raises(TlsError) as caught:
        await open_connection(1, "kafka", 9092, changed, timeout_s=5, rung=0)
    assert UNEXPLAINED[False if is_known else None] in str(caught.value)
    assert authentications(traffic) == (0, 1)
