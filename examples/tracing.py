"""Trace records from a producer to a consumer by OpenTelemetry, and print the spans.

A service would use an exporter to its collector instead of the list.

python examples/tracing.py [BOOTSTRAP] [TOPIC]
"""

import asyncio
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokclient import Consumer, Producer
from aiokclient.telemetry.otel import instrument


async def main(bootstrap: str = "localhost:9092", topic: str = "orders") -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")

    async with Producer(bootstrap_servers=bootstrap) as producer:
        instrument(producer, tracer_provider=provider)
        with tracer.start_as_current_span("order"):
            await producer.send(topic, b"tea")

    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        instrument(consumer, tracer_provider=provider)
        async for record in consumer.until_end():
            with tracer.start_as_current_span("brew"):
                print(f"brewing {record.value.decode()}")

    for span in exporter.get_finished_spans():
        assert span.context is not None
        print(f"{span.context.trace_id:032x} {span.kind.name:<9}{span.name}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
