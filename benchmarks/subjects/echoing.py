"""One message that a program receives, decodes, and sends again, over and over."""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import abstractmethod
from typing import Any, ClassVar

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject

from subjects import aio_kafka, confluent, own

ORDER = {
    "id": 1042,
    "customer": {"name": "Ada", "address": "12 Harbor Street, " * 4},
    "lines": [{"article": "tea", "count": 3, "note": "no sugar, " * 8}],
}
FIRST = json.dumps(ORDER).encode()
WAIT_S = 10.0


def encode_again(value: bytes) -> bytes:
    return json.dumps(json.loads(value)).encode()


class Echo(PythonSubject):
    """A program in which one message circulates."""

    def work(self, spec: Spec, meter: Meter) -> None:
        self.run_loop(self.echo(spec, meter))

    def run_loop(self, main: Any) -> None:
        asyncio.run(main)

    @abstractmethod
    async def echo(self, spec: Spec, meter: Meter) -> None:
        """Send FIRST, and then each message that is received, `spec.count` times."""


class Own(Echo, own.Own):
    name = "aiokclient"

    async def echo(self, spec: Spec, meter: Meter) -> None:
        from aiokclient import Consumer, Producer

        options = own.connection_options(spec)
        async with (
            Producer(**options) as producer,
            Consumer(spec.topic, auto_offset_reset="earliest", **options) as consumer,
        ):
            await producer.send(spec.topic, FIRST)
            with meter:
                async for record in consumer:
                    await producer.send(spec.topic, encode_again(record.value))
                    meter.counts.messages += 1
                    if meter.counts.messages == spec.count:
                        break


class OwnUvloop(Own):
    name = "aiokclient, uvloop"
    uvloop = True


class Aiokafka(Echo):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"

    async def echo(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        options = aio_kafka.connection_options(spec)
        async with (
            AIOKafkaProducer(**options) as producer,
            AIOKafkaConsumer(spec.topic, auto_offset_reset="earliest", **options) as consumer,
        ):
            await producer.send_and_wait(spec.topic, FIRST)
            with meter:
                async for record in consumer:
                    await producer.send_and_wait(spec.topic, encode_again(record.value))
                    meter.counts.messages += 1
                    if meter.counts.messages == spec.count:
                        break


class Confluent(Echo):
    """The asyncio clients of confluent-kafka, which work in threads."""

    name = "confluent-kafka AIOConsumer and AIOProducer"
    family = "confluent-kafka"
    requires = "confluent_kafka"
    share: ClassVar[float] = 0.5

    async def echo(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition
        from confluent_kafka.aio import AIOConsumer, AIOProducer

        settings = confluent.connection_settings(spec)
        producer = AIOProducer(settings, batch_size=1)
        consumer = AIOConsumer({**settings, "group.id": f"echo-{uuid.uuid4().hex}"})
        await consumer.assign([TopicPartition(spec.topic, 0, OFFSET_BEGINNING)])
        async with confluent.polled(producer):
            await (await producer.produce(spec.topic, FIRST))
            with meter:
                while meter.counts.messages < spec.count:
                    message = await consumer.poll(WAIT_S)
                    if message is None or message.error() is not None:
                        raise RuntimeError(
                            f"No message was received: {message and message.error()}"
                        )
                    value = encode_again(message.value())
                    await (await producer.produce(spec.topic, value))
                    meter.counts.messages += 1
        await consumer.close()
        await producer.close()


ECHOES = (Own(), OwnUvloop(), Aiokafka(), Confluent())
