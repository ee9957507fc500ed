"""GSSAPI over a scripted package gssapi: the messages, the errors, and logins that use it.

`test_kerberos.py` has the same tests with the real package and a real KDC, if they are installed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerberos_peers import OFFER, FakeBroker, FakeGssapi, FakeGssError, wrapped

import aiokclient.config.security.sasl as security
from aiokclient import Producer, SaslGssapi, Tls
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ConfigError, SaslAuthenticationError, TicketError
from aiokclient.network.sasl import ChallengeError, Login, Thread
from aiokclient.network.sasl.gssapi import Gssapi, NoTicketError
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.connections.sasl import MECHANISMS

KDC_UNREACHABLE = FakeGssError(851968, 2529639068, "Cannot contact any KDC\nfor realm TEST")
NOT_FOUND = FakeGssError(851968, 2529638919, "Server not found in Kerberos database")
EXPIRED = FakeGssError(11 << 16, 0, "The referenced credential has expired")
CONTEXT_EXPIRED = FakeGssError(12 << 16, 100001, "The referenced context has expired")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakeGssapi:
    """The scripted package, in place of the real one."""
    made = FakeGssapi()
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


def login(**options: Any) -> Gssapi:
    return Gssapi(Login(SaslGssapi(**options), "broker.test"))


def answer(mechanism: Gssapi, challenge: bytes) -> bytes | None:
    """Return the response to a challenge, whose blocking work is done in this thread."""
    assert mechanism.thread is Thread.BLOCKING
    return mechanism.answer_challenge(challenge)


# -- the messages --------------------------------------------------------------------------------


def test_both_sides_are_authenticated_and_choose_no_layer(package: FakeGssapi) -> None:
    mechanism = login()
    assert answer(mechanism, b"") == b"ap-req"
    assert answer(mechanism, b"ap-rep") == b"", "an empty message acknowledges the last token"
    assert answer(mechanism, wrapped(b"\x07\x00\xff\xff")) == wrapped(OFFER)
    assert answer(mechanism, b"") is None
    assert package.received == [None, b"ap-rep"]
    (context,) = package.contexts
    assert context["name"] == ("kafka@broker.test", "host")
    assert (context["mech"], context["usage"]) == ("kerberos", "initiate")
    assert context["flags"] == ["mutual", "integrity", "sequence"]


def test_a_context_may_take_more_messages(package: FakeGssapi) -> None:
    package.tokens = [b"1", b"2", None]
    mechanism = login()
    assert [answer(mechanism, challenge) for challenge in (b"", b"a", b"b")] == [b"1", b"2", b""]
    assert answer(mechanism, wrapped(OFFER)) == wrapped(OFFER)


@pytest.mark.parametrize(
    ("options", "name", "store"),
    [
        ({}, None, None),
        ({"ticket_cache": "/tmp/krb5cc"}, None, {"ccache": "/tmp/krb5cc"}),
        ({"principal": "alice@TEST"}, ("alice@TEST", "principal"), None),
    ],
)
def test_tickets_are_those_of_the_ticket_cache(
    package: FakeGssapi, options: dict[str, str], name: Any, store: Any
) -> None:
    answer(login(**options), b"")
    (acquired,) = package.acquired
    assert (acquired["name"], acquired["store"]) == (name, store)


def test_tickets_of_a_keytab_are_in_a_cache_of_their_own(package: FakeGssapi) -> None:
    credentials = SaslGssapi(principal="alice", keytab="/alice.keytab")
    for _ in range(2):
        answer(Gssapi(Login(credentials, "h")), b"")
    answer(Gssapi(Login(SaslGssapi(keytab="/alice.keytab"), "h")), b"")
    first, second, other = (acquired["store"] for acquired in package.acquired)
    assert first == second
    assert first["client_keytab"] == "/alice.keytab"
    assert first["ccache"].startswith("MEMORY:")
    assert other["ccache"] != first["ccache"]


# -- errors --------------------------------------------------------------------------------------


def test_a_broker_that_does_not_authenticate_itself_is_refused(package: FakeGssapi) -> None:
    package.flags = ("integrity",)
    mechanism = login()
    answer(mechanism, b"")
    with pytest.raises(ChallengeError, match="did not authenticate itself"):
        answer(mechanism, b"ap-rep")


@pytest.mark.parametrize("host", ["broker.test", "10.0.0.1"])
def test_a_domain_name_replaces_the_host_of_the_address(package: FakeGssapi, host: str) -> None:
    made = read(
        sasl_kerberos_service_name="broker",
        sasl_kerberos_domain_name="kafka.example.com",
        sasl_jaas_config=KRB5 + 'useKeyTab=true keyTab="/a.keytab";',
    )
    for credentials in (made, SaslGssapi("broker", domain_name="kafka.example.com")):
        package.contexts.clear()
        answer(Gssapi(Login(credentials, host)), b"")
        (context,) = package.contexts
        assert context["name"] == ("broker@kafka.example.com", "host")
    assert read(sasl_kerberos_domain_name="x") == SaslGssapi(domain_name="x")


@pytest.mark.parametrize("name", ["", "a/b", "a@B", "a b", 5])
def test_a_wrong_domain_name_is_refused(package: FakeGssapi, name: Any) -> None:
    with pytest.raises(ConfigError, match="domain_name must be a host name"):
        SaslGssapi(domain_name=name)


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        (b"\x06\0\0\0", "demands a security layer"),
        (b"", "malformed"),
        (b"\x01\0\0", "malformed"),
        (b"\x01\0\0\0alice", "malformed"),
    ],
)
def test_a_broker_with_other_layers_is_refused(
    package: FakeGssapi, layers: bytes, text: str
) -> None:
    mechanism = login()
    answer(mechanism, b"")
    answer(mechanism, b"ap-rep")
    with pytest.raises(ChallengeError, match=text):
        answer(mechanism, wrapped(layers))


@pytest.mark.parametrize(
    "challenges", [[b"x"], [b"", b""], [b"", b"a", wrapped(OFFER), b"x"], [b"", b"a", b""]]
)
def test_unexpected_messages_are_refused(package: FakeGssapi, challenges: list[bytes]) -> None:
    mechanism = login()
    *expected, last = challenges
    for challenge in expected:
        answer(mechanism, challenge)
    with pytest.raises(ChallengeError, match=r"not expect|not valid in Kerberos: .* invalid MIC\."):
        answer(mechanism, last)
    with pytest.raises(ChallengeError, match="not expect"):
        answer(mechanism, b"")


def test_a_wrong_token_of_the_broker_is_refused(package: FakeGssapi) -> None:
    package.tokens = [b"ap-req", KDC_UNREACHABLE]
    mechanism = login()
    answer(mechanism, b"")
    with pytest.raises(ChallengeError, match="not valid in Kerberos: Cannot contact any KDC for"):
        answer(mechanism, b"garbage")


@pytest.mark.parametrize("failure", [KDC_UNREACHABLE, EXPIRED, 0])
def test_a_ticket_that_is_missing_now_is_a_retriable_error(
    package: FakeGssapi, failure: Any
) -> None:
    package.ticket = failure
    with pytest.raises(TicketError) as caught:
        answer(login(), b"")
    assert caught.value.retriable


@pytest.mark.parametrize("expired", [EXPIRED, CONTEXT_EXPIRED])
@pytest.mark.parametrize("token", [b"", b"ap-rep"])
def test_a_ticket_that_expires_during_the_login_is_a_retriable_error(
    package: FakeGssapi, token: bytes, expired: FakeGssError
) -> None:
    package.tokens = [b"ap-req", expired] if token else [expired]
    mechanism = login()
    if token:
        answer(mechanism, b"")
    with pytest.raises(TicketError) as caught:
        answer(mechanism, token)
    assert caught.value.retriable


def test_a_ticket_that_cannot_be_had_is_a_refused_login(package: FakeGssapi) -> None:
    package.tokens = [NOT_FOUND]
    with pytest.raises(NoTicketError, match="Server not found in Kerberos database") as caught:
        answer(login(), b"")
    assert isinstance(caught.value, SaslAuthenticationError)
    assert not caught.value.retriable


@pytest.mark.fuzz
@given(st.lists(st.binary(max_size=40) | st.builds(wrapped, st.binary(max_size=8)), max_size=5))
def test_any_messages_of_a_broker_end_in_a_typed_error_or_in_success(messages: list[bytes]) -> None:
    real = sys.modules.get("gssapi")
    sys.modules["gssapi"] = FakeGssapi()
    try:
        mechanism = login()
        answer(mechanism, b"")
        outcome: object = b""
        for message in messages:
            try:
                outcome = answer(mechanism, message)
            except ChallengeError as error:
                outcome = error
        assert outcome is None or isinstance(outcome, bytes | ChallengeError)
        assert outcome is not None or messages[-1] == b""
    finally:
        if real is None:
            del sys.modules["gssapi"]
        else:
            sys.modules["gssapi"] = real


# -- options -------------------------------------------------------------------------------------


def read(**options: str) -> Any:
    """Return the security object of Kafka's options."""
    dotted = {name.replace("_", "."): text for name, text in options.items()}
    base = {"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_PLAINTEXT"}
    return ClientConfig.from_properties(base | dotted).security


