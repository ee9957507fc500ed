"""Certificates that change while a client is working."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trustme

from aiokclient import Client, Consumer, Producer, Tls
from aiokclient.errors import ConnectionSetupError, TlsError
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.certificates import AlertingObject

LIMIT = 1 << 16


class Terminator(TcpConnector):
    """A TLS proxy for the brokers of a cluster, and the connector that directs clients to it."""

    def __init__(self, cluster: EmbeddedCluster, authority: trustme.CA) -> None:
        super().__init__()
        self.cluster, self.authority = cluster, authority
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without this class, clients get no TLS alert that says why their certificate is refused.
        self.context.sslobject_class = AlertingObject
        self.ports: dict[int, int] = {}
        self.servers: list[asyncio.Server] = []
        self.open: dict[asyncio.StreamWriter, None] = {}
        self.accepted = self.forwarded = 0
        self.valid()

    async def __aenter__(self) -> Terminator:
        for broker in self.cluster.brokers:
            _, port = self.cluster.address(broker)
            server = await asyncio.start_server(
                self._serving(port), "127.0.0.1", 0, ssl=self.context
            )
            self.servers.append(server)
            self.ports[port] = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self.cut()
        for server in self.servers:
            server.close()
            await server.wait_closed()

    def valid(self, *names: str, **validity: Any) -> None:
        """Use a new certificate for all connections from now on."""
        leaf = self.authority.issue_cert(*(names or ("127.0.0.1",)), **validity)
        leaf.configure_cert(self.context)

    def cut(self) -> None:
        for writer in list(self.open):
            writer.transport.abort()

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        **how: Any,
    ) -> asyncio.Transport:
        there = (address[0], self.ports[address[1]])
        return await super().connect(there, protocol_factory, **how)

    def _serving(
        self, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.accepted += 1
            back, there = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(self._carry(reader, there, 1), self._carry(back, writer, 0))

        return serve

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: int
    ) -> None:
        self.open[writer] = None
        try:
            while data := await reader.read(LIMIT):
                self.forwarded += counted * len(data)
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open.pop(writer, None)
            writer.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def security(authority: trustme.CA) -> Tls:
    return Tls(cadata=authority.cert_pem.bytes().decode())


@pytest.fixture
async def terminator(authority: trustme.CA) -> AsyncIterator[Terminator]:
    async with EmbeddedCluster(topics=["orders"]) as cluster, Terminator(cluster, authority) as it:
        yield it


def past() -> dict[str, datetime.datetime]:
    then = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return {"not_before": then, "not_after": then.replace(month=2)}


@pytest.mark.fault(45)
async def test_clients_continue_when_a_certificate_is_replaced(
    terminator: Terminator, security: Tls
) -> None:
    servers = terminator.cluster.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers, security=security, connector=terminator) as producer,
        Consumer(
            "orders",
            bootstrap_servers=servers,
            security=security,
            connector=terminator,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        for number in range(3):
            await producer.send("orders", b"%d" % number)
            record = await consumer.get(timeout=30)
            assert record is not None
            assert record.value == b"%d" % number
            terminator.valid()
            terminator.cut()


@pytest.mark.fault(45)
@pytest.mark.parametrize("wrong", ["expired", "another host's"])
async def test_clients_continue_after_a_bad_certificate_is_repaired(
    terminator: Terminator, security: Tls, wrong: str
) -> None:
    async with Producer(
        bootstrap_servers=terminator.cluster.bootstrap_servers,
        security=security,
        connector=terminator,
        reconnect_backoff_max_ms=50,
    ) as producer:
        await producer.send("orders", b"before")
        if wrong == "expired":
            terminator.valid(**past())
        else:
            terminator.valid("elsewhere.example")
        terminator.cut()
        told = terminator.forwarded
        with pytest.raises(ConnectionSetupError, match="is not accepted") as caught:
            await producer.send("orders", b"meanwhile")
        assert not caught.value.retriable
        assert terminator.forwarded == told
        terminator.valid()
        await producer.send("orders", b"after")
    values = [record.value for record in terminator.cluster.records("orders", 0)]
    assert values == [b"before", b"after"]


EXPIRED = "certificate has expired.*Renew it"
UNTRUSTED = "unable to get local issuer certificate.*Check the certificate authority given to Tls"


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("expired", EXPIRED),
        ("foreign", UNTRUSTED),
        ("another host's", "not valid for '127.0.0.1'.*Use a name that is in the certificate"),
    ],
)
async def test_a_refused_certificate_of_a_broker_is_explained_and_nothing_is_sent(
    terminator: Terminator, security: Tls, wrong: str, text: str
) -> None:
    if wrong == "expired":
        terminator.valid(**past())
    elif wrong == "foreign":
        trustme.CA().issue_cert("127.0.0.1").configure_cert(terminator.context)
    else:
        terminator.valid("elsewhere.example")
    servers = terminator.cluster.bootstrap_servers
    client = Client(bootstrap_servers=servers, security=security, connector=terminator)
    with pytest.raises(TlsError, match=text):
        await client.start()
    assert (terminator.accepted, terminator.forwarded) == (0, 0)
    terminator.valid()
    await client.start()
    await client.close()
    assert terminator.accepted > 0
    assert terminator.forwarded > 0


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("no certificate", "requires a certificate of the client, and there is none"),
        ("expired", "because it has expired"),
        ("foreign", "because it does not trust its authority"),
    ],
)
async def test_a_refused_certificate_of_the_client_is_explained_and_no_byte_arrives(
    terminator: Terminator, authority: trustme.CA, wrong: str, text: str
) -> None:
    authority.configure_trust(terminator.context)
    terminator.context.verify_mode = ssl.CERT_REQUIRED
    signer = trustme.CA() if wrong == "foreign" else authority
    trusted = authority.cert_pem.bytes().decode()
    validity: dict[str, Any] = past() if wrong == "expired" else {}
    leaf = signer.issue_cert("alice", **validity)
    own: dict[str, Any] = {
        "certdata": leaf.cert_chain_pems[0].bytes().decode(),
        "keydata": leaf.private_key_pem.bytes().decode(),
    }
    if wrong == "no certificate":
        own = {}
    security = Tls(cadata=trusted, **own)
    servers = terminator.cluster.bootstrap_servers
    client = Client(bootstrap_servers=servers, security=security, connector=terminator)
    with pytest.raises(TlsError, match=text):
        await client.start()
    assert (terminator.accepted, terminator.forwarded) == (0, 0)


@pytest.mark.fault(26)
async def test_wrong_host_in_the_metadata_gets_no_data(
    authority: trustme.CA, security: Tls
) -> None:
    """The certificate is valid for the bootstrap address, but not for the address in metadata."""
    cluster = EmbeddedCluster(topics=["orders"], advertised_host="localhost")
    async with cluster, Terminator(cluster, authority) as terminator:
        _, port = cluster.address(1)
        client = Client(
            bootstrap_servers=f"127.0.0.1:{port}",
            security=security,
            connector=terminator,
            default_api_timeout_ms=3_000,
        )
        with pytest.raises(ConnectionSetupError, match="is not accepted"):
            await client.start()
        bootstraps = [each for each in cluster.requests if each.api == ApiKey.METADATA]
        assert bootstraps
        told = terminator.forwarded
        with pytest.raises(ConnectionSetupError, match="is not accepted"):
            await client.start()
        # The second start sent as much data as the first: only the bootstrap server received any.
        assert terminator.forwarded == 2 * told
