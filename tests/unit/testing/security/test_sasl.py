"""Tests of logins and of expiring sessions in cases that the parity tests do not cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import BrokerListener, EmbeddedCluster, TokenIssuer, unsecured_token

USERS = {"alice": "wonderland", "o=b,": "ä=,"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ISSUER = TokenIssuer(issuer="me", audience="kafka")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    every = ("PLAIN", *SCRAM, "OAUTHBEARER")
    listeners = {
        "SASL": BrokerListener(mechanisms=every, users=USERS),
        "REAUTH": BrokerListener(mechanisms=every, users=USERS, max_reauth_ms=60_000),
        "SIGNED": BrokerListener(
            mechanisms=("OAUTHBEARER",),
            jwks=ISSUER.jwks,
            token_issuer="me",
            token_audience="kafka",
        ),
    }
    with EmbeddedCluster(topics=["orders"], listeners=listeners) as cluster:
        yield cluster


@pytest.fixture
def connect(cluster: EmbeddedCluster, wire_to: Any, raw_login: Any) -> Any:
    wire = wire_to(cluster)
    return lambda listener="SASL": raw_login(wire.at(cluster.address(1, listener)))


def principals(cluster: EmbeddedCluster) -> list[str]:
    connections = list(cluster._brokers[1]._connections)
    return [str(each.authentication.principal) for each in connections]


def move_time(cluster: EmbeddedCluster, seconds: float) -> None:
    """Move the clocks that a cluster uses for security forward, and stop them."""
    security = cluster._state.security
    now, time_ms = security._now() + seconds, security._time_ms() + int(seconds * 1000)
    security._now = lambda: now
    security._time_ms = lambda: time_ms
    for each in list(cluster._brokers[1]._connections):
        each.authentication._now = security._now
        each.authentication._time_ms = security._time_ms


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("user", USERS)
def test_a_user_has_its_principal_after_the_login(
    cluster: EmbeddedCluster, connect: Any, mechanism: str, user: str
) -> None:
    login = connect()
    answer = login.log_in(mechanism, user, USERS[user])
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers
    assert principals(cluster) == [f"User:{user}"]


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonderland")])
def test_wrong_credentials_are_refused_without_telling_which(
    connect: Any, mechanism: str, user: str, password: str
) -> None:
    login = connect()
    answer = login.log_in(mechanism, user, password)
    assert answer.error_code == 58
    assert user not in answer.error_message
    assert login.connection.closed()


@pytest.mark.parametrize("listener", ["SASL", "SIGNED"])
def test_a_token_gives_its_subject_as_principal_and_its_lifetime(
    cluster: EmbeddedCluster, connect: Any, listener: str
) -> None:
    make = ISSUER.token if listener == "SIGNED" else unsecured_token
    login = connect(listener)
    answer = login.log_in("OAUTHBEARER", "", make("alice", lifetime_s=100))
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert 0 < answer.session_lifetime_ms <= 100_000
    assert principals(cluster) == ["User:alice"]


@pytest.mark.parametrize(
    ("listener", "token"),
    [
        ("SASL", lambda: unsecured_token("alice", lifetime_s=-1)),
        ("SASL", lambda: unsecured_token("alice", exp=None)),
        ("SASL", lambda: ISSUER.token("alice")),
        ("SASL", lambda: "a.b.c"),
        ("SASL", lambda: "nonsense"),
        ("SIGNED", lambda: unsecured_token("alice")),
        ("SIGNED", lambda: ISSUER.token("alice", aud="others")),
        ("SIGNED", lambda: ISSUER.token("alice", iss="others")),
        ("SIGNED", lambda: ISSUER.token("alice", lifetime_s=-60)),
    ],
)
def test_a_refused_token_is_answered_with_invalid_token_and_then_fails(
    connect: Any, listener: str, token: Callable[[], str]
) -> None:
    login = connect(listener)
    answer = login.log_in("OAUTHBEARER", "", token())
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = login.send(b"\x01")
    assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}')
    assert login.connection.closed()


def test_a_plain_login_after_the_oldest_handshake_has_no_headers(
    cluster: EmbeddedCluster, connect: Any
) -> None:
    login = connect()
    assert login.handshake("PLAIN", version=0).error_code == 0
    message = b"\0alice\0wonderland"
    login.connection.socket.sendall(len(message).to_bytes(4, "big") + message)
    assert login.connection._read(4) == bytes(4)
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers
    assert principals(cluster) == ["User:alice"]
    refused = connect()
    refused.handshake("PLAIN", version=0)
    refused.connection.socket.sendall(len(b"\0a\0b").to_bytes(4, "big") + b"\0a\0b")
    assert refused.connection.closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_version_of_sasl_authenticate_logs_in(connect: Any, version: int) -> None:
    login = connect("REAUTH")
    login.handshake("PLAIN")
    answer = login.send(b"\0alice\0wonderland", version=version)
    assert answer.error_code == 0
    assert answer.session_lifetime_ms == (60_000 if version else 0)


def test_requests_before_the_login_close_the_connection(connect: Any) -> None:
    for before in ([], [ApiKey.API_VERSIONS], [ApiKey.SASL_HANDSHAKE]):
        login = connect()
        for api in before:
            if api is ApiKey.API_VERSIONS:
                request = messages.ApiVersionsRequest(
                    client_software_name="a", client_software_version="1"
                )
                assert login.connection.request(request).error_code == 0
            else:
                login.handshake("PLAIN")
        login.connection.send(messages.MetadataRequest(topics=[]))
        assert login.connection.closed()


def test_the_first_request_after_the_end_of_a_session_closes_the_connection(
    cluster: EmbeddedCluster, connect: Any
) -> None:
    login = connect("REAUTH")
    assert login.log_in("PLAIN", "alice", "wonderland").session_lifetime_ms == 60_000
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers
    move_time(cluster, 61)
    login.connection.send(messages.MetadataRequest(topics=[]))
    assert login.connection.closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_login_renews_the_session(cluster: EmbeddedCluster, connect: Any, mechanism: str) -> None:
    login = connect("REAUTH")
    login.log_in(mechanism, "alice", "wonderland")
    for _ in range(3):
        move_time(cluster, 50)
        answer = login.log_in(mechanism, "alice", "wonderland")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers
    # Even after the end of the session, a handshake renews it.
    move_time(cluster, 100)
    assert login.log_in(mechanism, "alice", "wonderland").error_code == 0


def test_requests_in_flight_at_a_renewal_are_answered_in_order(
    cluster: EmbeddedCluster, connect: Any
) -> None:
    login = connect("REAUTH")
    login.log_in("PLAIN", "alice", "wonderland")
    connection = login.connection
    waiting = cluster_fetch(cluster)
    with cluster.delay(ApiKey.METADATA, 0.2):
        connection.send(waiting)
        connection.send(messages.MetadataRequest(topics=[]))
        connection.send(messages.SaslHandshakeRequest(mechanism="PLAIN"))
        connection.send(messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"))
        connection.send(messages.ListGroupsRequest())
        kinds = [type(connection.receive()).__name__ for _ in range(5)]
    assert kinds == [
        "FetchResponse",
        "MetadataResponse",
        "SaslHandshakeResponse",
        "SaslAuthenticateResponse",
        "ListGroupsResponse",
    ]


def cluster_fetch(cluster: EmbeddedCluster) -> messages.FetchRequest:
    topic = messages.fetch.FetchTopic(
        topic_id=cluster.topic_id("orders"),
        partitions=[messages.fetch.FetchPartition(partition=0, fetch_offset=0)],
    )
    return messages.FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[topic]
    )


def test_a_renewal_cannot_change_the_user_or_the_mechanism(
    cluster: EmbeddedCluster, connect: Any
) -> None:
    login = connect("REAUTH")
    login.log_in("PLAIN", "alice", "wonderland")
    answer = login.log_in("PLAIN", "o=b,", USERS["o=b,"])
    assert answer.error_code == 58
    assert "Cannot change principals" in answer.error_message
    assert login.connection.closed()
    login = connect("REAUTH")
    login.log_in("PLAIN", "alice", "wonderland")
    assert login.handshake("SCRAM-SHA-256").error_code == 0
    login.connection.send(messages.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
    assert login.connection.closed()


def test_a_session_without_a_limit_cannot_be_renewed(connect: Any) -> None:
    login = connect()
    login.log_in("PLAIN", "alice", "wonderland")
    assert login.handshake("PLAIN").error_code == 34
    assert login.send(b"").error_code == 34
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers


def test_a_second_renewal_within_a_second_is_refused_and_the_connection_stays(
    cluster: EmbeddedCluster, connect: Any
) -> None:
    login = connect("REAUTH")
    login.log_in("PLAIN", "alice", "wonderland")
    move_time(cluster, 0)
    assert login.log_in("PLAIN", "alice", "wonderland").error_code == 0
    assert login.handshake("PLAIN").error_code == 34
    assert login.connection.request(messages.MetadataRequest(topics=[])).brokers
    move_time(cluster, 2)
    assert login.log_in("PLAIN", "alice", "wonderland").error_code == 0
