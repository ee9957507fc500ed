"""Tests of the receivers that come with the library: a topic, and an OTLP endpoint."""

from __future__ import annotations

import threading
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kafka_harness import pushed
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient.errors import IllegalStateError
from aiokclient.testing import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    EmbeddedCluster,
    OtlpHttpTelemetryReceiver,
    TopicTelemetryReceiver,
)
from aiokclient.testing.broker.telemetry.receiver import format_uuid

PATIENCE_S = 60.0
ID = uuid.UUID(int=0x1234 << 64)
CONTEXT = ClientTelemetryContext(
    client_id="größe",
    client_instance_id=ID,
    client_address="127.0.0.1",
    software_name="some-client",
    software_version="v1",
    principal="User:alice",
    listener="SASL",
)


def otlp(name: str = "requests") -> bytes:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    metric.gauge.data_points.add(as_double=1.5)
    encoded: bytes = data.SerializeToString()
    return encoded


def payload(data: bytes) -> ClientTelemetryPayload:
    return ClientTelemetryPayload(terminating=False, content_type="OTLP", data=data)


class TestTopic:
    def test_each_push_becomes_one_record(self, telemetry_broker: Any) -> None:
        with EmbeddedCluster(telemetry=TopicTelemetryReceiver("metrics")) as cluster:
            assert cluster.topics == {"metrics": 1}
            client = telemetry_broker(cluster.address(1)).client("orders", ("some-client", "v1"))
            number = client.ask(ID).subscription_id
            assert client.push(ID, number, otlp(), terminating=True) == "ok"
            (record,) = cluster.records("metrics", 0)
        found = pushed(record.key, record.value, record.headers)
        assert record.key == format_uuid(ID).encode()
        assert (found.instance_id, found.terminating, found.data) == (ID, True, otlp())
        assert found.client == {
            "client_id": "orders",
            "client_instance_id": format_uuid(ID),
            "client_address": "127.0.0.1",
            "software_name": "some-client",
            "software_version": "v1",
            "principal": "User:ANONYMOUS",
            "listener": "PLAINTEXT",
            "terminating": "true",
            "content_type": "OTLP",
        }

    async def test_it_works_in_the_loop_of_the_program(self) -> None:
        receiver = TopicTelemetryReceiver("metrics")
        async with EmbeddedCluster(topics={"metrics": 3}, telemetry=receiver) as cluster:
            for _ in range(2):
                receiver.export(CONTEXT, payload(b"1"))
            counts = [len(cluster.records("metrics", each)) for each in range(3)]
        assert sorted(counts) == [0, 0, 2]  # All records of a client are in one partition.

    def test_it_raises_without_a_cluster(self) -> None:
        with pytest.raises(IllegalStateError, match="EmbeddedCluster"):
            TopicTelemetryReceiver("metrics").export(CONTEXT, payload(b"1"))


@pytest.mark.parametrize("wrong", ["topic", 5, TopicTelemetryReceiver, lambda context, data: None])
def test_a_cluster_refuses_an_object_that_is_no_receiver(wrong: Any) -> None:
    with pytest.raises(TypeError, match="telemetry="):
        EmbeddedCluster(telemetry=wrong)


