"""GSSAPI with the real package gssapi and a real KDC, which runs in a folder and on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kerberos_peers import REALM, Acceptor, Kdc, needs_kerberos

from aiokclient import Producer, SaslGssapi
from aiokclient.errors import SaslAuthenticationError, TicketError
from aiokclient.network.sasl import ChallengeError, Login
from aiokclient.network.sasl.gssapi import Gssapi
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.connections.sasl import MECHANISMS

pytestmark = needs_kerberos


@pytest.fixture(scope="module")
def realm() -> Iterator[Kdc]:
    """A KDC with the principals of this module."""
    with pytest.MonkeyPatch.context() as patch, Kdc() as kdc:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        kdc.add("kafka/localhost")
        kdc.add("alice")
        kdc.add("brief", life="4 seconds")
        yield kdc


def login(credentials: SaslGssapi, kdc: Kdc, host: str = "localhost") -> str:
    """Log in to the broker's side, and return the user name that it determines."""
    mechanism = Gssapi(Login(credentials, host))
    broker = Acceptor(kdc.keytab("kafka/localhost"))
    message = b""
    while True:
        step = mechanism.answer_challenge(message)
        assert step is not None
        challenge = broker.answer_message(step)
        if challenge.done:
            assert mechanism.answer_challenge(challenge.message) is None
            assert challenge.login is not None
            return challenge.login.user
        message = challenge.message


def test_a_keytab_logs_in(realm: Kdc) -> None:
    credentials = SaslGssapi(principal="alice", keytab=realm.keytab("alice"))
    before = realm.issued(f"alice@{REALM}")
    assert login(credentials, realm) == f"alice@{REALM}"
    assert login(credentials, realm) == f"alice@{REALM}"
    assert realm.issued(f"alice@{REALM}") == before + 1, "logins share one ticket"


def test_a_keytab_without_a_principal_logs_in_as_its_first_one(realm: Kdc) -> None:
    assert login(SaslGssapi(keytab=realm.keytab("alice")), realm) == f"alice@{REALM}"


def test_a_ticket_of_a_keytab_is_renewed(realm: Kdc) -> None:
    credentials = SaslGssapi(principal="brief", keytab=realm.keytab("brief"))
    before = realm.issued(f"brief@{REALM}")
    deadline = time.monotonic() + 60
    while realm.issued(f"brief@{REALM}") < before + 3:
        assert time.monotonic() < deadline
        assert login(credentials, realm) == f"brief@{REALM}"
        time.sleep(0.2)


def test_a_ticket_cache_logs_in(realm: Kdc, tmp_path: Path) -> None:
    cache = f"FILE:{tmp_path}/tickets"
    with pytest.raises(SaslAuthenticationError, match="no Kerberos ticket"):
        login(SaslGssapi(ticket_cache=cache), realm)
    realm.kinit("alice", tmp_path / "tickets")
    assert login(SaslGssapi(ticket_cache=cache), realm) == f"alice@{REALM}"


def test_an_expired_ticket_cache_is_a_retriable_error(realm: Kdc, tmp_path: Path) -> None:
    cache = f"FILE:{tmp_path}/tickets"
    realm.kinit("brief", tmp_path / "tickets")

    def go_on() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            login(SaslGssapi(ticket_cache=cache), realm)
            time.sleep(0.2)

    with pytest.raises(TicketError):
        go_on()


def test_a_ticket_that_expires_between_two_messages_is_a_retriable_error(
    realm: Kdc, tmp_path: Path
) -> None:
    """The broker accepts it, because it allows for clocks that differ. The library does not."""
    import gssapi

    realm.kinit("brief", tmp_path / "tickets")
    cache = f"FILE:{tmp_path}/tickets"
    mechanism = Gssapi(Login(SaslGssapi(ticket_cache=cache), "localhost"))
    first = mechanism.answer_challenge(b"")
    assert first is not None
    challenge = Acceptor(realm.keytab("kafka/localhost")).answer_message(first)
    deadline = time.monotonic() + 60

    def wait_for_the_end_of_the_ticket() -> None:
        while gssapi.Credentials(usage="initiate", store={"ccache": cache}).lifetime >= 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    with pytest.raises(gssapi.exceptions.ExpiredCredentialsError):
        wait_for_the_end_of_the_ticket()
    time.sleep(1.1)  # The library compares whole seconds.
    with pytest.raises(TicketError, match="expired during the authentication"):
        mechanism.answer_challenge(challenge.message)


def test_a_broker_without_a_principal_is_explained(realm: Kdc) -> None:
    credentials = SaslGssapi("other", "alice", realm.keytab("alice"))
    with pytest.raises(SaslAuthenticationError, match="not found in Kerberos database"):
        login(credentials, realm)


def test_a_missing_keytab_is_explained(realm: Kdc, tmp_path: Path) -> None:
    with pytest.raises(SaslAuthenticationError, match="keytab"):
        login(SaslGssapi(principal="alice", keytab=str(tmp_path / "no.keytab")), realm)


def test_a_token_that_is_garbage_is_refused(realm: Kdc) -> None:
    mechanism = Gssapi(Login(SaslGssapi(keytab=realm.keytab("alice")), "localhost"))
    mechanism.answer_challenge(b"")
    with pytest.raises(ChallengeError, match="not valid in Kerberos"):
        mechanism.answer_challenge(b"garbage")


def test_a_kdc_that_does_not_respond_is_a_retriable_error(realm: Kdc) -> None:
    realm.stop()
    try:
        with pytest.raises(TicketError):
            login(SaslGssapi(principal="alice", keytab=realm.keytab("alice")), realm)
    finally:
        realm.start()


async def test_a_client_logs_in_to_the_embedded_cluster(
    realm: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    acceptor = realm.keytab("kafka/localhost")
    monkeypatch.setitem(MECHANISMS, "GSSAPI", lambda accounts: Acceptor(acceptor))
    listener = BrokerListener(mechanisms=("GSSAPI",), host="localhost")
    security = SaslGssapi(principal="alice", keytab=realm.keytab("alice"))
    async with EmbeddedCluster(topics={"t": 1}, listeners={"SASL": listener}) as cluster:
        servers = cluster.bootstrap_servers_for("SASL")
        async with Producer(bootstrap_servers=servers, security=security) as producer:
            await producer.send("t", b"v")
        assert [record.value for record in cluster.records("t", 0)] == [b"v"]
