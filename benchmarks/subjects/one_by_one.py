"""One send at a time, each awaited before the next, and as a lower bound a blocking socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject

from subjects import aio_kafka, confluent, kafka_python, own
from subjects.floor import Floor

WAIT_S = 10.0


def at_once(spec: Spec) -> Spec:
    """Return the settings without lingering, because no second message would arrive."""
    return replace(spec, linger_ms=0)


def tell(meter: Meter, nanoseconds: list[int]) -> None:
    ordered = sorted(nanoseconds)
    meter.counts.messages = len(ordered)
    for percent in (50, 99):
        at = min(len(ordered) - 1, len(ordered) * percent // 100)
        meter.counts.figures[f"p{percent}_us"] = ordered[at] / 1e3


def time_each(values: list[bytes], send: Callable[[bytes], object], meter: Meter) -> None:
    clock, times = time.perf_counter_ns, []
    with meter:
        for value in values:
            began = clock()
            send(value)
            times.append(clock() - began)
    tell(meter, times)


async def time_each_async(
    values: list[bytes], send: Callable[[bytes], Awaitable[object]], meter: Meter
) -> None:
    clock, times = time.perf_counter_ns, []
    with meter:
        for value in values:
            began = clock()
            await send(value)
            times.append(clock() - began)
    tell(meter, times)


class BlockingSocket(PythonSubject):
    """A blocking socket with the idempotent Produce requests of aiokclient, encoded in advance.

    Only the error codes of the responses are read.
    """

    name = "blocking socket"
    family = "floor"
    requires = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        values = [FIRST, *spec.values()]
        with Floor(spec.bootstrap) as floor:
            first, *frames = floor.frames(spec.topic, values)
            floor.exchange(first)
            time_each(frames, floor.exchange, meter)


class Own(own.Own):
    name = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        topic = spec.topic
        async with Producer(**own.producer_options(spec)) as producer:
            await producer.send(topic, FIRST)
            send = producer.send
            await time_each_async(spec.values(), lambda value: send(topic, value), meter)


class OwnUvloop(Own):
    name = "aiokclient, uvloop"
    uvloop = True


class Confluent(PythonSubject):
    name = "confluent-kafka produce and poll"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Producer

        settings = confluent.producer_settings(at_once(spec))
        producer = Producer({**settings, "socket.nagle.disable": True})
        done = False

        def delivered(error: Any, message: Any) -> None:
            nonlocal done
            if error is not None:
                raise RuntimeError(str(error))
            done = True

        def send(value: bytes) -> None:
            nonlocal done
            done = False
            producer.produce(spec.topic, value, on_delivery=delivered)
            while not done:
                producer.poll(WAIT_S)

        send(FIRST)
        time_each(spec.values(), send, meter)


class AioProducer(PythonSubject):
    name = "confluent-kafka AIOProducer"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka.aio import AIOProducer

        # `batch_size` is the number of messages that an AIOProducer buffers before it sends them.
        # One is the fastest value here.
        producer = AIOProducer(confluent.producer_settings(spec), batch_size=1)

        async def send(value: bytes) -> None:
            await (await producer.produce(spec.topic, value))

        async with confluent.polled(producer):
            await send(FIRST)
            await time_each_async(spec.values(), send, meter)
        await producer.close()


class Aiokafka(PythonSubject):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        topic = spec.topic
        async with AIOKafkaProducer(**aio_kafka.producer_options(spec)) as producer:
            await producer.send_and_wait(topic, FIRST)
            send = producer.send_and_wait
            await time_each_async(spec.values(), lambda value: send(topic, value), meter)


class KafkaPython(PythonSubject):
    name = "kafka-python"
    family = "kafka-python"
    requires = "kafka"

    def work(self, spec: Spec, meter: Meter) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(**kafka_python.producer_options(at_once(spec)))
        producer.send(spec.topic, FIRST).get(WAIT_S)
        send = producer.send
        time_each(spec.values(), lambda value: send(spec.topic, value).get(WAIT_S), meter)
        producer.close()


ONE_BY_ONE = (
    BlockingSocket(),
    Own(),
    OwnUvloop(),
    Confluent(),
    AioProducer(),
    Aiokafka(),
    KafkaPython(),
)
