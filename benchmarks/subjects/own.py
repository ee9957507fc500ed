"""aiokclient: all of its ways to produce and to consume."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine
from typing import Any, ClassVar

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject, read_one_by_one, read_with_stats
from measuring.tokens import unsecured_token

LIST = 5_000
WAIT_S = 10.0


def connection_options(spec: Spec) -> dict[str, Any]:
    return {"bootstrap_servers": spec.bootstrap, "security": security(spec)}


def security(spec: Spec) -> Any:
    """Return the option `security`, with new credentials, for which no keys are cached."""
    from aiokclient import (
        OAuthToken,
        Plaintext,
        SaslGssapi,
        SaslOAuthBearer,
        SaslPlain,
        SaslScram,
        Tls,
    )

    tls = Tls(cafile=spec.authority) if spec.encrypted else None
    if not spec.mechanism:
        return tls or Plaintext()
    if spec.mechanism == "PLAIN":
        return SaslPlain(spec.user, spec.password, tls=tls)
    if spec.mechanism == "GSSAPI":
        return SaslGssapi(principal=spec.user, keytab=spec.keytab, tls=tls)
    if spec.mechanism == "OAUTHBEARER":
        token, expires_at_ms = unsecured_token(spec.user)

        async def fetch() -> OAuthToken:
            return OAuthToken(token, expires_at_ms)

        return SaslOAuthBearer(fetch, tls=tls)
    return SaslScram(spec.user, spec.password, spec.mechanism, tls=tls)


def producer_options(spec: Spec) -> dict[str, Any]:
    options = connection_options(spec)
    options |= {"compression_type": spec.compression}
    if spec.tuned:
        options |= {"batch_size": spec.batch_bytes, "linger_ms": spec.linger_ms}
        options |= {"max_in_flight_requests_per_connection": spec.in_flight}
    return options


class Own(PythonSubject):
    family = "aiokclient"
    requires = "aiokclient"
    uvloop: ClassVar[bool] = False

    def run_loop(self, main: Coroutine[Any, Any, None]) -> None:
        if self.uvloop:
            import uvloop

            uvloop.run(main)
        else:
            asyncio.run(main)


class OwnProducer(Own):
    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.produce(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        values, keys = spec.values(), spec.keys()
        items = list(zip(values, keys, strict=True)) if spec.keyed else values
        async with Producer(**producer_options(spec)) as producer:
            await producer.send(spec.topic, FIRST)
            with meter:
                waiting: Any = []
                for chunk in spec.chunks(items):
                    sent = self.send(producer, spec, chunk)
                    meter.counts.messages += await self.settle(producer, waiting)
                    waiting = sent
                meter.counts.messages += await self.settle(producer, waiting)

    def send(self, producer: Any, spec: Spec, items: list[Any]) -> Any:
        send, topic = producer.send, spec.topic
        if spec.keyed:
            return [send(topic, value, key) for value, key in items]
        return [send(topic, value) for value in items]

    @abstractmethod
    async def settle(self, producer: Any, deliveries: Any) -> int:
        """Check each result, and return the number of results."""


class AsWritten(OwnProducer):
    """A producer as the README shows it: `send` in a loop, and `drain` when the buffer is full.

    The other classes use the library in the fastest way: they look `send` up once, and call it in
    a comprehension.
    """

    name = "aiokclient as users write it, flush, await each"

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        items = list(zip(spec.values(), spec.keys(), strict=True))
        async with Producer(**producer_options(spec)) as producer:
            await producer.send(spec.topic, FIRST)
            with meter:
                await self.send_chunks(producer, spec, items, meter)

    async def send_chunks(
        self, producer: Any, spec: Spec, items: list[tuple[Any, Any]], meter: Meter
    ) -> None:
        for chunk in spec.chunks(items):
            deliveries = await self.send_items(producer, spec.topic, chunk)
            meter.counts.messages += await self.settle(producer, deliveries)

    async def send_items(self, producer: Any, topic: str, items: list[tuple[Any, Any]]) -> Any:
        deliveries = []
        for value, key in items:
            deliveries.append(producer.send(topic, value, key))
            if producer.full:
                await producer.drain()
        return deliveries

    async def settle(self, producer: Any, deliveries: Any) -> int:
        await producer.flush()
        for delivery in deliveries:
            await delivery
        return len(deliveries)


class GatherAsWritten(AsWritten):
    name = "aiokclient as users write it, gather"

    async def settle(self, producer: Any, deliveries: Any) -> int:
        return len(await producer.gather(deliveries))


class Window(GatherAsWritten):
    """A producer that never waits for what it has just sent, so that requests are in flight."""

    name = "aiokclient as users write it, window"

    async def send_chunks(
        self, producer: Any, spec: Spec, items: list[tuple[Any, Any]], meter: Meter
    ) -> None:
        window: deque[Any] = deque()
        for chunk in spec.chunks(items):
            window.append(await self.send_items(producer, spec.topic, chunk))
            if len(window) > 2:
                meter.counts.messages += await self.settle(producer, window.popleft())
        while window:
            meter.counts.messages += await self.settle(producer, window.popleft())


class ForeignLoop(OwnProducer):
    """The loop of aiokafka's own benchmark, which sends to one partition and counts each send.

    There, `await producer.send(...)` waits for room in the buffer; here, `drain` does.
    """

    name = "aiokclient in the loop of aiokafka's benchmark"

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        stats = [{"count": 0}]
        producer = Producer(**producer_options(spec))
        await producer.start()
        await producer.send(spec.topic, FIRST)
        with meter:
            for value in spec.values():
                producer.send(spec.topic, value, partition=0)
                if producer.full:
                    await producer.drain()
                stats[-1]["count"] += 1
            await producer.flush()
        meter.counts.messages = stats[-1]["count"]
        await producer.close()

    async def settle(self, producer: Any, deliveries: Any) -> int:
        raise NotImplementedError


class AwaitEach(OwnProducer):
    name = "aiokclient send, await each"

    async def settle(self, producer: Any, deliveries: Any) -> int:
        for delivery in deliveries:
            await delivery
        return len(deliveries)


class Gather(OwnProducer):
    name = "aiokclient send, gather"

    async def settle(self, producer: Any, deliveries: Any) -> int:
        return len(await producer.gather(deliveries))


class SendMany(Gather):
    name = "aiokclient send_many, gather"

    def send(self, producer: Any, spec: Spec, items: list[Any]) -> Any:
        if spec.keyed:
            items = [(key, value) for value, key in items]
        return producer.send_many(spec.topic, items)


class GatherUvloop(Gather):
    name = "aiokclient send, gather, uvloop"
    uvloop = True


class PureGather(Gather):
    name = "aiokclient pure Python send, gather"
    family = "aiokclient pure"
    share = 0.2
    environment: ClassVar = {"AIOKCLIENT_PURE": "1"}


class OwnConsumer(Own):
    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Consumer

        with meter:
            async with Consumer(
                spec.topic, auto_offset_reset="earliest", **connection_options(spec)
            ) as consumer:
                await self.read(consumer, spec.count, meter)

    @abstractmethod
    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        """Read `count` records, and take the length of each value."""


class Lists(OwnConsumer):
    name = "aiokclient lists"

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        seen = size = 0
        async for records in consumer.batches(LIST):
            if not seen:
                meter.arrived(len(records))
            for record in records:
                size += len(record.value)
            seen += len(records)
            if seen >= count:
                break
        meter.complete(seen, size)


class ListsUvloop(Lists):
    name = "aiokclient lists, uvloop"
    uvloop = True


class AsyncFor(OwnConsumer):
    name = "aiokclient async for"

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        await read_one_by_one(consumer, await consumer.get(WAIT_S), count, meter)


class ForeignReading(OwnConsumer):
    """The loop of aiokafka's own benchmark, which counts each record in a statistic."""

    name = "aiokclient in the loop of aiokafka's benchmark"

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        await read_with_stats(consumer, await consumer.get(WAIT_S), count, meter)


class Arrow(OwnConsumer):
    name = "aiokclient Arrow batches"

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        import pyarrow.compute as pc

        seen = size = 0
        async for table in consumer.arrow_batches():
            if not seen:
                meter.arrived(table.num_rows)
            size += pc.sum(pc.binary_length(table.column("value"))).as_py()
            seen += table.num_rows
            if seen >= count:
                break
        meter.complete(seen, size)


class PureLists(Lists):
    name = "aiokclient pure Python lists"
    family = "aiokclient pure"
    share = 0.4
    environment: ClassVar = {"AIOKCLIENT_PURE": "1"}


WRITTEN = (AsWritten(), GatherAsWritten(), Window())
PRODUCERS = (
    *WRITTEN,
    *(AwaitEach(), Gather(), SendMany(), GatherUvloop(), PureGather(), ForeignLoop()),
)
CONSUMERS = (Lists(), AsyncFor(), Arrow(), PureLists(), ForeignReading())
