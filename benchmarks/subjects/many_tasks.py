"""Many tasks that share a producer, each awaiting its own sends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject

from subjects import aio_kafka, confluent, own
from subjects.one_by_one import at_once


class Tasks(PythonSubject):
    """A thousand tasks, each of which awaits its own sends."""

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(at_once(spec), meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        raise NotImplementedError

    async def spread(
        self, spec: Spec, send: Callable[[bytes], Awaitable[object]], meter: Meter
    ) -> None:
        values = spec.values()

        async def task(number: int) -> None:
            for value in values[number :: spec.tasks]:
                await send(value)
                meter.counts.messages += 1

        with meter:
            await asyncio.gather(*(task(number) for number in range(spec.tasks)))


class OwnTasks(Tasks):
    name = "aiokclient"
    family = "aiokclient"
    requires = "aiokclient"
    defaults: ClassVar[bool] = False

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Producer

        topic = spec.topic
        options = own.producer_options(spec.with_defaults() if self.defaults else spec)
        async with Producer(**options) as producer:
            await producer.send(topic, FIRST)
            send = producer.send
            await self.spread(spec, lambda value: send(topic, value), meter)


class OwnTasksDefaults(OwnTasks):
    name = "aiokclient, linger 5 ms"
    defaults = True


class AiokafkaTasks(Tasks):
    name = "aiokafka"
    share = 0.5
    family = "aiokafka"
    requires = "aiokafka"

    linger_ms: ClassVar[int] = 0

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        topic = spec.topic
        options = {**aio_kafka.producer_options(spec), "linger_ms": self.linger_ms}
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, FIRST)
            send = producer.send_and_wait
            await self.spread(spec, lambda value: send(topic, value), meter)


class AiokafkaTasksLinger(AiokafkaTasks):
    name = "aiokafka, linger 5 ms"
    linger_ms = 5


class AioProducerTasks(Tasks):
    name = "confluent-kafka AIOProducer"
    family = "confluent-kafka"
    requires = "confluent_kafka"
    share = 0.25

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka.aio import AIOProducer

        settings = confluent.producer_settings(spec)
        # Of the buffer sizes 1000, 100 and 20, the last one is the fastest here.
        producer = AIOProducer(settings, batch_size=20, buffer_timeout=0.1)

        async def send(value: bytes) -> None:
            await (await producer.produce(spec.topic, value))

        async with confluent.polled(producer):
            await send(FIRST)
            await self.spread(spec, send, meter)
        await producer.close()


class ThreadedTasks(Tasks):
    """librdkafka with a polling thread that passes each delivery report to the event loop."""

    name = "confluent-kafka polled by a thread"
    family = "confluent-kafka"
    requires = "confluent_kafka"
    share = 0.25

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Producer

        producer = Producer(confluent.producer_settings(spec))
        loop, ended = asyncio.get_running_loop(), threading.Event()

        def poll() -> None:
            while not ended.is_set():
                producer.poll(0.1)

        async def send(value: bytes) -> None:
            future: asyncio.Future[None] = loop.create_future()

            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    loop.call_soon_threadsafe(future.set_exception, RuntimeError(str(error)))
                else:
                    loop.call_soon_threadsafe(future.set_result, None)

            producer.produce(spec.topic, value, on_delivery=delivered)
            await future

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            await send(FIRST)
            await self.spread(spec, send, meter)
        finally:
            ended.set()
            thread.join()


TASKS = (
    OwnTasks(),
    OwnTasksDefaults(),
    AioProducerTasks(),
    ThreadedTasks(),
    AiokafkaTasks(),
    AiokafkaTasksLinger(),
)
