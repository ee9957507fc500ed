"""Tests that Java's and librdkafka's clients push metrics to the embedded cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka_harness import JavaTool, Pushed
from kafka_harness import pushed as pushed_record
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient.protocol import ApiKey
from aiokclient.record.batch import walk
from aiokclient.testing import EmbeddedCluster

PATIENCE_S = 120.0
LAST_PUSH_S = 10.0
"""Seconds for which the last push of a client that was closed is awaited."""


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


def check(cluster: EmbeddedCluster, found: list[Any], prefix: str, label: str) -> None:
    """Check that one client has pushed several times, and a last time when it was closed."""
    assert {context.client_id for context, _ in found} == {"peer"}
    assert len({context.client_instance_id for context, _ in found}) == 1
    assert len(found) > 1
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


def run_librdkafka(
    bootstrap: str, topic: str, list_pushes: Callable[[], list[tuple[UUID, bool]]]
) -> UUID:
    """Produce with clients of librdkafka until one has pushed a last time. Return its instance id.

    `list_pushes` returns the instance id of each push, and whether it was a last one. When a client
    is closed, librdkafka waits only a second until the last push is sent, which is too short on a
    busy machine.
    """
    confluent = pytest.importorskip("confluent_kafka")
    options = {"bootstrap.servers": bootstrap, "client.id": "peer", "log_level": 0}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        wanted = len(list_pushes()) + 3
        producer = confluent.Producer(options)
        while len(list_pushes()) < wanted:
            producer.produce(topic, b"value")
            producer.poll(0.05)
            assert time.monotonic() < deadline
        assert producer.flush(PATIENCE_S) == 0
        del producer  # Closes it.
        closed_at = time.monotonic()
        while time.monotonic() < closed_at + LAST_PUSH_S:
            instance_id, is_last = list_pushes()[-1]
            if is_last:
                return instance_id
            time.sleep(0.05)
    raise AssertionError("No client of librdkafka has pushed a last time.")


def test_librdkafka_pushes_to_the_embedded_cluster(cluster: Any, collector: Any) -> None:
    def list_pushes() -> list[tuple[UUID, bool]]:
        return [
            (context.client_instance_id, payload.terminating)
            for context, payload in pushed(collector, "confluent")
        ]

    instance_id = run_librdkafka(cluster.bootstrap_servers, "orders", list_pushes)
    found = [
        each for each in pushed(collector, "confluent") if each[0].client_instance_id == instance_id
    ]
    check(cluster, found, "org.apache.kafka.producer.", "node.id")


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

    instance_id = run_librdkafka(
        kafka_telemetry.bootstrap,
        topic,
        lambda: [(each.instance_id, each.terminating) for each in records()],
    )
    broker.unsubscribe("peer")
    found = [each for each in records() if each.instance_id == instance_id]
    assert len(found) > 3
    for each in found:
        names, labels = content(each.data)
        assert {name for name in names if name.startswith("org.apache.kafka.producer.")}
        assert "node.id" in labels
        assert each.client["client_id"] == "peer"
        assert "confluent" in each.client["software_name"]
        assert each.client["push_interval_ms"] == "200"


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
    found = pushed(collector, "apache-kafka-java")
    check(cluster, found, "org.apache.kafka.consumer.", "node_id")


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
