"""Programs on frameworks that stand on aiokafka, run on the adapter, for `make adapter`.

    python framework_programs.py [opentelemetry | concurrent | faust]

Each checks what it observes. Without an argument, each is run in a process of its own, beside an
embedded cluster.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from typing import Any

from aiokclient.adapters.aiokafka import install
from aiokclient.testing import EmbeddedCluster

TOPICS = {"traced": 1, "concurrent": 1, "posts": 2, "words": 2}
RECORDS = 30
PROGRAM_S = 120


async def run_opentelemetry(servers: str) -> None:
    """Check that records carry the span of their send, and that reads have spans."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    AIOKafkaInstrumentor().instrument(tracer_provider=provider)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("traced", b"one", key=b"key")
        await asyncio.gather(await producer.send("traced", b"two"))
    async with AIOKafkaConsumer(
        "traced", bootstrap_servers=servers, group_id="traced", auto_offset_reset="earliest"
    ) as consumer:
        first = await consumer.getone()
        (second,) = next(iter((await consumer.getmany(timeout_ms=10_000)).values()))
    assert [dict(each.headers).keys() for each in (first, second)] == [{"traceparent"}] * 2
    kinds = [span.kind.name for span in exporter.get_finished_spans()]
    assert kinds.count("PRODUCER") == 2, kinds
    assert kinds.count("CONSUMER") >= 2, kinds


async def run_concurrent(servers: str) -> None:
    """Check that handlers of faststream-concurrent-aiokafka run at once, and all is committed."""
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from faststream.kafka import KafkaBroker
    from faststream.middlewares import AckPolicy
    from faststream_concurrent_aiokafka import (
        KafkaConcurrentProcessingMiddleware,
        initialize_concurrent_processing,
        stop_concurrent_processing,
    )

    broker = KafkaBroker(servers, middlewares=[KafkaConcurrentProcessingMiddleware])
    handled: set[str] = set()
    done, crowd = asyncio.Event(), asyncio.Event()
    running: set[str] = set()

    @broker.subscriber(
        "concurrent", group_id="g", ack_policy=AckPolicy.MANUAL, auto_offset_reset="earliest"
    )
    async def handle(message: str) -> None:
        running.add(message)
        if len(running) == 5:
            crowd.set()
        await crowd.wait()
        handled.add(message)
        if len(handled) == RECORDS:
            done.set()

    await initialize_concurrent_processing(context=broker.context, concurrency_limit=5)
    await broker.start()
    for number in range(RECORDS):
        await broker.publish(f"message {number}", "concurrent")
    await done.wait()
    await stop_concurrent_processing(broker.context)
    await broker.stop()
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="g") as consumer:
        assert await consumer.committed(TopicPartition("concurrent", 0)) == RECORDS


def run_faust(servers: str) -> None:
    """Count words in a table, and exit when all are counted."""
    import faust

    folder = tempfile.mkdtemp()
    app = faust.App(
        "counter", broker=f"kafka://{servers}", store="memory://", version=1, datadir=folder
    )
    posts: Any = app.topic("posts", value_type=str)
    words: Any = app.topic("words", key_type=str, value_type=str, partitions=2)
    counts: Any = app.Table("counts", default=int, partitions=2)
    expected = {"the": RECORDS, "quick": RECORDS, "fox": RECORDS // 2, "dog": RECORDS // 2}

    @app.agent(posts)  # type: ignore[untyped-decorator]
    async def split(stream: Any) -> None:
        async for post in stream:
            for word in post.split():
                await words.send(key=word, value=word)

    @app.agent(words)  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        async for word in stream:
            counts[word] += 1
            if sum(counts.values()) == 3 * RECORDS:
                os._exit(0 if dict(counts.items()) == expected else 1)

    @app.task  # type: ignore[untyped-decorator]
    async def write() -> None:
        for number in range(RECORDS):
            await posts.send(value=f"the quick {('fox', 'dog')[number % 2]}")

    sys.argv = ["counter", "worker", "-l", "error", "--without-web"]
    app.main()


def main() -> None:
    if len(sys.argv) > 1:
        install()
        name, servers = sys.argv[1:]
        if name == "faust":
            run_faust(servers)
        asyncio.run(
            {"opentelemetry": run_opentelemetry, "concurrent": run_concurrent}[name](servers)
        )
        return
    with EmbeddedCluster(topics=TOPICS) as cluster:
        for name in ("opentelemetry", "concurrent", "faust"):
            command = [sys.executable, __file__, name, cluster.bootstrap_servers]
            subprocess.run(command, check=True, timeout=PROGRAM_S)
            sys.stdout.write(f"{name}: as expected\n")


if __name__ == "__main__":
    main()
