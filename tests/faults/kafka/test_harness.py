"""The Kafka cluster of the tests works, can be broken, and recovers."""

import contextlib
import socket
from pathlib import Path

import pytest
from kafka_harness import ExternalKafka, KafkaCluster, Probe, java
from kafka_harness.node import ReservedPort
from kafka_harness.tools import console_consume, console_produce


def test_a_started_kafka_serves_requests(kafka: ExternalKafka) -> None:
    topic = kafka.create_topic(partitions=2)
    assert kafka.leader(topic, 1) >= 0


def test_the_java_tools_reach_the_cluster(
    kafka: ExternalKafka, kafka_tools_jars: list[Path]
) -> None:
    topic = kafka.create_topic()
    console_produce(kafka.bootstrap, topic, [b"a", b"b"])
    assert console_consume(kafka.bootstrap, topic, 2) == [b"a", b"b"]


def test_the_old_broker_has_the_old_version(kafka_old: KafkaCluster) -> None:
    api_versions, newest = 18, 4
    reader = Probe(*kafka_old.addresses()[0]).ask(api_versions, 0, b"")
    assert reader.number("h") == 0
    ranges = {reader.number("h"): (reader.number("h"), reader.number("h")) for _ in reader.times()}
    assert ranges[api_versions][1] == newest


@pytest.mark.parametrize(("breaking", "mending"), [("kill", "start"), ("pause", "resume")])
def test_a_killed_leader_is_replaced_and_returns(
    kafka3: KafkaCluster, breaking: str, mending: str
) -> None:
    topic = kafka3.create_topic(replication=3)
    leader = kafka3.leader(topic)
    getattr(kafka3, breaking)(leader)
    assert kafka3.await_leader(topic, other_than=leader) != leader
    getattr(kafka3, mending)(leader)
    kafka3.await_in_sync(topic)


def test_a_reserved_port_is_not_given_to_others() -> None:
    reserved = ReservedPort()
    with contextlib.closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", reserved.port))
    reserved.release()


def test_a_missing_tool_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(java.MissingToolError, match=r"apt-get install .* maven"):
        java.find("mvn")