KRB5 = "com.sun.security.auth.module.Krb5LoginModule required "


def test_the_properties_of_a_java_client_set_up_kerberos(package: FakeGssapi) -> None:
    by_keytab = read(
        sasl_kerberos_service_name="broker",
        sasl_jaas_config=KRB5 + 'useKeyTab=true storeKey=true keyTab="/a.keytab" principal="a@T";',
    )
    assert by_keytab == SaslGssapi("broker", "a@T", "/a.keytab")
    by_cache = read(
        sasl_mechanism="GSSAPI",
        security_protocol="SASL_SSL",
        sasl_jaas_config=KRB5 + 'useTicketCache=true ticketCache="/c" serviceName="broker";',
    )
    assert by_cache == SaslGssapi("broker", tls=Tls(), ticket_cache="/c")
    assert read() == SaslGssapi()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sasl_jaas_config": KRB5 + "useKeyTab=true;"}, "needs keyTab"),
        ({"sasl_jaas_config": KRB5 + "doNotPrompt=true;"}, "needs useKeyTab=true with keyTab, or"),
        (
            {
                "sasl_jaas_config": KRB5 + "useTicketCache=true serviceName=a;",
                "sasl_kerberos_service_name": "b",
            },
            "differs from serviceName in sasl.jaas.config",
        ),
        (
            {"sasl_jaas_config": "a.PlainLoginModule required username=a password=b;"},
            "It is absent, which means GSSAPI.*does not fit",
        ),
    ],
)
def test_wrong_properties_of_kerberos_are_explained(
    package: FakeGssapi, options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        read(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"service_name": "kafka/host"}, "service_name must be"),
        ({"principal": ""}, "principal must be"),
        ({"keytab": 5}, "keytab must be"),
        ({"keytab": "k", "ticket_cache": "c"}, "either keytab or ticket_cache"),
    ],
)
def test_wrong_arguments_of_sasl_gssapi_are_explained(
    package: FakeGssapi, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        SaslGssapi(**options)


def test_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install aiokclient\[gssapi\]"):
        SaslGssapi()
    with pytest.raises(ConfigError, match=r"It is absent, which means GSSAPI.*needs the package"):
        read()


# -- logins on the embedded cluster --------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster whose listener speaks the scripted GSSAPI."""
    monkeypatch.setitem(MECHANISMS, "GSSAPI", FakeBroker)
    listener = BrokerListener(mechanisms=("GSSAPI",))
    with EmbeddedCluster(topics={"t": 1}, listeners={"SASL": listener}) as cluster:
        yield cluster


def producer(cluster: EmbeddedCluster, **options: Any) -> Producer:
    servers = cluster.bootstrap_servers_for("SASL")
    return Producer(bootstrap_servers=servers, security=SaslGssapi(), **options)


async def test_a_client_logs_in_without_kerberos_in_the_event_loop(
    package: FakeGssapi, cluster: EmbeddedCluster
) -> None:
    threads = set()
    package.on_call = lambda: threads.add(threading.current_thread())
    async with producer(cluster) as made:
        await made.send("t", b"v")
    assert threads
    assert threading.main_thread() not in threads


async def test_a_client_waits_for_the_kdc(package: FakeGssapi, cluster: EmbeddedCluster) -> None:
    package.ticket = KDC_UNREACHABLE
    asked = 0

    def recover() -> None:
        nonlocal asked
        asked += 1
        if asked == 5:
            package.ticket = 3600

    package.on_call = recover
    async with asyncio.timeout(60), producer(cluster) as made:
        await made.send("t", b"v")


async def test_a_missing_ticket_fails_the_start_at_once(
    package: FakeGssapi, cluster: EmbeddedCluster
) -> None:
    package.ticket = NOT_FOUND
    made = producer(cluster, default_api_timeout_ms=3_600_000)
    async with asyncio.timeout(60):
        with pytest.raises(SaslAuthenticationError, match="Server not found"):
            await made.start()
    await made.close()
