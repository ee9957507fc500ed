"""aiokafka, with and without its C extensions."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, ClassVar

from measuring.spec import FIRST, Spec
from measuring.subject import Meter, PythonSubject, read_one_by_one, read_with_stats
from measuring.tokens import unsecured_token

NO_EXTENSIONS = {"AIOKAFKA_NO_EXTENSIONS": "1"}


def connection_options(spec: Spec) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": spec.bootstrap}
    options["security_protocol"] = spec.protocol
    if spec.encrypted:
        from aiokafka.helpers import create_ssl_context

        options["ssl_context"] = create_ssl_context(cafile=spec.authority)
    if spec.mechanism:
        options["sasl_mechanism"] = spec.mechanism
    if spec.mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _token_provider(spec.user)
    elif spec.mechanism not in ("", "GSSAPI"):
        options |= {"sasl_plain_username": spec.user, "sasl_plain_password": spec.password}
    return options


def _token_provider(user: str) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return unsecured_token(user)[0]

    return Provider()


def producer_options(spec: Spec) -> dict[str, Any]:
    options = connection_options(spec)
    options["compression_type"] = None if spec.compression == "none" else spec.compression
    if spec.tuned:
        options |= {"enable_idempotence": True, "linger_ms": spec.linger_ms}
        options |= {"max_batch_size": spec.batch_bytes}
    return options


class Aiokafka(PythonSubject):
    family = "aiokafka"
    requires = "aiokafka"


class Send(Aiokafka):
    name = "aiokafka send, await each"
    share: ClassVar[float] = 0.25

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.produce(spec, meter))

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        items, topic = list(zip(spec.values(), spec.keys(), strict=True)), spec.topic
        producer = AIOKafkaProducer(**producer_options(spec))
        await producer.start()
        await producer.send_and_wait(topic, FIRST)
        with meter:
            waiting: list[Any] = []
            for chunk in spec.chunks(items):
                sent = [await producer.send(topic, value, key) for value, key in chunk]
                meter.counts.messages += await self.settle(waiting)
                waiting = sent
            meter.counts.messages += await self.settle(waiting)
        await producer.stop()

    async def settle(self, futures: list[Any]) -> int:
        for future in futures:
            await future
        return len(futures)


class OwnLoop(Send):
    """The loop of aiokafka's own benchmark, which sends to one partition and counts each send."""

    name = "aiokafka in the loop of its own benchmark"

    async def produce(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        stats = [{"count": 0}]
        producer = AIOKafkaProducer(**producer_options(spec))
        await producer.start()
        await producer.send_and_wait(spec.topic, FIRST)
        with meter:
            for value in spec.values():
                await producer.send(spec.topic, value, partition=0)
                stats[-1]["count"] += 1
            await producer.flush()
        meter.counts.messages = stats[-1]["count"]
        await producer.stop()


class PureSend(Send):
    name = "aiokafka without extensions"
    family = "aiokafka without extensions"
    share = 0.05
    environment: ClassVar = NO_EXTENSIONS


class AiokafkaConsumer(Aiokafka):
    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        places = [TopicPartition(spec.topic, partition) for partition in range(spec.partitions)]
        with meter:
            consumer = AIOKafkaConsumer(enable_auto_commit=False, **connection_options(spec))
            await consumer.start()
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            await self.read(consumer, spec.count, meter)
            await consumer.stop()

    @abstractmethod
    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        """Read `count` records, and take the length of each value."""


class Getmany(AiokafkaConsumer):
    name = "aiokafka getmany"
    share: ClassVar[float] = 0.4

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        seen = size = 0
        while seen < count:
            fetched = await consumer.getmany(timeout_ms=1000)
            if not seen:
                meter.arrived(sum(map(len, fetched.values())))
            for records in fetched.values():
                for record in records:
                    size += len(record.value)
                seen += len(records)
        meter.complete(seen, size)


class AsyncFor(AiokafkaConsumer):
    name = "aiokafka async for"
    share = 0.2

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        await read_one_by_one(consumer, await consumer.getone(), count, meter)


class OwnReading(AiokafkaConsumer):
    """The loop of aiokafka's own benchmark, which counts each record in a statistic."""

    name = "aiokafka in the loop of its own benchmark"
    share = 0.2

    async def read(self, consumer: Any, count: int, meter: Meter) -> None:
        await read_with_stats(consumer, await consumer.getone(), count, meter)


class PureGetmany(Getmany):
    name = "aiokafka without extensions getmany"
    family = "aiokafka without extensions"
    share = 0.025
    environment: ClassVar = NO_EXTENSIONS


PRODUCERS = (Send(), PureSend(), OwnLoop())
CONSUMERS = (Getmany(), AsyncFor(), PureGetmany(), OwnReading())
