"""A client that logs in by hand, and a real Kafka with the same listeners and rules."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster
from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialUpsertion,
)
from aiokclient.protocol.messages.create_acls import AclCreation
from aiokclient.protocol.messages.create_topics import CreatableTopic
from aiokclient.protocol.messages.delete_acls import DeleteAclsFilter
from aiokclient.testing import BrokerListener, EmbeddedCluster

Send = Callable[[bytes], Any]


class Raw:
    """A connection that sends SaslHandshake and SaslAuthenticate.

    `connection` has `request(message, version)`, which returns the response.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        request = messages.SaslHandshakeRequest(mechanism=mechanism)
        return self.connection.request(request, version)

    def send(self, message: bytes, version: int = 2) -> Any:
        request = messages.SaslAuthenticateRequest(auth_bytes=message)
        return self.connection.request(request, version)

    def log_in(self, mechanism: str, user: str, password: str, **options: Any) -> Any:
        """Log in, and return the last response."""
        answer = self.handshake(mechanism)
        assert answer.error_code == 0, answer
        if mechanism == "PLAIN":
            return self.send(f"\0{user}\0{password}".encode())
        if mechanism == "OAUTHBEARER":
            return self.send(bearer(password))
        return scram(self.send, mechanism, user, password, **options)


def bearer(token: str, identity: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    name = f"a={identity}" if identity else ""
    return f"n,{name},\x01auth=Bearer {token}\x01\x01".encode()


def scram(
    send: Send, mechanism: str, user: str, password: str, nonce: str = "abc", extensions: str = ""
) -> Any:
    """Run the client's side of SCRAM, and return the last response."""
    name = "sha" + mechanism.removeprefix("SCRAM-SHA-")
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
    answer = send(f"n,,{first}".encode())
    if answer.error_code:
        return answer
    challenge = answer.auth_bytes.decode()
    parts = dict(each.split("=", 1) for each in challenge.split(","))
    salt = base64.b64decode(parts["s"])
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, int(parts["i"]))
    key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={parts['r']}"
    signed = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    answer = send(f"{final},p={proof.decode()}".encode())
    if not answer.error_code:
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        assert answer.auth_bytes == b"v=" + base64.b64encode(verifier)
    return answer


@pytest.fixture
def raw_login() -> type[Raw]:
    """Return `raw_login(connection)`, which makes a connection that logs in by hand."""
    return Raw


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY = "org.apache.kafka.common.security."
# A broker may cache a user's permissions, so each scenario has a user of its own.
RULED = ("unruled", "reader", "writer", "describer", "limited", "prefixed")
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
USERS |= dict.fromkeys(RULED, "secret")
JAAS = {
    "plain": SECURITY
    + 'plain.PlainLoginModule required username="admin" password="admin-secret" '
    + "".join(f' user_{user}="{password}"' for user, password in USERS.items())
    + ";",
    "scram-sha-256": SECURITY + "scram.ScramLoginModule required;",
    "scram-sha-512": SECURITY + "scram.ScramLoginModule required;",
    "oauthbearer": SECURITY
    + 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}
MECHANISMS = tuple(name.upper() for name in JAAS)
REAUTH_MS = 20_000
CONFIGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS;User:admin"}
CONFIGS |= {"delegation.token.secret.key": "a-test-secret"}
SHA_256, SHA_512 = 1, 2


