"""Tests that other clients log in to the embedded cluster: librdkafka and Kafka's Java tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_harness import JavaTool

from aiokclient.testing import BrokerListener, EmbeddedCluster, TokenIssuer, unsecured_token

USERS = {"alice": "wonderland"}
ISSUER = TokenIssuer(issuer="https://issuer.test", audience="kafka")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EVERY = (*PASSWORDS, "OAUTHBEARER")
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LISTENERS = {
    "SSL": BrokerListener(tls=True),
    "MTLS": BrokerListener(tls=True, mutual_tls=True),
    "SASL_PLAINTEXT": BrokerListener(mechanisms=EVERY, users=USERS),
    "SASL_SSL": BrokerListener(tls=True, mechanisms=EVERY, users=USERS),
    "SIGNED": BrokerListener(
        mechanisms=("OAUTHBEARER",),
        jwks=ISSUER.jwks,
        token_issuer="https://issuer.test",
        token_audience="kafka",
    ),
    "REAUTH": BrokerListener(mechanisms=EVERY, users=USERS, max_reauth_ms=1_500),
}
CONFIGS = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    topics = {"orders": 2, "secret": 1}
    with EmbeddedCluster(brokers=2, topics=topics, listeners=LISTENERS, configs=CONFIGS) as cluster:
        cluster.allow("User:alice", "ALL", topic="orders")
        cluster.allow("User:alice", "ALL", group="*")
        yield cluster


class Librdkafka:
    """The options of librdkafka for one listener, and the errors that it reported."""

    def __init__(self, cluster: EmbeddedCluster, listener: str, protocol: str) -> None:
        self.errors: list[confluent_kafka.KafkaError] = []
        self._certificate = cluster.client_certificate("alice")
        self.options: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap_servers_for(listener),
            "security.protocol": protocol,
            "ssl.ca.pem": self._certificate.authority,
            "error_cb": self.errors.append,
            "log_level": 0,
        }

    def user(self, mechanism: str, user: str, password: str) -> Librdkafka:
        self.options |= {"sasl.mechanism": mechanism}
        self.options |= {"sasl.username": user, "sasl.password": password}
        return self

    def token(self, make: Callable[[], str], lifetime_s: float = 3600) -> Librdkafka:
        self.options["sasl.mechanism"] = "OAUTHBEARER"
        self.options["oauth_cb"] = lambda _: (make(), time.time() + lifetime_s)
        return self

    def certificate(self) -> Librdkafka:
        self.options["ssl.certificate.pem"] = self._certificate.certificate
        self.options["ssl.key.pem"] = self._certificate.key
        return self

    def produce(self, topic: str, *values: bytes) -> list[confluent_kafka.KafkaError | None]:
        producer = confluent_kafka.Producer(self.options)
        results: list[confluent_kafka.KafkaError | None] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: results.append(error))
        assert producer.flush(60) == 0
        return results

    def consume(self, topic: str, count: int) -> list[bytes]:
        consumer = confluent_kafka.Consumer(
            self.options | {"group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        try:
            found = consumer.consume(count, timeout=60)
            return sorted(each.value() for each in found)
        finally:
            consumer.close()

    def refused(self) -> str:
        """Return the first error that a client reports when it cannot connect."""
        producer = confluent_kafka.Producer(self.options)
        deadline = time.monotonic() + 60
        while not self.errors and time.monotonic() < deadline:
            producer.poll(0.1)
        return self.errors[0].str() if self.errors else ""


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", EVERY)
def test_librdkafka_produces_and_consumes(
    cluster: EmbeddedCluster, protocol: str, mechanism: str
) -> None:
    client = Librdkafka(cluster, protocol, protocol)
    if mechanism == "OAUTHBEARER":
        client.token(lambda: unsecured_token("alice"))
    else:
        client.user(mechanism, "alice", "wonderland")
    assert client.produce("orders", b"1", b"2") == [None, None]
    assert client.consume("orders", 2) == [b"1", b"2"]
    (refused,) = client.produce("secret", b"3")
    assert refused is not None
    assert refused.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_uses_signed_tokens(cluster: EmbeddedCluster) -> None:
    client = Librdkafka(cluster, "SIGNED", "SASL_PLAINTEXT")
    assert client.token(lambda: ISSUER.token("alice")).produce("orders", b"1") == [None]
    other = Librdkafka(cluster, "SIGNED", "SASL_PLAINTEXT")
    assert "invalid_token" in other.token(lambda: ISSUER.token("alice", aud="other")).refused()


def test_librdkafka_uses_a_client_certificate(cluster: EmbeddedCluster) -> None:
    client = Librdkafka(cluster, "MTLS", "SSL")
    assert client.certificate().produce("orders", b"1") == [None]
    without = Librdkafka(cluster, "MTLS", "SSL")
    without.options["client.id"] = "without a certificate"
    assert without.refused()
    # The first client may still be connected, and ask for metadata.
    assert "without a certificate" not in {request.client_id for request in cluster.requests}


def test_librdkafka_without_the_authority_refuses_the_brokers(cluster: EmbeddedCluster) -> None:
    client = Librdkafka(cluster, "SSL", "SSL")
    other = EmbeddedCluster(listeners={"SSL": BrokerListener(tls=True)})
    client.options["ssl.ca.pem"] = other.client_certificate("alice").authority
    assert "certificate verify failed" in client.refused()


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_librdkafka_with_a_wrong_password_is_refused(
    cluster: EmbeddedCluster, mechanism: str
) -> None:
    client = Librdkafka(cluster, "SASL_PLAINTEXT", "SASL_PLAINTEXT")
    assert "Authentication failed" in client.user(mechanism, "alice", "wrong").refused()


@pytest.mark.parametrize("mechanism", EVERY)
def test_librdkafka_continues_after_it_logs_in_again(
    cluster: EmbeddedCluster, mechanism: str
) -> None:
    client = Librdkafka(cluster, "REAUTH", "SASL_PLAINTEXT")
    if mechanism == "OAUTHBEARER":
        client.token(lambda: unsecured_token("alice"))
    else:
        client.user(mechanism, "alice", "wonderland")
    producer = confluent_kafka.Producer(client.options)
    results: list[object] = []
    end = time.monotonic() + 5
    while time.monotonic() < end:
        producer.produce("orders", b"x", on_delivery=lambda error, _: results.append(error))
        producer.poll(0.02)
    assert producer.flush(60) == 0
    assert set(results) == {None}
    records = [*cluster.records("orders", 0), *cluster.records("orders", 1)]
    assert len(records) == len(results)


class Java:
    """Kafka's Java tools with the properties of one listener."""

    def __init__(
        self, cluster: EmbeddedCluster, folder: Path, listener: str, protocol: str, **more: str
    ) -> None:
        certificate = cluster.client_certificate("alice")
        authority, own = folder / "ca.pem", folder / "own.pem"
        authority.write_text(certificate.authority)
        own.write_text(certificate.key + certificate.certificate)
        properties = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "default.api.timeout.ms": "20000",
            "request.timeout.ms": "15000",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self._file = folder / "client.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._servers = ("--bootstrap-server", cluster.bootstrap_servers_for(listener))

    def run(self, name: str, option: str, *arguments: str, stdin: bytes = b"") -> bytes:
        command = (*self._servers, option, str(self._file), *arguments)
        return JavaTool(name, *command).run(stdin, timeout=180)