class Endpoint:
    """An OTLP endpoint, which answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append((self.path, dict(self.headers), body))
                endpoint.may_answer.wait(PATIENCE_S)
                self.send_response(endpoint.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/metrics?x=1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever, args=(0.05,))
    thread.start()
    yield endpoint
    endpoint.may_answer.set()
    endpoint.server.shutdown()
    thread.join()
    endpoint.server.server_close()


class TestOtlp:
    def test_pushes_are_sent_with_the_client_as_attributes(self, endpoint: Endpoint) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url, headers={"X-Key": "k"})
        receiver.export(CONTEXT, payload(otlp("a")))
        receiver.export(CONTEXT, payload(otlp("b")))
        assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert (receiver.sent, receiver.failed, receiver.rejected, receiver.dropped) == (2, 0, 0, 0)
        names = []
        for path, headers, body in endpoint.requests:
            request: Any = ExportMetricsServiceRequest()
            request.ParseFromString(body)
            (resource,) = request.resource_metrics
            names.append(resource.scope_metrics[0].metrics[0].name)
            attributes = {
                each.key: each.value.string_value for each in resource.resource.attributes
            }
            assert attributes == {
                "client_id": "größe",
                "client_instance_id": format_uuid(ID),
                "client_software_name": "some-client",
                "client_software_version": "v1",
                "client_source_address": "127.0.0.1",
                "principal": "User:alice",
                "listener": "SASL",
            }
            assert path == "/v1/metrics?x=1"
            assert headers["Content-Type"] == "application/x-protobuf"
            assert headers["X-Key"] == "k"
        assert names == ["a", "b"]

    def test_a_cluster_exports_without_waiting_for_the_endpoint(
        self, endpoint: Endpoint, telemetry_broker: Any
    ) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url)
        endpoint.may_answer.clear()
        with EmbeddedCluster(telemetry=receiver) as cluster:
            client = telemetry_broker(cluster.address(1)).client()
            number = client.ask(ID).subscription_id
            assert client.push(ID, number, otlp()) == "ok"
            assert receiver.sent == 0
            assert client.push(ID, number, otlp(), terminating=True) == "ok"
        # Pushes that were queued are sent even after the cluster has ended.
        endpoint.may_answer.set()
        assert receiver.flush(PATIENCE_S)
        assert (receiver.sent, len(endpoint.requests)) == (2, 2)

    def test_what_is_not_otlp_is_not_sent(self, endpoint: Endpoint) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url)
        receiver.export(CONTEXT, payload(b"\xff\xff\xff garbage"))
        assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert (receiver.rejected, receiver.sent, endpoint.requests) == (1, 0, [])

    def test_failures_are_counted_and_logged_once(
        self, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url, headers={"X-Key": "secret-key"})
        endpoint.status = 503
        for _ in range(3):
            receiver.export(CONTEXT, payload(otlp()))
        assert receiver.flush(PATIENCE_S)
        endpoint.status = 200
        receiver.export(CONTEXT, payload(otlp()))
        assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert (receiver.failed, receiver.sent) == (3, 1)
        assert caplog.text.count("refused pushed metrics with status 503") == 1
        assert "secret-key" not in caplog.text + repr(receiver)

    def test_an_endpoint_that_does_not_exist_is_a_failure(
        self, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        receiver = OtlpHttpTelemetryReceiver("http://127.0.0.1:9/v1/metrics", timeout_s=5.0)
        receiver.export(CONTEXT, payload(otlp()))
        assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert receiver.failed == 1
        assert "does not answer" in caplog.text

    def test_pushes_beyond_the_limit_are_dropped(
        self, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = otlp()
        receiver = OtlpHttpTelemetryReceiver(endpoint.url, max_queued_bytes=3 * len(data))
        endpoint.may_answer.clear()
        for _ in range(10):
            receiver.export(CONTEXT, payload(data))
        endpoint.may_answer.set()
        assert receiver.flush(PATIENCE_S)
        # The receiver may have taken the first push from the queue before the others arrived.
        assert receiver.dropped in (6, 7)
        assert receiver.sent == 10 - receiver.dropped
        receiver.close()
        receiver.export(CONTEXT, payload(data))
        assert receiver.dropped in (7, 8)
        assert "too slow" in caplog.text

    @pytest.mark.parametrize(
        "url", ["localhost:4318", "ftp://host/", "http:///v1", "http://u:p@host/v1"]
    )
    def test_a_wrong_endpoint_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="endpoint"):
            OtlpHttpTelemetryReceiver(url)

    @pytest.mark.parametrize("wrong", [5, None, b"http://host/"])
    def test_an_endpoint_that_is_no_text_is_refused(self, wrong: Any) -> None:
        with pytest.raises(TypeError, match="endpoint="):
            OtlpHttpTelemetryReceiver(wrong)

    @pytest.mark.parametrize(
        ("url", "headers"),
        [
            ("http://host/größe", {}),
            ("http://host/a b", {}),
            ("http://host/", {"X-Key": "secret\r\nX: y"}),
            ("http://host/", {"größe": "secret"}),
        ],
    )
    def test_what_http_cannot_send_is_refused_at_once(
        self, url: str, headers: dict[str, str]
    ) -> None:
        with pytest.raises(ValueError, match="HTTP") as caught:
            OtlpHttpTelemetryReceiver(url, headers=headers)
        shown = "".join(traceback.format_exception(caught.value))
        assert "secret\\r" not in shown

    @pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
    def test_a_wrong_timeout_is_refused(self, wrong: float) -> None:
        with pytest.raises(ValueError, match="timeout_s="):
            OtlpHttpTelemetryReceiver("http://host/", timeout_s=wrong)

    def test_the_thread_continues_after_any_error(
        self, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url)

        def broken() -> None:
            raise OverflowError

        monkeypatch.setattr(receiver, "_connect", broken)
        for _ in range(2):
            receiver.export(CONTEXT, payload(otlp()))
            assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert receiver.failed == 2

    def test_a_client_id_with_surrogates_is_sent(self, endpoint: Endpoint) -> None:
        receiver = OtlpHttpTelemetryReceiver(endpoint.url)
        receiver.export(replace(CONTEXT, client_id="a\udc80"), payload(otlp()))
        assert receiver.flush(PATIENCE_S)
        receiver.close()
        assert receiver.sent == 1
        assert b"a?" in endpoint.requests[0][2]
