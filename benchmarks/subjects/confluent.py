"""confluent-kafka: librdkafka with callbacks, and its own asyncio clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject
from measuring.tokens import unsecured_token

POLL_EVERY = 500
LIST = 5_000
WAIT_S = 10.0


def connection_settings(spec: Spec) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": spec.bootstrap, "log_level": 3}
    settings["security.protocol"] = spec.protocol
    if spec.encrypted:
        settings["ssl.ca.location"] = spec.authority
    if spec.mechanism:
        settings["sasl.mechanism"] = spec.mechanism
    if spec.mechanism == "OAUTHBEARER":
        token, expires_at_ms = unsecured_token(spec.user)
        settings["oauth_cb"] = lambda _: (token, expires_at_ms / 1000)
    elif spec.mechanism == "GSSAPI":
        settings["sasl.kerberos.principal"] = spec.user
        settings["sasl.kerberos.keytab"] = spec.keytab
    elif spec.mechanism:
        settings |= {"sasl.username": spec.user, "sasl.password": spec.password}
    return settings


def producer_settings(spec: Spec) -> dict[str, Any]:
    settings = connection_settings(spec)
    settings |= {"compression.type": spec.compression, "partitioner": "murmur2_random"}
    settings["message.max.bytes"] = 1_048_588  # The broker's default limit.
    if spec.tuned:
        settings |= {"enable.idempotence": True, "acks": "all", "linger.ms": spec.linger_ms}
        settings |= {"batch.size": spec.batch_bytes, "max.in.flight": spec.in_flight}
    return settings


def consumer_settings(spec: Spec) -> dict[str, Any]:
    settings = connection_settings(spec)
    settings |= {"group.id": "bench", "enable.auto.commit": False}
    if spec.tuned:
        settings |= {"fetch.queue.backoff.ms": 1, "queued.min.messages": 100_000}
    return settings


class Confluent(PythonSubject):
    family = "confluent-kafka"
    requires = "confluent_kafka"


class Callbacks(Confluent):
    name = "confluent-kafka callbacks"

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Producer

        values, keys, topic = spec.values(), spec.keys(), spec.topic
        producer = Producer(producer_settings(spec))
        good = 0

        def delivered(error: Any, message: Any) -> None:
            nonlocal good
            if error is not None:
                raise RuntimeError(str(error))
            good += 1

        producer.produce(topic, FIRST, on_delivery=delivered)
        producer.flush()
        produce, poll = producer.produce, producer.poll
        good = 0
        with meter:
            for at, value in enumerate(values):
                while True:
                    try:
                        if spec.keyed:
                            produce(topic, value, keys[at], on_delivery=delivered)
                        else:
                            produce(topic, value, on_delivery=delivered)
                        break
                    except BufferError:
                        poll(0.1)
                if not at % POLL_EVERY:
                    poll(0)
            producer.flush()
        meter.counts.messages = good


@contextlib.asynccontextmanager
async def polled(producer: Any) -> AsyncIterator[None]:
    """Poll an AIOProducer, which otherwise reports outcomes only at its buffer timeout."""

    async def poll() -> None:
        while True:
            await producer.poll(0.1)

    task = asyncio.create_task(poll())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class AioProducer(Confluent):
    name = "confluent-kafka AIOProducer"
    share = 0.25

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka.aio import AIOProducer

        items = list(zip(spec.values(), spec.keys(), strict=True))
        producer = AIOProducer(producer_settings(spec))
        first = await producer.produce(spec.topic, FIRST)
        await producer.flush()
        await first
        with meter:
            waiting: list[Any] = []
            for chunk in spec.chunks(items):
                sent = [await producer.produce(spec.topic, value, key) for value, key in chunk]
                meter.counts.messages += await self.settle(waiting)
                waiting = sent
            await producer.flush()
            meter.counts.messages += await self.settle(waiting)
        await producer.close()

    async def settle(self, futures: list[Any]) -> int:
        for future in futures:
            if (await future).error() is not None:
                raise RuntimeError("A message was not delivered.")
        return len(futures)


class Consume(Confluent):
    name = "confluent-kafka consume(5000)"

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        with meter:
            consumer = Consumer(consumer_settings(spec))
            consumer.assign(
                [TopicPartition(spec.topic, p, OFFSET_BEGINNING) for p in range(spec.partitions)]
            )
            self.read(consumer, spec.count, meter)
            consumer.close()

    def read(self, consumer: Any, count: int, meter: Meter) -> None:
        seen = size = 0
        while seen < count:
            # consume() waits for the requested number, so request no more than there are.
            messages = consumer.consume(min(LIST, count - seen), WAIT_S)
            if not seen:
                meter.arrived(len(messages))
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                size += len(message.value())
            seen += len(messages)
        meter.complete(seen, size)


class Poll(Consume):
    name = "confluent-kafka poll"
    share = 0.4

    def read(self, consumer: Any, count: int, meter: Meter) -> None:
        seen = size = 0
        while seen < count:
            message = consumer.poll(WAIT_S)
            if message is None:
                continue
            if not seen:
                meter.arrived(1)
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            size += len(message.value())
            seen += 1
        meter.complete(seen, size)


class AioConsume(Confluent):
    name = "confluent-kafka AIOConsumer.consume(5000)"
    share = 0.4

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition
        from confluent_kafka.aio import AIOConsumer

        places = [TopicPartition(spec.topic, p, OFFSET_BEGINNING) for p in range(spec.partitions)]
        seen = size = 0
        with meter:
            consumer = AIOConsumer(consumer_settings(spec))
            await consumer.assign(places)
            while seen < spec.count:
                messages = await consumer.consume(min(LIST, spec.count - seen), WAIT_S)
                if not seen:
                    meter.arrived(len(messages))
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    size += len(message.value())
                seen += len(messages)
            meter.complete(seen, size)
            await consumer.close()


PRODUCERS = (Callbacks(), AioProducer())
CONSUMERS = (Consume(), Poll(), AioConsume())
