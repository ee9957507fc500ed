"""Tests of `listeners=`: checks, addresses, certificates, and who a connection belongs to."""

from __future__ import annotations

import asyncio
import builtins
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient import Admin, AnyBroker, Client, NewTopic, Producer
from aiokclient.errors import IllegalStateError
from aiokclient.protocol import messages
from aiokclient.testing import BrokerListener, EmbeddedCluster, Simulation, TokenIssuer

LISTENERS = {
    "SASL": BrokerListener(mechanisms=("PLAIN",), users={"alice": "wonderland"}),
    "OTHER": BrokerListener(host="localhost"),
    "TLS": BrokerListener(tls=True),
    "MTLS": BrokerListener(tls=True, mutual_tls=True),
}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics=["orders"], listeners=LISTENERS) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mechanisms": "PLAIN"}, "is a string"),
        ({"mechanisms": ("GSSAPI",)}, "'GSSAPI' is not a mechanism"),
        ({"mutual_tls": True}, "needs tls=True"),
        ({"users": {"alice": "secret"}}, "need mechanisms"),
        ({"max_reauth_ms": 5}, "need mechanisms"),
        ({"mechanisms": ("PLAIN",), "max_reauth_ms": -1}, "negative"),
        ({"mechanisms": ("PLAIN",), "iterations": 4095}, "4096"),
        ({"mechanisms": ("PLAIN",), "users": {"alice": ""}}, "cannot be empty"),
        ({"mechanisms": ("PLAIN",), "jwks": {"keys": [{}]}}, "needs the mechanism OAUTHBEARER"),
        ({"mechanisms": ("OAUTHBEARER",), "token_issuer": "i"}, "need jwks"),
        ({"mechanisms": ("OAUTHBEARER",), "jwks": "no json"}, "JSON Web Key Set"),
        ({"mechanisms": ("OAUTHBEARER",), "jwks": {"keys": []}}, "at least one key"),
    ],
)
def test_values_that_do_not_fit_raise_value_error(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BrokerListener(**options)


@pytest.mark.parametrize("name", ["PLAINTEXT", "sasl", "A-B", ""])
def test_a_listener_with_a_bad_name_raises_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a listener"):
        EmbeddedCluster(listeners={name: BrokerListener()})
    with pytest.raises(TypeError, match="not a BrokerListener"):
        EmbeddedCluster(listeners={"SASL": {}})


def test_a_scram_user_with_two_passwords_raises_value_error() -> None:
    first = BrokerListener(mechanisms=("SCRAM-SHA-256",), users={"alice": "one"})
    second = BrokerListener(mechanisms=("SCRAM-SHA-256",), users={"alice": "two"})
    with pytest.raises(ValueError, match="'alice' has two passwords"):
        EmbeddedCluster(listeners={"A": first, "B": second})


def test_secrets_are_not_in_the_repr() -> None:
    listener = BrokerListener(mechanisms=("PLAIN",), users={"alice": "wonderland"})
    assert "wonderland" not in repr(listener)
    with EmbeddedCluster(listeners={"TLS": BrokerListener(tls=True)}) as cluster:
        assert "PRIVATE" not in repr(cluster.client_certificate("alice"))


def test_each_listener_advertises_its_own_addresses(cluster: EmbeddedCluster, wire_to: Any) -> None:
    wire = wire_to(cluster)
    seen = set()
    for name, host in (("PLAINTEXT", "127.0.0.1"), ("OTHER", "localhost")):
        expected = {i: cluster.address(i, name) for i in (1, 2)}
        assert {address[0] for address in expected.values()} == {host}
        connection = wire.at(cluster.address(1, name))
        found = connection.request(messages.MetadataRequest(topics=[])).brokers
        assert {each.node_id: (each.host, each.port) for each in found} == expected
        found = connection.request(messages.DescribeClusterRequest()).brokers
        assert {each.broker_id: (each.host, each.port) for each in found} == expected
        request = messages.FindCoordinatorRequest(coordinator_keys=["billing"])
        (one,) = connection.request(request).coordinators
        assert (one.host, one.port) == expected[one.node_id]
        seen |= set(expected.values())
    assert len(seen) == 4


def test_addresses_stay_when_a_broker_restarts(cluster: EmbeddedCluster) -> None:
    before = {name: cluster.bootstrap_servers_for(name) for name in LISTENERS}
    cluster.stop(1)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(cluster.address(1, "OTHER"))
    cluster.start(1)
    assert {name: cluster.bootstrap_servers_for(name) for name in LISTENERS} == before
    socket.create_connection(cluster.address(1, "OTHER")).close()


def test_an_unknown_listener_raises_value_error_that_names_the_others() -> None:
    cluster = EmbeddedCluster(listeners={"SASL": BrokerListener(mechanisms=("PLAIN",))})
    with pytest.raises(ValueError, match="It has PLAINTEXT, CONTROLLER, SASL"):
        cluster.bootstrap_servers_for("SSL")
    with pytest.raises(IllegalStateError, match="before its start"):
        cluster.bootstrap_servers_for("SASL")
    with pytest.raises(ValueError, match="none of its listeners has TLS"):
        cluster.client_tls


def test_a_listener_uses_the_ports_that_it_is_given() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with EmbeddedCluster(listeners={"OTHER": BrokerListener(port=port)}) as cluster:
        assert cluster.address(1, "OTHER") == ("127.0.0.1", port)


def test_without_trustme_tls_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "trustme":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install aiokclient\[testing\]"):
        EmbeddedCluster(listeners={"TLS": BrokerListener(tls=True)})


async def test_a_client_produces_over_tls_in_the_loop_of_the_cluster() -> None:
    async with EmbeddedCluster(topics=["orders"], listeners=LISTENERS) as cluster:
        servers = cluster.bootstrap_servers_for("TLS")
        async with Producer(bootstrap_servers=servers, security=cluster.client_tls) as producer:
            await producer.send("orders", b"x" * 300_000)
        assert [len(record.value or b"") for record in cluster.records("orders", 0)] == [300_000]


async def test_a_client_produces_over_tls_to_the_thread_of_the_cluster(
    cluster: EmbeddedCluster,
) -> None:
    servers = cluster.bootstrap_servers_for("TLS")
    async with Producer(bootstrap_servers=servers, security=cluster.client_tls) as producer:
        await producer.send("orders", b"x")
    assert len(cluster.records("orders", 0)) == 1


async def test_a_certificate_of_the_authority_is_required_for_mutual_tls(
    cluster: EmbeddedCluster,
) -> None:
    servers = cluster.bootstrap_servers_for("MTLS")
    own = cluster.client_certificate("alice").tls
    async with Admin(bootstrap_servers=servers, security=own) as admin:
        await admin.create_topics([NewTopic("by-alice", 1)])
    assert "by-alice" in cluster.topics
    foreign = EmbeddedCluster(listeners=LISTENERS).client_certificate("alice")
    expired = cluster.client_certificate("alice", expired=True)
    for tls in (cluster.client_tls, expired.tls, foreign.tls):
        context = tls.ssl_context()
        context.load_verify_locations(cadata=expired.authority)
        assert refuses(context, *cluster.address(1, "MTLS"))


def refuses(context: ssl.SSLContext, host: str, port: int) -> bool:
    """Return whether a broker refuses a client. With TLS 1.3, only a read shows the refusal."""
    try:
        with (
            socket.create_connection((host, port), 60) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            return not wrapped.recv(1)
    except OSError as error:
        return not isinstance(error, TimeoutError)


def test_a_connection_has_the_common_name_of_its_certificate(cluster: EmbeddedCluster) -> None:
    context = cluster.client_certificate("alice").tls.ssl_context()
    host, port = cluster.address(1, "MTLS")
    with (
        socket.create_connection((host, port)) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        cluster.wait_for(lambda: cluster.connections(1) == 1)
        (connection,) = cluster._brokers[1]._connections
        assert str(connection.authentication.principal) == "User:alice"


def test_handshakes_that_never_end_do_not_keep_the_cluster_from_closing() -> None:
    cluster = EmbeddedCluster(listeners={"TLS": BrokerListener(tls=True)})
    with cluster:
        silent = socket.create_connection(cluster.address(1, "TLS"))
        plain = socket.create_connection(cluster.address(1, "TLS"))
        plain.sendall(b"\0\0\0\x04nope")
        plain.settimeout(60)
        assert plain.recv(100)[:1] in (b"", b"\x15")  # nothing, or a TLS alert
    silent.close()
    plain.close()


def test_tls_in_a_simulation_raises_value_error() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster(listeners={"TLS": BrokerListener(tls=True)}):
            pass

    with pytest.raises(ValueError, match="simulated network does not support TLS"):
        Simulation(1).run(main)


def test_listeners_without_tls_work_in_a_simulation() -> None:
    async def main(sim: Simulation) -> list[tuple[str, int]]:
        async with sim.cluster(brokers=2, listeners={"OTHER": BrokerListener()}) as cluster:
            servers = cluster.bootstrap_servers_for("OTHER")
            options: dict[str, Any] = {"connector": sim.connector, "clock": sim.clock}
            async with Client(bootstrap_servers=servers, **options) as client:
                found = await client.request(messages.MetadataRequest(topics=[]), AnyBroker())
            assert servers == ",".join(f"{each.host}:{each.port}" for each in found.brokers)
            return [(each.host, each.port) for each in found.brokers]

    assert Simulation(1).run(main) == Simulation(1).run(main)


def test_issuers_sign_tokens_that_only_their_keys_accept() -> None:
    from aiokclient.testing.broker.security.jwt import TokenRules, check_token

    for algorithm in ("RS256", "ES256"):
        issuer = TokenIssuer(issuer="me", audience="kafka", algorithm=algorithm)
        other = TokenIssuer(issuer="me", audience="kafka", algorithm=algorithm)
        rules = TokenRules(tuple(issuer.jwks["keys"]), "me", "kafka")
        found = check_token(issuer.token("alice", now_s=1000, lifetime_s=60), rules, 1_000_000)
        assert found == ("alice", 1_060_000)
        for token in (
            other.token("alice", now_s=1000),
            issuer.token("alice", now_s=1000, aud="another"),
            issuer.token("alice", now_s=1000, iss="another"),
            issuer.token("alice", now_s=800, lifetime_s=160),
            issuer.token("alice", now_s=1000, sub=None),
            issuer.token("alice", now_s=1000, iat=None),
            issuer.token("alice", now_s=1000)[:-4] + "AAAA",
        ):
            with pytest.raises(ValueError):
                check_token(token, rules, 1_000_000)


async def test_many_tls_connections_are_closed_with_the_broker(cluster: EmbeddedCluster) -> None:
    context = cluster.client_tls.ssl_context()
    host, port = cluster.address(1, "TLS")
    opened = await asyncio.gather(
        *(asyncio.open_connection(host, port, ssl=context) for _ in range(10))
    )
    await cluster.until(lambda: cluster.connections(1) == 10)
    cluster.stop(1)
    ends = await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
    assert all(isinstance(end, OSError) or end == b"" for end in ends)
    for _, writer in opened:
        writer.close()
