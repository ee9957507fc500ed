"""The clusters of the comparison: embedded, one real node, and three real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_harness import KAFKA, KafkaCluster

from admin_parity.comparing import Cluster
from admin_parity.scenario import MECHANISM
from aiokclient.testing import BrokerListener, EmbeddedCluster, TopicTelemetryReceiver

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a-test-secret",
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
TELEMETRY = "client-metrics"
"""The topic into which the brokers write the metrics that clients push."""


@contextmanager
def open_cluster(kind: str) -> Iterator[Cluster]:
    """Start a cluster with an authorizer, a listener for logins, and a receiver of metrics."""
    if kind == "embedded":
        logins = {"SASL": BrokerListener(mechanisms=(MECHANISM,))}
        # As the real brokers of the tests.
        configs: dict[str, str | int] = {**CONFIGS, "num.partitions": 3}
        receiver = TopicTelemetryReceiver(TELEMETRY)
        with EmbeddedCluster(3, configs=configs, listeners=logins, telemetry=receiver) as embedded:
            sasl = embedded.bootstrap_servers_for("SASL")
            yield Cluster(kind, embedded.bootstrap_servers, sasl)
        return
    prefix = "listener.name.sasl."
    properties: dict[str, object] = {
        **CONFIGS,
        f"{prefix}sasl.enabled.mechanisms": MECHANISM,
        f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": SCRAM,
    }
    listeners = {"SASL": "SASL_PLAINTEXT"}
    brokers = 3 if kind == "kafka3" else 1
    with KafkaCluster(
        KAFKA, brokers, properties=properties, listeners=listeners, telemetry=TELEMETRY
    ) as kafka:
        kafka.create_topic(TELEMETRY, configs={"max.message.bytes": 1 << 24})
        yield Cluster(kind, kafka.bootstrap, kafka.listener("SASL"))
