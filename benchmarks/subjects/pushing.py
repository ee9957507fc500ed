"""aiokclient with its metrics pushed (KIP-714), not subscribed, and disabled."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

from measuring.spec import Counts, Spec
from measuring.subject import Meter, NotMeasuredError

from subjects.own import LIST, Own, connection_options, producer_options

SUBSCRIBED = "bench-subscribed"
"""The client id that the subscription of the benchmark matches."""
PUSHES = "client.request.seconds{api=PushTelemetry"
PREPARE_S = 2.5
"""Seconds of work before the measured part.

The first push imports the package that encodes pushes, which must not be measured.
"""
PASSES = 4
"""The number of times that a consumer reads the topic."""
CHUNK = 10_000
BYTECODES = "bytecodes"
"""The mode that counts executed bytecodes instead of CPU time. Counting is slow."""


def pushes(client: Any) -> int:
    """Return how many pushes of a client were answered."""
    found = client.metrics()
    return sum(found[name]["count"] for name in found if name.startswith(PUSHES))


@contextlib.contextmanager
def counted(figures: dict[str, float], enabled: bool) -> Iterator[None]:
    """Count the bytecodes that all threads execute, as the figure `bytecodes`."""
    if not enabled:
        yield
        return
    monitoring, tool, executed = sys.monitoring, sys.monitoring.PROFILER_ID, 0

    def count(code: object, offset: int) -> None:
        nonlocal executed
        executed += 1

    monitoring.use_tool_id(tool, "bytecodes")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, count)
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
        figures["bytecodes"] = executed


class Pushing(Own):
    """A client, which works for some time before the measured part."""

    options: ClassVar[dict[str, Any]] = {}
    pushes: ClassVar[bool] = False

    def command(self, spec: Spec) -> list[str]:
        if spec.mode.endswith(BYTECODES) and sys.version_info < (3, 12):
            raise NotMeasuredError("Counting bytecodes needs Python 3.12.")
        return super().command(spec)

    def run(self, spec: Spec) -> Counts:
        meter = Meter()
        self.work(spec, meter)
        return meter.counts

    async def prepare(self, client: Any, turn: Callable[[], Awaitable[object]]) -> None:
        """Work for PREPARE_S. A client that pushes works at least until its first push."""
        until = time.monotonic() + PREPARE_S
        async with asyncio.timeout(60):
            while time.monotonic() < until or (self.pushes and not pushes(client)):
                await turn()

    @contextlib.contextmanager
    def measured(self, client: Any, spec: Spec, meter: Meter) -> Iterator[None]:
        figures, before = meter.counts.figures, pushes(client)
        with meter, counted(figures, spec.mode.endswith(BYTECODES)):
            yield
        figures["pushes"] = pushes(client) - before
        if figures["pushes"] and not self.pushes:
            raise RuntimeError(f"A client that must not push has pushed {figures['pushes']} times.")


class Producing(Pushing):
    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.produce(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        values = spec.values()
        few = spec.pool()[:CHUNK]
        async with Producer(**producer_options(spec), **self.options) as producer:

            async def turn() -> None:
                await producer.gather([producer.send(spec.warm_topic, value) for value in few])

            await producer.prepare(spec.topic)
            await self.prepare(producer, turn)
            with self.measured(producer, spec, meter):
                waiting: Any = []
                for chunk in spec.chunks(values):
                    sent = [producer.send(spec.topic, value) for value in chunk]
                    meter.counts.messages += len(await producer.gather(waiting))
                    waiting = sent
                meter.counts.messages += len(await producer.gather(waiting))


class Consuming(Pushing):
    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Consumer, TopicPartition

        tps = [TopicPartition(spec.topic, partition) for partition in range(spec.partitions)]
        async with Consumer(**connection_options(spec), **self.options) as consumer:
            consumer.assign(tps)

            async def turn(count: int = 0) -> int:
                """Read `count` records from the topic's start, or one batch if `count` is 0."""
                consumer.seek_to_beginning()
                seen = size = 0
                async for records in consumer.batches(LIST):
                    for record in records:
                        size += len(record.value)
                    seen += len(records)
                    if seen >= count:
                        break
                meter.counts.bytes += size if count else 0
                return seen

            await self.prepare(consumer, turn)
            with self.measured(consumer, spec, meter):
                for _ in range(PASSES):
                    meter.counts.messages += await turn(spec.count // PASSES)


class Disabled:
    name = "push disabled"
    options: ClassVar[dict[str, Any]] = {"enable_metrics_push": False}


class Unsubscribed:
    name = "no subscription"
    options: ClassVar[dict[str, Any]] = {}


class Subscribed:
    name = "everything at 1 s"
    options: ClassVar[dict[str, Any]] = {"client_id": SUBSCRIBED}
    pushes: ClassVar[bool] = True


class DisabledProducer(Disabled, Producing):
    """A producer that must not push."""


class UnsubscribedProducer(Unsubscribed, Producing):
    """A producer that may push, but has no subscription."""


class SubscribedProducer(Subscribed, Producing):
    """A producer that pushes all of its metrics each second."""


class DisabledConsumer(Disabled, Consuming):
    """A consumer that must not push."""


class UnsubscribedConsumer(Unsubscribed, Consuming):
    """A consumer that may push, but has no subscription."""


class SubscribedConsumer(Subscribed, Consuming):
    """A consumer that pushes all of its metrics each second."""


PRODUCERS: tuple[Pushing, ...] = (DisabledProducer(), UnsubscribedProducer(), SubscribedProducer())
CONSUMERS: tuple[Pushing, ...] = (DisabledConsumer(), UnsubscribedConsumer(), SubscribedConsumer())
