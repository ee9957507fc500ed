"""`python -m aiokclient.testing` receives the metrics that clients push."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient import Admin, ConfigResource, Consumer, Producer, TopicPartition

PATIENCE_S = 60.0
PUSHES = "client.request.seconds{api=PushTelemetry"


@contextmanager
def running(*options: str) -> Iterator[str]:
    """Run the command, and return its bootstrap servers."""
    command = [sys.executable, "-m", "aiokclient.testing", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rpartition(" ")[2].strip()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


async def produce(bootstrap: str) -> None:
    """Subscribe to all metrics, and run a producer until it has pushed."""
    async with Admin(bootstrap_servers=bootstrap, enable_metrics_push=False) as admin:
        changes = {ConfigResource.client_metrics("all"): {"metrics": "*", "interval.ms": 100}}
        (await admin.alter_configs(changes)).raise_for_errors()
    async with Producer(bootstrap_servers=bootstrap, client_id="shop") as producer:
        async with asyncio.timeout(PATIENCE_S):
            while not any(name.startswith(PUSHES) for name in producer.metrics()):
                await producer.send("orders", b"tea")
                await asyncio.sleep(0.01)


async def first_push(bootstrap: str) -> tuple[dict[str, bytes], bytes | None]:
    """Return the headers and the value of the first record in the topic."""
    options = {"auto_offset_reset": "earliest", "enable_metrics_push": False}
    async with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([TopicPartition("client-metrics", 0)])
        record = await consumer.get(timeout=PATIENCE_S)
        assert record is not None
        return dict(record.headers), record.value


def test_pushed_metrics_are_written_into_a_topic() -> None:
    with running("--telemetry", "client-metrics") as bootstrap:
        asyncio.run(produce(bootstrap))
        headers, value = asyncio.run(first_push(bootstrap))
    assert headers["client_id"] == b"shop"
    assert MetricsData.FromString(value).resource_metrics


def test_pushed_metrics_are_sent_to_an_endpoint_before_the_process_ends() -> None:
    bodies: queue.Queue[bytes] = queue.Queue()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1/metrics"
        with running("--telemetry-otlp", url) as bootstrap:
            asyncio.run(produce(bootstrap))
        body = ExportMetricsServiceRequest.FromString(bodies.get_nowait())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    attributes = body.resource_metrics[0].resource.attributes
    values = {each.key: each.value.string_value for each in attributes}
    assert values["client_id"] == "shop"


@pytest.mark.parametrize(
    "options",
    [
        ("--telemetry-otlp", "ftp://localhost/"),
        ("--telemetry", "metrics", "--telemetry-otlp", "http://localhost:4318/"),
    ],
)
def test_wrong_options_end_with_two(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "aiokclient.testing", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "--telemetry" in done.stderr
