"""Tests that logins, SCRAM users, and tokens have the same results as on a real Kafka."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
)
from aiokclient.protocol.messages.create_delegation_token import CreatableRenewers
from aiokclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
)
from aiokclient.protocol.messages.describe_user_scram_credentials import UserName
from aiokclient.testing import unsecured_token

pytestmark = pytest.mark.timeout(600)

SCENARIOS = Scenarios()
scenario = SCENARIOS.add
SHA_256, SHA_512 = 1, 2


def said(answer: Any) -> tuple[str, str | None, bytes]:
    """Return the error, the error message, and the bytes in a SaslAuthenticate response."""
    return named(answer.error_code), answer.error_message, bytes(answer.auth_bytes)


def outcome(login: Any, *messages_: bytes) -> list[object]:
    """Send messages. Return the answers, and whether the broker then closed the connection."""
    answers: list[object] = []
    for message in messages_:
        try:
            answer = login.send(message)
        except EOFError:
            return [*answers, message, "closed"]
        answers.append(said(answer))
        if answer.error_code:
            return [*answers, login.connection.closed()]
    return answers


@scenario
def plain_logins(broker: Any) -> list[object]:
    found: list[object] = []
    for message in (
        b"\0alice\0alice-secret",
        b"alice\0alice\0alice-secret",
        b"bob\0alice\0alice-secret",
        b"\0alice\0wrong",
        b"\0nobody\0wrong",
        b"\0alice\0",
        b"\0\0alice-secret",
        b"alice\0alice-secret",
        b"\0alice\0alice-secret\0",
        b"",
        b"\xff\0alice\0alice-secret",
    ):
        login = broker.login()
        login.handshake("PLAIN")
        found.append(outcome(login, message))
    return found


@scenario
def scram_logins(broker: Any) -> list[object]:
    found: list[object] = []
    for mechanism, number in (("SCRAM-SHA-256", SHA_256), ("SCRAM-SHA-512", SHA_512)):
        user = broker.name()
        found.append(broker.scram_user(user, "wonderland", number))
        # A new user reaches the broker a moment later.
        while broker.attempt(mechanism, user, "wonderland") != "ok":
            pass
        found.append(broker.attempt(mechanism, user, "wrong"))
        found.append(broker.attempt(mechanism, "nobody", "wonderland"))
        for message in (
            b"",
            b"garbage",
            b"y,,n=alice,r=abc",
            b"p=tls-unique,,n=alice,r=abc",
            b"n,,n=,r=abc",
            b"n,,n=nobody,r=abc",
            f"n,a=other,n={user},r=abc".encode(),
            f"n,,m=ext,n={user},r=abc".encode(),
            f"n,,n={user},r=abc,tokenauth=true".encode(),
        ):
            login = broker.login()
            login.handshake(mechanism)
            found.append([message.replace(user.encode(), b"U")])
            try:
                answer = login.send(message)
                found.append((named(answer.error_code), answer.error_message))
            except EOFError:
                found.append("closed")
        for final in (b"", b"garbage", b"c=biws,r=abc,p=AAAA"):
            login = broker.login()
            login.handshake(mechanism)
            assert login.send(f"n,,n={user},r=abc".encode()).error_code == 0
            found.append(outcome(login, final))
    return found


@scenario
def token_logins(broker: Any) -> list[object]:
    good = unsecured_token("alice", iat=1_000_000_000, exp=4_000_000_000)
    found: list[object] = []
    for message in (
        f"n,,\x01auth=Bearer {good}\x01\x01",
        f"n,a=alice,\x01auth=Bearer {good}\x01\x01",
        f"n,a=bob,\x01auth=Bearer {good}\x01\x01",
        f"n,,\x01auth=bearer {good}\x01key=value\x01\x01",
        f"n,,\x01auth={good}\x01\x01",
        "n,,\x01key=value\x01\x01",
        f"n,,auth=Bearer {good}\x01\x01",
        "",
        "garbage",
    ):
        login = broker.login()
        login.handshake("OAUTHBEARER")
        found.append(outcome(login, message.encode()))
    for token in (
        unsecured_token("alice", iat=1_000_000_000, exp=1_000_000_001),
        unsecured_token("alice", iat=4_000_000_001, exp=4_000_000_002),
        unsecured_token("alice", iat=4_000_000_000, exp=3_999_999_999),
        unsecured_token("alice", exp="soon"),
        unsecured_token("alice", exp=None),
        unsecured_token("", exp=4_000_000_000),
        "a.b.c",
        "abc",
        good + "AAAA",
    ):
        login = broker.login()
        login.handshake("OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        found.append(outcome(login, message, b"\x01"))
    return found


@scenario
def steps_of_a_login(broker: Any) -> list[object]:
    found: list[object] = []
    login = broker.login()
    answer = login.handshake("NOTHING")
    found += [named(answer.error_code), sorted(answer.mechanisms), login.connection.closed()]
    login = broker.login()
    answer = login.handshake("PLAIN")
    found += [named(answer.error_code), sorted(answer.mechanisms)]
    versions = messages.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for count in (1, 2):
        login = broker.login()
        for _ in range(count):
            login.connection.send(versions)
        found.append(named(login.connection.receive().error_code))
        if count > 1:
            found.append(login.connection.closed())
    login = broker.login()
    login.connection.send(messages.MetadataRequest(topics=[]))
    found.append(login.connection.closed())
    login = broker.login()
    login.connection.send(messages.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"))
    found.append(login.connection.closed())
    connection = broker.as_user("alice")
    found.append(
        named(connection.request(messages.SaslHandshakeRequest(mechanism="PLAIN")).error_code)
    )
    answer = connection.request(messages.SaslAuthenticateRequest(auth_bytes=b""))
    found += [named(answer.error_code), answer.error_message]
    found.append(named(connection.request(messages.ListGroupsRequest()).error_code))
    found.append(
        named(broker.admin.request(messages.SaslHandshakeRequest(mechanism="PLAIN")).error_code)
    )
    answer = broker.admin.request(messages.SaslAuthenticateRequest(auth_bytes=b""))
    found.append(named(answer.error_code))
    return found


@scenario
def logins_without_headers(broker: Any) -> list[object]:
    found: list[object] = []
    for message in (b"\0alice\0alice-secret", b"\0alice\0wrong"):
        login = broker.login()
        found.append(named(login.handshake("PLAIN", version=0).error_code))
        login.connection.socket.sendall(len(message).to_bytes(4, "big") + message)
        try:
            found.append(login.connection._read(4))
        except EOFError:
            found.append("closed")
            continue
        found.append(named(login.connection.request(messages.ListGroupsRequest()).error_code))
    return found


@scenario
def renewals(broker: Any) -> list[object]:
    found: list[object] = []
    for version in (0, 1, 2):
        login = broker.login("REAUTH")
        login.handshake("PLAIN")
        answer = login.send(b"\0alice\0alice-secret", version=version)
        found.append((named(answer.error_code), answer.session_lifetime_ms))
    for mechanism, message in (
        ("PLAIN", b"\0alice\0alice-secret"),
        ("PLAIN", b"\0bob\0bob-secret"),
        ("PLAIN", b"\0alice\0wrong"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc"),
        ("NOTHING", b""),
    ):
        login = broker.login("REAUTH")
        login.log_in("PLAIN", "alice", "alice-secret")
        try:
            answer = login.handshake(mechanism)
        except EOFError:
            found += [mechanism, "closed"]
            continue
        found += [named(answer.error_code), sorted(answer.mechanisms)]
        if answer.error_code:
            found.append(login.connection.closed())
        else:
            found += outcome(login, message)
    # The first request after a renewal belongs to the same principal.
    login = broker.login("REAUTH")
    login.log_in("PLAIN", "alice", "alice-secret")
    login.log_in("PLAIN", "alice", "alice-secret")
    found.append(named(login.handshake("PLAIN").error_code))
    found.append(named(login.connection.request(messages.ListGroupsRequest()).error_code))
    return found


@scenario
def scram_credentials(broker: Any) -> list[object]:
    user = broker.name()
    found: list[object] = [
        broker.scram_user(user, "x", SHA_256),
        broker.scram_user(user, "x", SHA_512, iterations=8192),
        broker.scram_user(user, "x", 0),
        broker.scram_user(user, "x", 3),
        broker.scram_user("", "x", SHA_256),
        broker.scram_user(user, "x", SHA_256, iterations=4095),
        broker.scram_user(user, "x", SHA_256, iterations=16_385),
    ]

    def settled(count: int) -> None:
        """Wait until the broker knows `count` SCRAM credentials of the user."""
        request = messages.DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
        while True:
            (found,) = broker.admin.request(request).results
            if len(found.credential_infos) == count:
                return

    def described(*names: str) -> object:
        users = [UserName(name=name) for name in names]
        answer = broker.admin.request(messages.DescribeUserScramCredentialsRequest(users=users))
        return sorted(
            (
                each.user.replace(user, "U"),
                named(each.error_code),
                (each.error_message or "").replace(user, "U"),
                sorted((info.mechanism, info.iterations) for info in each.credential_infos),
            )
            for each in answer.results
        )

    def removed(*pairs: tuple[str, int]) -> list[object]:
        deletions = [ScramCredentialDeletion(name=name, mechanism=number) for name, number in pairs]
        answer = broker.admin.request(
            messages.AlterUserScramCredentialsRequest(deletions=deletions)
        )
        return [
            (each.user.replace(user, "U"), named(each.error_code), each.error_message)
            for each in answer.results
        ]

    settled(2)
    found += [described(user), described(user, user), described("nobody"), described(user, "no")]
    found += [removed(("nobody", SHA_256)), removed((user, SHA_256), (user, SHA_256))]
    found += [removed((user, SHA_256)), removed((user, 9))]
    settled(1)
    found += [described(user), removed((user, SHA_512))]
    settled(0)
    found.append(described(user))
    return found


@scenario
def delegation_tokens(broker: Any) -> list[object]:
    def create(connection: Any, **options: Any) -> Any:
        values: dict[str, Any] = {"max_lifetime_ms": -1, "owner_principal_name": None}
        values |= {"owner_principal_type": None}
        return connection.request(messages.CreateDelegationTokenRequest(**(values | options)))

    def lives(token: Any) -> tuple[int, int]:
        start = token.issue_timestamp_ms
        return token.expiry_timestamp_ms - start, token.max_timestamp_ms - start

    def described(connection: Any, owners: list[str] | None) -> list[object]:
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type="User", principal_name=each)
                for each in owners
            ]
        answer = connection.request(messages.DescribeDelegationTokenRequest(owners=wanted))
        names = (token.principal_name for token in answer.tokens)
        return [named(answer.error_code), sorted(names)]

    def renew(connection: Any, hmac: bytes, period_ms: int = 60_000) -> str:
        request = messages.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return named(connection.request(request).error_code)

    def expire(connection: Any, hmac: bytes, period_ms: int = -1) -> str:
        request = messages.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return named(connection.request(request).error_code)

    alice, bob = broker.as_user("alice"), broker.as_user("bob")
    found: list[object] = [named(create(broker.admin).error_code), described(broker.admin, None)]
    token, short = create(alice), create(alice, max_lifetime_ms=1_000)
    found += [named(token.error_code), token.principal_name, len(token.hmac), len(token.token_id)]
    found += [token.token_requester_principal_name, lives(token), lives(short)]
    other = CreatableRenewers(principal_type="Group", principal_name="g")
    found.append(named(create(alice, renewers=[other]).error_code))
    by_bob = CreatableRenewers(principal_type="User", principal_name="bob")
    renewable = create(alice, renewers=[by_bob])
    options = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    found.append(named(create(bob, **options).error_code))
    # A new token reaches the broker a moment later.
    while described(bob, None) != ["ok", ["alice"]]:
        pass
    found += [described(bob, None), described(alice, ["bob"]), described(alice, ["alice"])[0]]
    found += [renew(bob, token.hmac), renew(alice, b"unknown"), renew(bob, renewable.hmac)]
    password = base64.b64encode(token.hmac).decode()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for hmac in (password, "wrong"):
            login = broker.login()
            values = {"extensions": ",tokenauth=true"}
            answer = login.log_in(mechanism, token.token_id, hmac, **values)
            found += [named(answer.error_code), answer.session_lifetime_ms > 0]
    login = broker.login()
    login.log_in("SCRAM-SHA-256", token.token_id, password, extensions=",tokenauth=true")
    found += [named(create(login.connection).error_code), described(login.connection, None)]
    found += [expire(bob, token.hmac), expire(alice, token.hmac), expire(alice, b"unknown")]
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_of_logins_are_those_of_kafka(name: str, same_as_kafka: Any) -> None:
    same_as_kafka(SCENARIOS[name])
