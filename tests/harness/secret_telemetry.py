"""A visit of the tour of secrets: everything that telemetry shows.

Produce requests and Fetch responses may contain the keys, values, and headers of records. But these
must not be in the metrics that are pushed, in spans, or in the text for Prometheus.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from secret_tour import PASSWORD, RECORDS, Tour

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, SaslPlain, transform
from aiokclient.admin import ConfigResource
from aiokclient.errors import RecordError, SerializationError
from aiokclient.protocol.messages import ListGroupsRequest
from aiokclient.telemetry.otel import instrument
from aiokclient.telemetry.prometheus import Collector

__all__ = ["visit_telemetry"]

KEY, VALUE, HEADER = RECORDS["record key"], RECORDS["record value"], RECORDS["record header"]
EVERYTHING = ConfigResource.client_metrics("everything")
PUSHES = "client.request.seconds{api=PushTelemetry"


def refuse(data: Any) -> Any:
    raise ValueError(f"{data!r} cannot be converted")


async def visit_telemetry(tour: Tour) -> None:
    """Push metrics, trace, and scrape, while records are sent, read, and refused."""
    servers = tour.cluster.bootstrap_servers_for("SASL")
    options: dict[str, Any] = {
        "bootstrap_servers": servers,
        "client_id": tour.client_id,
        "security": SaslPlain("alice", PASSWORD),
    }
    async with Admin(**options, enable_metrics_push=False) as admin:
        changes = {EVERYTHING: {"metrics": "*", "interval.ms": 100}}
        (await admin.alter_configs(changes)).raise_for_errors()
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers, meters = TracerProvider(), MeterProvider([reader])
        tracers.add_span_processor(SimpleSpanProcessor(exporter))
        async with Client(**options) as client:
            registry = CollectorRegistry()
            registry.register(Collector(client))
            with instrument(client, meters, tracers):
                await _work(client, meters, tracers)
                await _until_pushed(client)
            tour.collector.collected.add("prometheus", generate_latest(registry))
            tour.collector.collected.add("prometheus", open_metrics(registry))
            tour.collector.client(client)
        await admin.delete_client_metrics(["everything"])
    names = {span.name for span in exporter.get_finished_spans()}
    assert names >= {"send t", "poll t", "poll", "process t", "commit t", "commit"}
    for span in exporter.get_finished_spans():
        tour.collector.collected.add("spans", span.to_json())
        tour.collector.add("spans", span.name, span.attributes, span.events, span.links)
        tour.collector.add("spans", span.status.description, span.resource.attributes)
    data = reader.get_metrics_data()
    if data is not None:
        tour.collector.collected.add("spans", data.to_json())


async def _work(client: Client, meters: Any, tracers: Any) -> None:
    """Send, read, commit, transform, and fail, all with known contents."""
    record: dict[str, Any] = {"key": KEY.encode(), "value": VALUE.encode()}
    record["headers"] = [("h", HEADER.encode()), (HEADER, None), ("traceparent", HEADER.encode())]
    read = {"client": client, "auto_offset_reset": "earliest"}
    async with (
        Producer(client=client) as producer,
        Producer(client=client, value_serializer=refuse) as refusing,
        Producer(client=client, transactional_id="telemetry") as transactional,
        Consumer("t", group_id="telemetry", enable_auto_commit=False, **read) as consumer,
        Consumer("t", value_deserializer=refuse, **read) as unable,
    ):
        for each in (producer, refusing, transactional, consumer, unable):
            instrument(each, meters, tracers)
        token = context.attach(baggage.set_baggage("customer", HEADER))
        await producer.send("t", **record)
        await producer.gather(producer.send_many("t", [(KEY.encode(), VALUE.encode())] * 3))
        context.detach(token)
        try:
            refusing.send("t", VALUE)
        except SerializationError:
            pass
        try:
            await unable.get(timeout=30)
        except RecordError:
            pass
        try:
            async for found in consumer:
                await consumer.commit(found)
                refuse(found.value)
        except ValueError:
            pass
        async for records in consumer.batches():
            await consumer.commit(records)
            break
        consumer.seek_to_beginning()
        async with transform(consumer, transactional) as stream:
            async for batch in stream:
                for found in batch:
                    batch.send("t", found.value, found.key, headers=found.headers)
                consumer.stop()


async def _until_pushed(client: Client) -> None:
    await client.client_instance_id()
    while not any(name.startswith(PUSHES) for name in client.metrics()):
        await client.request(ListGroupsRequest(), AnyBroker())
