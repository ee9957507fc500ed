"""Tests of what brokers announce, refuse, and pass to a receiver of client metrics."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from parity import named

from aiokclient.config.codecs import Compression
from aiokclient.errors import InvalidRecordError, ThrottlingQuotaExceededError
from aiokclient.protocol import ApiKey, messages
from aiokclient.record.compression import compress
from aiokclient.testing import EmbeddedCluster

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
ID = uuid.UUID(int=0x1234)


def announced(connection: Any) -> set[int]:
    answer = connection.request(messages.ApiVersionsRequest(), 0)
    return {each.api_key for each in answer.api_keys}


def test_the_requests_are_announced_only_with_a_receiver(
    broker: Any, telemetry_broker: Any
) -> None:
    assert announced(broker.connection) >= TELEMETRY
    with EmbeddedCluster() as without:
        other = telemetry_broker(without.address(1))
        found = announced(other.connection)
        assert ApiKey.LIST_CONFIG_RESOURCES in found
        assert not found & TELEMETRY
        # Like Kafka, a broker answers these requests although it does not announce them.
        client = other.client()
        answer = client.ask(ID)
        assert (answer.error_code, list(answer.requested_metrics)) == (0, [])
        assert client.push(ID, answer.subscription_id, b"metrics") == "ok"


@pytest.mark.parametrize("codec", Compression)
def test_the_receiver_gets_the_client_and_the_decompressed_metrics(
    broker: Any, collector: Any, codec: Compression
) -> None:
    client = broker.client("orders-1", ("some-client", "v1.2"))
    number = client.ask(ID).subscription_id
    metrics = bytes(compress(codec, b"metrics" * 100))
    assert client.push(ID, number, metrics, codec=codec, terminating=True) == "ok"
    ((context, payload),) = collector.pushes
    assert payload.data == b"metrics" * 100
    assert (payload.terminating, payload.content_type) == (True, "OTLP")
    assert (context.client_id, context.client_instance_id) == ("orders-1", ID)
    assert (context.software_name, context.software_version) == ("some-client", "v1.2")
    assert (context.client_address, context.listener) == ("127.0.0.1", "PLAINTEXT")
    assert context.principal == "User:ANONYMOUS"


def test_a_client_that_says_nothing_about_itself_is_unknown(broker: Any, collector: Any) -> None:
    client = broker.client(None)
    assert client.push(ID, client.ask(ID).subscription_id, b"metrics") == "ok"
    ((context, _),) = collector.pushes
    assert (context.client_id, context.software_name, context.software_version) == (
        *("", "unknown", "unknown"),
    )


def test_a_push_without_metrics_is_not_passed_on(broker: Any, collector: Any) -> None:
    client = broker.client()
    assert client.push(ID, client.ask(ID).subscription_id) == "ok"
    assert collector.pushes == []


def test_metrics_are_invalid_if_the_receiver_raises(
    broker: Any, collector: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker.subscribe("all", metrics="*", interval_ms="100")
    collector.error = ValueError("full")
    client = broker.client()
    number = client.ask(ID).subscription_id
    assert client.push(ID, number, b"metrics") == "INVALID_RECORD"
    assert "could not export pushed metrics" in caplog.text
    collector.error = None
    broker.until(lambda: client.push(ID, number, b"metrics") == "ok")


def test_each_client_without_an_id_gets_one(broker: Any) -> None:
    found = {broker.client().ask().client_instance_id for _ in range(20)}
    assert len(found) == 20
    assert all(each.version == 4 for each in found)


def test_metrics_above_the_limit_of_the_brokers_are_refused(
    collector: Any, telemetry_broker: Any
) -> None:
    configs = {"telemetry.max.bytes": 100}
    with EmbeddedCluster(telemetry=collector, configs=configs) as cluster:
        broker = telemetry_broker(cluster.address(1))
        broker.subscribe("all", metrics="*", interval_ms="100")
        client = broker.client()
        answer = client.ask(ID)
        assert answer.telemetry_max_bytes == 100
        number = answer.subscription_id
        assert client.push(ID, number, b"x" * 101) == "TELEMETRY_TOO_LARGE"
        broker.until(lambda: client.push(ID, number, b"x" * 100) == "ok")
        packed = bytes(compress(Compression.ZSTD, b"x" * 101))
        codes = {"THROTTLING_QUOTA_EXCEEDED"}
        while codes == {"THROTTLING_QUOTA_EXCEEDED"}:
            codes.add(client.push(ID, number, packed, codec=Compression.ZSTD))
        assert codes == {"THROTTLING_QUOTA_EXCEEDED", "INVALID_RECORD"}
        assert len(collector.pushes) == 1


def test_faults_apply_to_the_requests(broker: Any, telemetry_cluster: Any, collector: Any) -> None:
    client = broker.client()
    with telemetry_cluster.fail(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ThrottlingQuotaExceededError, times=1
    ):
        assert named(client.ask(ID).error_code) == "THROTTLING_QUOTA_EXCEEDED"
    number = client.ask(ID).subscription_id
    with telemetry_cluster.fail(ApiKey.PUSH_TELEMETRY, InvalidRecordError, times=1):
        assert client.push(ID, number, b"metrics") == "INVALID_RECORD"
    assert client.push(ID, number, b"metrics") == "ok"
    assert len(collector.pushes) == 1


def test_a_restarted_broker_knows_no_instances(
    broker: Any, telemetry_cluster: EmbeddedCluster
) -> None:
    broker.subscribe("all", metrics="*")
    number = broker.client().ask(ID).subscription_id
    telemetry_cluster.stop(1)
    telemetry_cluster.start(1)
    again = broker.client()
    # Subscriptions are configs of the cluster, so they survive the broker's restart.
    assert again.ask(ID).subscription_id == number


def test_the_brokers_share_subscriptions_and_not_instances(
    collector: Any, telemetry_broker: Any
) -> None:
    with EmbeddedCluster(brokers=2, telemetry=collector) as cluster:
        one, two = (telemetry_broker(cluster.address(each)) for each in (1, 2))
        one.subscribe("all", metrics="*")
        assert two.names() == ["all"]
        numbers = {each.client().ask(ID).subscription_id for each in (one, two)}
        assert len(numbers) == 1


def test_listing_subscriptions_needs_the_permission_to_describe_configs(
    collector: Any, telemetry_broker: Any
) -> None:
    configs = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with EmbeddedCluster(telemetry=collector, configs=configs) as cluster:
        broker = telemetry_broker(cluster.address(1))
        request = messages.ListConfigResourcesRequest()
        answer = broker.connection.request(request)
        assert named(answer.error_code) == "CLUSTER_AUTHORIZATION_FAILED"
        # Requests for subscriptions and pushes need no permission.
        client = broker.client()
        assert client.push(ID, client.ask(ID).subscription_id, b"metrics") == "ok"


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1")]
)
def test_clients_are_matched_by_their_address_in_the_notation_of_java(
    collector: Any, telemetry_broker: Any, host: str, expected: str
) -> None:
    with EmbeddedCluster(telemetry=collector, host=host) as cluster:
        broker = telemetry_broker(cluster.address(1))
        broker.subscribe("here", metrics="a", match=f"client_source_address={expected}")
        assert list(broker.client().ask(ID).requested_metrics) == ["a"]