def login_module(mechanism: str) -> str:
    """Return the JAAS configuration of alice."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    prefix = "org.apache.kafka.common.security."
    return f'{prefix}{module} required username="alice" password="wonderland";'


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kafka_tools_jars")
@pytest.mark.parametrize(
    ("listener", "protocol", "mechanism"),
    [
        ("MTLS", "SSL", None),
        ("SASL_SSL", "SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "SASL_SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ],
)
def test_java_tools_produce_and_consume_with_each_login(
    cluster: EmbeddedCluster, tmp_path: Path, listener: str, protocol: str, mechanism: str | None
) -> None:
    more = {}
    if mechanism is not None:
        more = {"sasl_mechanism": mechanism, "sasl_jaas_config": login_module(mechanism)}
    java = Java(cluster, tmp_path, listener, protocol, **more)
    lines = [b"line %d" % number for number in range(20)]
    java.run(
        "console-producer",
        "--command-config",
        *("--topic", "orders"),
        stdin=b"\n".join(lines) + b"\n",
    )
    read = java.run(
        "console-consumer",
        "--command-config",
        *("--topic", "orders", "--from-beginning", "--max-messages", "20"),
        *("--timeout-ms", "60000"),
    )
    assert sorted(read.splitlines()) == sorted(lines)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kafka_tools_jars")
def test_java_tools_add_rules_and_scram_users(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    java = Java(cluster, tmp_path, "PLAINTEXT", "PLAINTEXT")
    acls = "org.apache.kafka.tools.AclCommand"
    java.run(
        acls,
        "--command-config",
        *("--add", "--allow-principal", "User:carol", "--producer", "--topic", "secret"),
    )
    listed = java.run(acls, "--command-config", "--list").decode()
    assert "principal=User:carol, host=*, operation=WRITE, permissionType=ALLOW" in listed
    java.run(
        "kafka.admin.ConfigCommand",
        "--command-config",
        *("--alter", "--entity-type", "users", "--entity-name", "carol"),
        *("--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]"),
    )
    client = Librdkafka(cluster, "SASL_PLAINTEXT", "SASL_PLAINTEXT")
    assert client.user("SCRAM-SHA-256", "carol", "secret").produce("secret", b"1") == [None]
