"""Tests that Java's and librdkafka's clients push metrics to the embedded cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka_harness import JavaTool, Pushed
from kafka_harness import pushed as pushed_record
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient.protocol import ApiKey
from aiokclient.record.batch import walk
from aiokclient.testing import EmbeddedCluster

PATIENCE_S = 120.0


@pytest.fixture
def cluster(collector: Any, telemetry_broker: Any) -> Any:
    with EmbeddedCluster(topics={"orders": 1}, telemetry=collector) as cluster:
        broker = telemetry_broker(cluster.address(1))
        broker.subscribe("all", metrics="*", interval_ms="200")
        yield cluster


def content(data: bytes) -> tuple[set[str], set[str]]:
    """Return the names of the metrics in an OTLP payload, and the names of their labels."""
    data_of: Any = MetricsData()
    data_of.ParseFromString(data)
    metrics = [
        metric
        for resource in data_of.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    labels = {
        attribute.key
        for metric in metrics
        for point in (*metric.gauge.data_points, *metric.sum.data_points)
        for attribute in point.attributes
    }
    return {metric.name for metric in metrics}, labels


def pushed(collector: Any, software: str) -> list[Any]:
    return [each for each in collector.pushes if software in each[0].software_name]


def check(cluster: EmbeddedCluster, collector: Any, software: str, prefix: str, label: str) -> None:
    """Check that one client has pushed several times, and a last time when it was closed."""
    found = pushed(collector, software)
    assert {context.client_id for context, _ in found} == {"peer"}
    assert len({context.client_instance_id for context, _ in found}) == 1
    assert [payload.terminating for _, payload in found][-1:] == [True]
    assert sum(payload.terminating for _, payload in found) == 1
    for _, payload in found:
        names, labels = content(payload.data)
        assert {each for each in names if each.startswith(prefix)}
        assert label in labels
    asked = [each for each in cluster.requests if each.api == ApiKey.GET_TELEMETRY_SUBSCRIPTIONS]
    first = next(each for each in asked if each.client_id == "peer")
    assert first.message.client_instance_id.int == 0
    codecs = {
        each.message.compression_type
        for each in cluster.requests
        if each.api == ApiKey.PUSH_TELEMETRY
    }
    assert 4 in codecs


def run_librdkafka(bootstrap: str, topic: str, done: Callable[[], bool]) -> None:
    """Produce until `done()` is true, and then close the producer, which pushes a last time."""
    confluent = pytest.importorskip("confluent_kafka")
    options = {"bootstrap.servers": bootstrap, "client.id": "peer", "log_level": 0}
    producer = confluent.Producer(options)
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        producer.produce(topic, b"value")
        producer.poll(0.05)
        assert time.monotonic() < deadline
    assert producer.flush(PATIENCE_S) == 0


def test_librdkafka_pushes_to_the_embedded_cluster(cluster: Any, collector: Any) -> None:
    servers = cluster.bootstrap_servers
    run_librdkafka(servers, "orders", lambda: len(pushed(collector, "confluent")) >= 3)
    cluster.wait_for(lambda: any(payload.terminating for _, payload in collector.pushes))
    check(cluster, collector, "confluent", "org.apache.kafka.producer.", "node.id")


def test_the_plugin_of_a_real_broker_writes_what_librdkafka_pushes(
    kafka_telemetry: Any, telemetry_broker: Any
) -> None:
    broker = telemetry_broker(kafka_telemetry.addresses()[0])
    topic = kafka_telemetry.create_topic()
    start = broker.connection.list_offset("client-metrics", -1).offset
    broker.subscribe("peer", metrics="*", interval_ms="200", match="client_id=peer")

    def records() -> list[Pushed]:
        answer = broker.connection.fetch("client-metrics", offset=start, max_bytes=1 << 26)
        return [
            pushed_record(record.key, record.value, record.headers)
            for batch in walk(answer.records or b"")
            for record in batch.records("client-metrics", 0)
        ]

    run_librdkafka(kafka_telemetry.bootstrap, topic, lambda: len(records()) >= 3)
    broker.until(lambda: records()[-1].terminating)
    broker.unsubscribe("peer")
    for each in records():
        names, labels = content(each.data)
        assert {name for name in names if name.startswith("org.apache.kafka.producer.")}
        assert "node.id" in labels
        assert each.client["client_id"] == "peer"
        assert "confluent" in each.client["software_name"]
        assert each.client["push_interval_ms"] == "200"
    assert len({each.instance_id for each in records()}) == 1


@pytest.mark.java
@pytest.mark.timeout(600)
def test_the_java_consumer_pushes_to_the_embedded_cluster(
    cluster: Any, collector: Any, kafka_tools_jars: Any
) -> None:
    cluster.produce("orders", [b"value"] * 10)
    JavaTool(
        "console-consumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders"),
        *("--from-beginning", "--timeout-ms", "5000"),
        *("--consumer-property", "client.id=peer"),
    ).run(timeout=PATIENCE_S)
    cluster.wait_for(lambda: any(payload.terminating for _, payload in collector.pushes))
    check(cluster, collector, "apache-kafka-java", "org.apache.kafka.consumer.", "node_id")


@pytest.mark.java
@pytest.mark.timeout(600)
def test_the_java_producer_pushes_to_the_embedded_cluster(
    cluster: Any, collector: Any, kafka_tools_jars: Any
) -> None:
    JavaTool(
        "producer-perf",
        *("--topic", "orders", "--num-records", "300", "--record-size", "10"),
        *("--throughput", "100", "--producer-props", "client.id=peer"),
        f"bootstrap.servers={cluster.bootstrap_servers}",
    ).run(timeout=PATIENCE_S)
    found = pushed(collector, "apache-kafka-java")
    assert {context.client_id for context, _ in found} == {"peer"}
    for _, payload in found:
        names, labels = content(payload.data)
        assert {name for name in names if name.startswith("org.apache.kafka.producer.")}
        assert "node_id" in labels


@pytest.mark.java
@pytest.mark.timeout(600)
def test_the_java_tool_manages_subscriptions_of_the_embedded_cluster(
    cluster: Any, kafka_tools_jars: Any
) -> None:
    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        found = JavaTool("org.apache.kafka.tools.ClientMetricsCommand", *server, *arguments)
        return found.run(timeout=PATIENCE_S).decode()

    options = ("--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=x")
    tool("--alter", "--name", "orders", *options)
    described = tool("--describe", "--name", "orders")
    assert "metrics=a.,b." in described.replace(" ", "")
    assert "interval.ms=1000" in described
    tool("--delete", "--name", "orders")
    assert tool("--list").split() == ["all"]