def secured(listener: str) -> dict[str, object]:
    """Return the properties of a listener with all mechanisms."""
    prefix = f"listener.name.{listener.lower()}."
    found: dict[str, object] = {prefix + "sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    for name, text in JAAS.items():
        found[f"{prefix}{name}.sasl.jaas.config"] = text
        if listener == "REAUTH":
            found[f"{prefix}{name}.connections.max.reauth.ms"] = REAUTH_MS
    return found


@pytest.fixture(scope="module")
def secure_kafka(java: str) -> Iterator[KafkaCluster]:
    listeners = dict.fromkeys(("SASL", "REAUTH"), "SASL_PLAINTEXT")
    properties: dict[str, object] = dict(CONFIGS)
    for name in listeners:
        properties |= secured(name)
    with KafkaCluster(KAFKA, properties=properties, listeners=listeners) as cluster:
        yield cluster


class SecuredBroker:
    """One broker: connections to its listeners, and names that no other scenario uses."""

    _numbers = itertools.count()

    def __init__(self, wire: Any, raw: Any, address_of: Callable[[str], tuple[str, int]]) -> None:
        self.wire, self._raw, self._address_of = wire, raw, address_of
        self.batch = wire.batch
        self.admin = wire.at(address_of("PLAINTEXT"))
        self._remove_acls()

    def _remove_acls(self) -> None:
        """Remove the ACLs of other scenarios, and wait until the broker has applied the change."""
        values = {"resource_type_filter": 1, "pattern_type_filter": 1}
        values |= {"operation": 1, "permission_type": 1}
        wanted = DeleteAclsFilter(**values)
        self.admin.request(messages.DeleteAclsRequest(filters=[wanted]))
        while self.admin.request(messages.DescribeAclsRequest(**values)).resources:
            pass

    def login(self, listener: str = "SASL") -> Any:
        """Return a connection that has not logged in."""
        return self._raw(self.wire.at(self._address_of(listener)))

    def attempt(self, mechanism: str, user: str, password: str) -> str:
        return named(self.login().log_in(mechanism, user, password).error_code)

    def as_user(self, user: str) -> Any:
        """Return a connection of a user."""
        login = self.login()
        assert login.log_in("PLAIN", user, USERS[user]).error_code == 0
        return login.connection

    def name(self) -> str:
        return f"parity-{next(self._numbers)}-{uuid.uuid4().hex[:6]}"

    def topic(self) -> tuple[str, uuid.UUID]:
        topic = CreatableTopic(name=self.name(), num_partitions=1, replication_factor=1)
        (made,) = self.admin.request(messages.CreateTopicsRequest(topics=[topic])).topics
        assert made.error_code == 0
        while self.admin.list_offset(topic.name, -1).error_code:
            pass
        return topic.name, made.topic_id

    def acl(self, name: str, **options: Any) -> Any:
        """Create an ACL for alice and return the result."""
        values = {
            "resource_type": 2,
            "resource_pattern_type": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        creation = AclCreation(resource_name=name, **(values | options))
        request = messages.CreateAclsRequest(creations=[creation])
        try:
            (result,) = self.admin.request(request).results
        except EOFError:
            self.admin = self.wire.at(self._address_of("PLAINTEXT"))
            return "closed"
        if not result.error_code:
            self._await_acl(creation)
        return named(result.error_code), result.error_message or ""

    def _await_acl(self, created: AclCreation) -> None:
        """Wait until the broker applies an ACL."""
        wanted = messages.DescribeAclsRequest(
            resource_type_filter=created.resource_type,
            resource_name_filter=created.resource_name,
            pattern_type_filter=created.resource_pattern_type,
            principal_filter=created.principal,
            host_filter=created.host,
            operation=created.operation,
            permission_type=created.permission_type,
        )
        while not self.admin.request(wanted).resources:
            pass

    def scram_user(self, name: str, password: str, mechanism: int, **options: Any) -> Any:
        """Create a user and return the result."""
        algorithm = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
        iterations = options.get("iterations", 4096)
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"salt", iterations)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"salt",
            salted_password=salted,
        )
        request = messages.AlterUserScramCredentialsRequest(upsertions=[upsertion])
        (result,) = self.admin.request(request).results
        return named(result.error_code), result.error_message


Scenario = Callable[[SecuredBroker], Any]


@pytest.fixture
def same_as_kafka(secure_kafka: KafkaCluster, wire_to: Any) -> Callable[[Scenario], None]:
    """Return a function that runs a scenario on both clusters and compares the results."""

    def real(listener: str) -> tuple[str, int]:
        servers = secure_kafka.bootstrap
        if listener != "PLAINTEXT":
            servers = secure_kafka.listener(listener)
        host, port = servers.split(":")
        return host, int(port)

    def compare(scenario: Scenario) -> None:
        plain = BrokerListener(mechanisms=MECHANISMS, users=USERS)
        reauth = BrokerListener(mechanisms=MECHANISMS, users=USERS, max_reauth_ms=REAUTH_MS)
        listeners = {"SASL": plain, "REAUTH": reauth}
        with EmbeddedCluster(listeners=listeners, configs=CONFIGS) as cluster:
            wire = wire_to(cluster)
            ours = scenario(SecuredBroker(wire, Raw, lambda each: cluster.address(1, each)))
        theirs = scenario(SecuredBroker(wire, Raw, real))
        keys = ours if isinstance(ours, dict) else range(min(len(ours), len(theirs)))
        different = [(key, ours[key], theirs[key]) for key in keys if ours[key] != theirs[key]]
        lines = [f"{key}: {own}\n  Kafka: {its}" for key, own, its in different]
        assert not different, "\n".join(lines)
        assert len(ours) == len(theirs)

    return compare
